"""Least privilege: every statement of every role against a list of what it may be, and no wildcard anywhere else."""

import re
from typing import Any

import pytest

from tests.infra.synthesis import INPUT_KEY_ARN, KEY_ARN, Synthesis, statements, synthesis, text, texts

JOBS = "arn:aws:sagemaker:REGION:ACCOUNT:training-job/{name}-*"
LOGS = "arn:aws:logs:REGION:ACCOUNT:log-group:/aws/sagemaker/TrainingJobs"

Right = tuple[str, str, str]
"""An action, a resource, and the condition as text; empty where there is none."""

# What knows no resource, so that only `*` can stand there.
VENDED_LOGS = {
    "logs:CreateLogDelivery",
    "logs:DeleteLogDelivery",
    "logs:DescribeLogGroups",
    "logs:DescribeResourcePolicies",
    "logs:GetLogDelivery",
    "logs:ListLogDeliveries",
    "logs:PutResourcePolicy",
    "logs:UpdateLogDelivery",
}
TRACES = {
    "xray:GetSamplingRules",
    "xray:GetSamplingTargets",
    "xray:PutTelemetryRecords",
    "xray:PutTraceSegments",
}
VPC_ATTACHMENT = {
    "ec2:CreateNetworkInterface",
    "ec2:CreateNetworkInterfacePermission",
    "ec2:DeleteNetworkInterface",
    "ec2:DeleteNetworkInterfacePermission",
    "ec2:DescribeDhcpOptions",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
}
CLOSED_LIST = VENDED_LOGS | TRACES | VPC_ATTACHMENT | {"ecr:GetAuthorizationToken", "cloudwatch:PutMetricData"}


def anywhere(actions: set[str]) -> set[Right]:
    return {(action, "*", "") for action in actions}


def training_rights(name: str) -> set[Right]:
    return {
        ("s3:GetObject", "${Output.Arn}/data/*", ""),
        ("s3:GetObject", "${Output.Arn}/checkpoints/*", ""),
        ("s3:PutObject", "${Output.Arn}/jobs/*", ""),
        ("s3:PutObject", "${Output.Arn}/checkpoints/*", ""),
        ("s3:ListBucket", "${Output.Arn}", ""),
        ("ecr:BatchCheckLayerAvailability", "${Images.Arn}", ""),
        ("ecr:BatchGetImage", "${Images.Arn}", ""),
        ("ecr:GetDownloadUrlForLayer", "${Images.Arn}", ""),
        ("ecr:GetAuthorizationToken", "*", ""),
        ("logs:PutLogEvents", f"{LOGS}:log-stream:{name}-*", ""),
        *((f"logs:{verb}", LOGS, "") for verb in ("CreateLogGroup", "CreateLogStream", "DescribeLogStreams")),
        *((f"logs:{verb}", f"{LOGS}:*", "") for verb in ("CreateLogGroup", "CreateLogStream", "DescribeLogStreams")),
        ("cloudwatch:PutMetricData", "*", "StringEquals cloudwatch:namespace /aws/sagemaker/TrainingJobs"),
    }


def key_rights(key: str) -> set[Right]:
    return {
        *((f"kms:{verb}", key, "") for verb in ("Decrypt", "Encrypt", "GenerateDataKey")),
        ("kms:CreateGrant", key, "Bool kms:GrantIsForAWSResource true"),
    }


TOKEN: Right = ("secretsmanager:GetSecretValue", "${ClusterToken}", "")


def workflow_rights(name: str) -> set[Right]:
    return {
        ("ssm:GetParameter", "arn:aws:ssm:REGION:ACCOUNT:parameter${Image}", ""),
        ("ecr:DescribeImages", "${Images.Arn}", ""),
        *((f"sagemaker:{verb}", JOBS.format(name=name), "") for verb in ("CreateTrainingJob", "DescribeTrainingJob")),
        ("sagemaker:AddTags", JOBS.format(name=name), ""),
        ("iam:PassRole", "${TrainingRole.Arn}", "StringEquals iam:PassedToService sagemaker.amazonaws.com"),
        ("s3:PutObject", "${Output.Arn}/reports/*", ""),
        *anywhere(VENDED_LOGS | TRACES),
    }


