"""The stack as a whole: one of everything, tags on everything, outputs to paste, names that do not collide."""

import re
from typing import Any

import pytest

from tests.infra.synthesis import KEY_ARN, Synthesis, synthesis, text

TOKEN_VARIABLE = '"COUNTERPOISE_CLUSTER_SECRET_ARN":"${ClusterToken}"'

# What CloudFormation cannot tag, or what is a part of something that is tagged.
UNTAGGED = {
    "AWS::EC2::SecurityGroupEgress",
    "AWS::EC2::SecurityGroupIngress",
    "AWS::EC2::SubnetRouteTableAssociation",
    "AWS::S3::BucketPolicy",
    "AWS::SNS::Subscription",
    "AWS::SNS::TopicPolicy",
}

# Where a name that the template gives is unique for an account and region, so that two of one name cannot be.
NAME_PROPERTIES = {
    "AWS::CloudWatch::Alarm": "AlarmName",
    "AWS::CloudWatch::Dashboard": "DashboardName",
    "AWS::ECR::Repository": "RepositoryName",
    "AWS::Events::Rule": "Name",
    "AWS::IAM::Role": "RoleName",
    "AWS::KMS::Alias": "AliasName",
    "AWS::Logs::LogGroup": "LogGroupName",
    "AWS::S3::Bucket": "BucketName",
    "AWS::SecretsManager::Secret": "Name",
    "AWS::SNS::Topic": "TopicName",
    "AWS::SSM::Parameter": "Name",
    "AWS::StepFunctions::StateMachine": "StateMachineName",
}


def tags_of(resource: dict[str, Any]) -> dict[str, str]:
    tags = resource["Properties"].get("Tags", [])
    return tags if isinstance(tags, dict) else {tag["Key"]: tag["Value"] for tag in tags}


def fixed_names(stack: Synthesis) -> set[tuple[str, str]]:
    return {
        (kind, text(resource["Properties"][property_name]))
        for kind, property_name in NAME_PROPERTIES.items()
        for resource in stack.resources(kind).values()
        if property_name in resource["Properties"]
    }


@pytest.mark.parametrize(
    ("combination", "tags"),
    [("defaults", {"counterpoise:stack": "counterpoise"}), ("everything", {"counterpoise:stack": "other"})],
)
def test_everything_is_tagged(combination: str, tags: dict[str, str]) -> None:
    for name, resource in synthesis(combination).template["Resources"].items():
        if resource["Type"] not in UNTAGGED:
            assert tags.items() <= tags_of(resource).items(), name


def test_tags_of_the_settings_are_on_everything_but_the_pointer(everything: Synthesis) -> None:
    tagged = {
        resource["Type"]: "team" in tags_of(resource)
        for resource in everything.template["Resources"].values()
        if resource["Type"] not in UNTAGGED
    }
    assert [kind for kind, is_tagged in tagged.items() if not is_tagged] == ["AWS::SSM::Parameter"]


def test_outputs_are_what_the_command_line_reads(defaults: Synthesis) -> None:
    outputs = {name: text(output["Value"]) for name, output in defaults.template["Outputs"].items()}
    machine = outputs["StateMachineArn"]
    assert outputs == {
        "StateMachineArn": machine,
        "ConsoleLink": (
            f"https://REGION.console.aws.amazon.com/states/home?region=REGION#/statemachines/view/{machine}"
        ),
        "RepositoryUri": "ACCOUNT.dkr.ecr.REGION.amazonaws.com/${Images}",
        "RepositoryName": "${Images}",
        "BucketName": "${Output}",
        "ImageParameterName": "${Image}",
        "TrainingRoleArn": "${TrainingRole.Arn}",
        "LogGroupName": outputs["LogGroupName"],
        "NextCommand": "counterpoise image push",
    }
    assert all(output["Description"] for output in defaults.template["Outputs"].values())


def test_next_command_names_a_stack_of_another_name(everything: Synthesis) -> None:
    assert everything.template["Outputs"]["NextCommand"]["Value"] == "counterpoise image push --stack other"


def test_two_stacks_fit_into_one_account(defaults: Synthesis, everything: Synthesis) -> None:
    assert fixed_names(defaults)
    assert not fixed_names(defaults) & fixed_names(everything)


def test_what_outlives_the_stack_has_no_name_to_collide_with(defaults: Synthesis) -> None:
    kept = {
        (resource["Type"], NAME_PROPERTIES.get(resource["Type"]) in resource["Properties"])
        for resource in defaults.template["Resources"].values()
        if resource.get("DeletionPolicy") == "Retain"
    }
    assert kept == {("AWS::S3::Bucket", False), ("AWS::S3::BucketPolicy", False)}


def test_what_is_replaced_when_a_key_comes_has_no_name(any_combination: Synthesis) -> None:
    """CloudFormation makes the new one before it deletes the old one."""
    names = {kind for kind, _ in fixed_names(any_combination)}
    assert not names & {"AWS::ECR::Repository", "AWS::S3::Bucket", "AWS::SecretsManager::Secret"}


def test_template_needs_nothing_but_the_bootstrap(any_combination: Synthesis) -> None:
    assert list(any_combination.template["Parameters"]) == ["BootstrapVersion"]
    assert not [kind for kind in any_combination.template["Resources"] if kind.startswith("Custom")]


def request_text(stack: Synthesis) -> str:
    """The workflow's definition without spaces and quoting, in which its request is one expression."""
    machine = stack.resources("AWS::StepFunctions::StateMachine")["WorkflowMachine"]
    return re.sub(r"[\\\s]", "", text(machine["Properties"]["DefinitionString"]))


# What each combination of settings must make of the request, and what must not be in it.
REQUESTS = {
    "defaults": (
        ['"EnableNetworkIsolation":false', '"EnableInterContainerTrafficEncryption":false', TOKEN_VARIABLE],
        ["VpcConfig", "KmsKeyId"],
    ),
    "everything": (
        [
            '"EnableNetworkIsolation":true',
            '"Environment":{"COUNTERPOISE_ISOLATED":"1"}',
            '"EnableInterContainerTrafficEncryption":true',
            '"Subnets":["${NetworkVpcTrainingSubnet1Subnet}","${NetworkVpcTrainingSubnet2Subnet}"]',
            '"SecurityGroupIds":["${NetworkHosts.GroupId}"]',
            '"KmsKeyId":"${DataKey.Arn}"',
            '"VolumeKmsKeyId":"${DataKey.Arn}"',
            '"team":"vision"',
            '"s3://${Output}/jobs"',
            "7200",
        ],
        [TOKEN_VARIABLE],
    ),
    "existing": (
        [
            '"Subnets":["subnet-0a1b2c3d","subnet-0a1b2c3e"]',
            '"SecurityGroupIds":["sg-0a1b2c3d"]',
            f'"KmsKeyId":"{KEY_ARN}"',
            f'"VolumeKmsKeyId":"{KEY_ARN}"',
            TOKEN_VARIABLE,
        ],
        [],
    ),
}


@pytest.mark.parametrize("combination", REQUESTS)
def test_settings_reach_the_request_of_a_job(combination: str) -> None:
    definition = request_text(synthesis(combination))
    present, absent = REQUESTS[combination]
    assert [part for part in present if part not in definition] == []
    assert [part for part in absent if part in definition] == []
