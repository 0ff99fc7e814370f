"""The real template with the real CDK command line: deployed, deployed again, destroyed, deployed once more."""

from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from infra.local.aws.deploy import CdkProject, DeployError
from infra.local.aws.server import EmbeddedAws
from infra.local.aws.stand_in_image import register_image
from tests.embedded.clients import Clients
from tests.embedded.deployment import Deployment

OTHER_STACK = {"counterpoise:name": "other"}


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
    uri = register_image(deployment.aws, deployment.outputs)
    assert clients.ssm.get_parameter(Name=deployment.outputs["ImageParameterName"])["Parameter"]["Value"] == uri
    [image] = clients.ecr.describe_images(repositoryName=deployment.outputs["RepositoryName"])["imageDetails"]
    assert uri == f"{deployment.outputs['RepositoryUri']}@{image['imageDigest']}"
    [tag] = image["imageTags"]
    assert tag.startswith("current-stand-in-")


def test_destroyed_stack_can_be_deployed_again(
    deployment: Deployment, embedded_aws: EmbeddedAws, clients: Clients, tmp_path: Path
) -> None:
    """A stack of its own, beside the one that the other tests use."""
    project = CdkProject(embedded_aws.environment, tmp_path, OTHER_STACK)
    outputs = project.deploy()
    assert outputs["StateMachineArn"] != deployment.outputs["StateMachineArn"]
    clients.s3.put_object(Bucket=outputs["BucketName"], Key="jobs/model.tar.gz", Body=b"weights")
    project.destroy()
    with pytest.raises(ClientError, match="does not exist"):
        clients.cloudformation.describe_stacks(StackName="other")
    kept = clients.s3.get_object(Bucket=outputs["BucketName"], Key="jobs/model.tar.gz")["Body"].read()
    assert kept == b"weights", "a destroy retains what jobs put out"
    again = project.deploy()
    assert again["BucketName"] != outputs["BucketName"], "the retained bucket is in nobody's way"
    assert clients.cloudformation.describe_stacks(StackName="other")["Stacks"][0]["StackStatus"] == "CREATE_COMPLETE"


def test_failure_is_what_the_command_says(embedded_aws: EmbeddedAws, tmp_path: Path) -> None:
    with pytest.raises(DeployError, match=r"cdk destroy ended with 1:\n(.*\n)*.*cdk\.out"):
        CdkProject(embedded_aws.environment, tmp_path).destroy()