def stop_rights(name: str) -> set[Right]:
    return {("sagemaker:StopTrainingJob", JOBS.format(name=name), ""), *anywhere(VENDED_LOGS | TRACES)}


def start_rights(name: str) -> set[Right]:
    return {("states:StartExecution", f"arn:aws:states:REGION:ACCOUNT:stateMachine:{name}-stop", "")}


def flow_rights() -> set[Right]:
    verbs = ("CreateLogStream", "DescribeLogStreams", "PutLogEvents")
    return {(f"logs:{verb}", "${NetworkFlows.Arn}", "") for verb in verbs}


ALLOWED: dict[str, dict[str, set[Right]]] = {
    "defaults": {
        "sagemaker": training_rights("counterpoise") | {TOKEN},
        "states counterpoise": workflow_rights("counterpoise"),
        "states counterpoise-stop": stop_rights("counterpoise"),
        "events counterpoise-stop": start_rights("counterpoise"),
    },
    "everything": {
        # Isolated hosts call no AWS API, so they have no use for the token's secret.
        "sagemaker": training_rights("other") | key_rights("${DataKey.Arn}") | anywhere(VPC_ATTACHMENT),
        "states other": workflow_rights("other") | {("kms:GenerateDataKey", "${DataKey.Arn}", "")},
        "states other-stop": stop_rights("other"),
        "events other-stop": start_rights("other"),
        "events other-notify": {("sns:Publish", "${NotificationsTopic}", "")},
        "vpc-flow-logs": flow_rights(),
    },
    "vpc": {
        "sagemaker": training_rights("counterpoise") | {TOKEN} | anywhere(VPC_ATTACHMENT),
        "states counterpoise": workflow_rights("counterpoise"),
        "states counterpoise-stop": stop_rights("counterpoise"),
        "events counterpoise-stop": start_rights("counterpoise"),
        "vpc-flow-logs": flow_rights(),
    },
    "existing": {
        "sagemaker": training_rights("counterpoise")
        | {TOKEN}
        | key_rights(KEY_ARN)
        | anywhere(VPC_ATTACHMENT)
        | {
            ("s3:GetObject", "arn:aws:s3:::pictures/*", ""),
            ("s3:GetObject", "arn:aws:s3:::archive/2026/*", ""),
            ("s3:GetObject", "arn:aws:s3:::archive/old*", ""),
            ("s3:ListBucket", "arn:aws:s3:::pictures", ""),
            ("s3:ListBucket", "arn:aws:s3:::archive", ""),
            ("kms:Decrypt", INPUT_KEY_ARN, ""),
        },
        "states counterpoise": workflow_rights("counterpoise") | {("kms:GenerateDataKey", KEY_ARN, "")},
        "states counterpoise-stop": stop_rights("counterpoise"),
        "events counterpoise-stop": start_rights("counterpoise"),
    },
}


def rights(role: dict[str, Any]) -> list[Right]:
    """Every right of a role, each as often as it is given."""
    documents = [policy["PolicyDocument"] for policy in role["Policies"]]
    given = [statement for document in documents for statement in document["Statement"]]
    assert {statement["Effect"] for statement in given} == {"Allow"}
    return [
        (action, resource, condition_text(statement.get("Condition", {})))
        for statement in given
        for action in texts(statement["Action"])
        for resource in texts(statement["Resource"])
    ]


def condition_text(condition: dict[str, dict[str, Any]]) -> str:
    return "; ".join(
        f"{operator} {key} {text(value)}" for operator, tests in condition.items() for key, value in tests.items()
    )


