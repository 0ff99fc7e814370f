"""The real template with the real CDK command line: deployed, deployed again, destroyed, deployed once more."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra.local.aws.deploy import CdkProject, DeployError
from infra.local.aws.server import EmbeddedAws
from infra.local.aws.stand_in_image import register_image
from tests.embedded.clients import Clients
from tests.embedded.deployment import SHORT_WAITS, Deployment
from tests.embedded.machines import Machines

OTHER_STACK = {
    **SHORT_WAITS,
    "counterpoise:name": "other",
    "counterpoise:create_vpc": "true",
    "counterpoise:kms_key": "create",
    "counterpoise:network_isolation": "true",
    "counterpoise:inter_container_encryption": "true",
    "counterpoise:notification_email": "team@example.com",
    "counterpoise:tags": '{"team": "vision"}',
}


def events(clients: Clients, stack: str) -> list[str]:
    """The ids of everything that CloudFormation did with a stack."""
    pages = clients.cloudformation.get_paginator("describe_stack_events").paginate(StackName=stack)
    return [event["EventId"] for page in pages for event in page["StackEvents"]]


def test_second_deploy_changes_nothing(deployment: Deployment, clients: Clients) -> None:
    parameter = deployment.outputs["ImageParameterName"]
    before = events(clients, "counterpoise"), clients.ssm.get_parameter(Name=parameter)["Parameter"]
    deployment.project.synthesize()
    assert deployment.project.deploy() == deployment.outputs
    assert (events(clients, "counterpoise"), clients.ssm.get_parameter(Name=parameter)["Parameter"]) == before
    assert "(no changes)" in deployment.project.log_file.read_text()


def test_diff_is_empty(deployment: Deployment) -> None:
    assert not deployment.project.differs()


def test_image_is_registered_by_digest_once(deployment: Deployment, clients: Clients) -> None:
    uri = register_image(deployment.aws.environment, "counterpoise")
    assert clients.ssm.get_parameter(Name=deployment.outputs["ImageParameterName"])["Parameter"]["Value"] == uri
    [image] = clients.ecr.describe_images(repositoryName=deployment.outputs["RepositoryName"])["imageDetails"]
    assert uri == f"{deployment.outputs['RepositoryUri']}@{image['imageDigest']}"
    [tag] = image["imageTags"]
    assert tag.startswith("current-stand-in-")


def test_stack_with_every_setting_runs_and_can_be_deployed_again(
    deployment: Deployment, embedded_aws: EmbeddedAws, clients: Clients, tmp_path: Path
) -> None:
    """A stack beside the one that the other tests use, with a network and a key of its own."""
    project = CdkProject(embedded_aws.environment, tmp_path, OTHER_STACK)
    outputs = project.deploy()
    assert outputs["StateMachineArn"] != deployment.outputs["StateMachineArn"]
    request = run_job(embedded_aws, outputs)
    assert request["EnableNetworkIsolation"]
    assert request["EnableInterContainerTrafficEncryption"]
    assert len(request["VpcConfig"]["Subnets"]) > 1
    assert ":key/" in request["OutputDataConfig"]["KmsKeyId"]
    assert "VolumeKmsKeyId" not in request["ResourceConfig"], "a g5 has disks of its own"

    project.destroy()
    with pytest.raises(ClientError, match="does not exist"):
        clients.cloudformation.describe_stacks(StackName="other")
    model = f"jobs/{request['TrainingJobName']}/output/model.tar.gz"
    assert clients.s3.head_object(Bucket=outputs["BucketName"], Key=model), "a destroy retains what jobs put out"
    again = project.deploy()
    assert again["BucketName"] != outputs["BucketName"], "the retained bucket is in nobody's way"
    assert clients.cloudformation.describe_stacks(StackName="other")["Stacks"][0]["StackStatus"] == "CREATE_COMPLETE"


def run_job(aws: EmbeddedAws, outputs: Mapping[str, str]) -> dict[str, Any]:
    """The request for the job of one execution on one host, which has succeeded."""
    register_image(aws.environment, outputs["StateMachineArn"].rpartition(":")[2])
    machines = Machines(Clients.of(aws), "")
    run = {"instance_groups": [{"name": "gpu", "instance_type": "ml.g5.xlarge"}]}
    started = machines.clients.sfn.start_execution(
        stateMachineArn=outputs["StateMachineArn"], name="all", input=json.dumps(run)
    )
    ended = machines.ended(started["executionArn"])
    assert ended["status"] == "SUCCEEDED", ended
    [call] = aws.calls("CreateTrainingJob", "other-all-")
    request: dict[str, Any] = call["request"]
    return request


def test_failure_is_what_the_command_says(embedded_aws: EmbeddedAws, tmp_path: Path) -> None:
    with pytest.raises(DeployError, match=r"cdk destroy ended with 1:\n(.*\n)*.*cdk\.out"):
        CdkProject(embedded_aws.environment, tmp_path).destroy()