def trust(role: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The service that may assume a role, and when."""
    [statement] = role["AssumeRolePolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Action"]) == ("Allow", "sts:AssumeRole")
    return statement["Principal"]["Service"].removesuffix(".amazonaws.com"), statement["Condition"]


def label(role: dict[str, Any]) -> str:
    """The service, and the name of the one thing that it may act for where there is one."""
    service, condition = trust(role)
    source = re.split("[:/]", text(condition["ArnLike"]["aws:SourceArn"]))[-1]
    return service if "*" in source else f"{service} {source}"


@pytest.mark.parametrize("combination", ALLOWED)
def test_each_role_has_its_rights_and_no_other(combination: str) -> None:
    roles = synthesis(combination).resources("AWS::IAM::Role").values()
    found = {label(role["Properties"]): sorted(rights(role["Properties"])) for role in roles}
    assert found == {name: sorted(allowed) for name, allowed in ALLOWED[combination].items()}
    assert len(found) == len(roles)


def test_rights_are_written_by_hand_and_nowhere_else(any_combination: Synthesis) -> None:
    kinds = {resource["Type"] for resource in any_combination.template["Resources"].values()}
    assert not kinds & {
        "AWS::IAM::Policy",
        "AWS::IAM::ManagedPolicy",
        "AWS::Lambda::Function",
        "AWS::Lambda::Permission",
    }
    for role in any_combination.resources("AWS::IAM::Role").values():
        assert "ManagedPolicyArns" not in role["Properties"]
        assert "RoleName" not in role["Properties"], "a named role collides in the account's other regions"


def test_services_act_only_for_what_is_ours(any_combination: Synthesis) -> None:
    for role in any_combination.resources("AWS::IAM::Role").values():
        service, condition = trust(role["Properties"])
        source = text(condition["ArnLike"]["aws:SourceArn"])
        assert text(condition["StringEquals"]["aws:SourceAccount"]) == "ACCOUNT"
        assert ":REGION:ACCOUNT:" in source
        assert source.endswith({"sagemaker": "-*", "vpc-flow-logs": ":vpc-flow-log/*"}.get(service, source)), source


def test_no_policy_allows_a_wildcard_action(any_combination: Synthesis) -> None:
    for where, statement in statements(any_combination.template):
        # A key whose policy does not leave it to the account's policies can never be managed again.
        is_owner_of_key = where == "DataKey" and text(statement["Principal"]["AWS"]).endswith(":root")
        if statement["Effect"] == "Allow" and not is_owner_of_key:
            assert not [action for action in texts(statement["Action"]) if "*" in action], where


def test_star_is_a_resource_only_where_an_action_knows_none(any_combination: Synthesis) -> None:
    for where, statement in statements(any_combination.template):
        if statement["Effect"] == "Allow" and where != "DataKey" and "*" in texts(statement.get("Resource", [])):
            assert set(texts(statement["Action"])) <= CLOSED_LIST, where


def test_nobody_outside_is_let_in(any_combination: Synthesis) -> None:
    for where, statement in statements(any_combination.template):
        if statement["Effect"] == "Allow" and "Principal" in statement:
            principal = statement["Principal"]
            assert "Service" in principal or text(principal["AWS"]) == "arn:aws:iam::ACCOUNT:root", where
            if "Service" in principal:
                assert text(statement["Condition"]["StringEquals"]["aws:SourceAccount"]) == "ACCOUNT", where


def test_jobs_of_one_stack_are_out_of_reach_of_another(any_combination: Synthesis) -> None:
    names = [stack.stack.stack_name for stack in (synthesis("defaults"), synthesis("everything"))]
    reached = [resource for _, statement in statements(any_combination.template) for resource in jobs_in(statement)]
    assert reached
    for name in names:
        pattern = JOBS.format(name=name)
        assert any_combination.stack.stack_name == name or pattern not in reached


def jobs_in(statement: dict[str, Any]) -> list[str]:
    return [resource for resource in texts(statement.get("Resource", [])) if ":training-job/" in resource]
