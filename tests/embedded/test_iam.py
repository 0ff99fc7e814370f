"""One pass with IAM enforced: the deployed stack works, and its roles may do what they need and nothing else."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra.local.aws.server import EmbeddedAws
from tests.embedded.clients import Clients
from tests.embedded.conftest import FAKE_RUNNER, WAIT_SCALE
from tests.embedded.deployment import Deployment
from tests.embedded.machines import Machines

OTHER_BUCKET = "bucket-of-somebody-else"
JOB = "counterpoise-first-0123456789-t1"
Call = Callable[[Clients, str], Any]


@pytest.fixture(scope="module")
def enforced(cdk_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The stack on an emulator that asks for signatures and rights, over TLS."""
    scenarios = tmp_path_factory.mktemp("iam-scenarios")
    runner = [sys.executable, "-S", str(FAKE_RUNNER), "--scenarios", str(scenarios)]
    work_dir = tmp_path_factory.mktemp("iam-aws")
    with EmbeddedAws(runner_command=runner, wait_scale=WAIT_SCALE, is_iam_enforced=True, work_dir=work_dir) as aws:
        deployment = Deployment.create(aws, cdk_dir)
        Clients.of(aws).s3.create_bucket(Bucket=OTHER_BUCKET)
        yield deployment


@pytest.fixture(scope="module")
def training_job(enforced: Deployment) -> Clients:
    """Clients with the credentials that a training job of the stack has."""
    credentials = enforced.aws.assume(enforced.outputs["TrainingRoleArn"], JOB)
    return Clients.of(enforced.aws).acting_as(credentials)


def test_execution_succeeds(enforced: Deployment) -> None:
    """Data, logs and model pass with the training role's own session, every call of the workflow with its role's."""
    clients = Clients.of(enforced.aws)
    machines = Machines(clients, "")
    started = clients.sfn.start_execution(stateMachineArn=enforced.outputs["StateMachineArn"], name="iam", input="{}")
    ended = machines.ended(started["executionArn"])
    assert ended["status"] == "SUCCEEDED", ended
    [arm] = json.loads(ended["output"])["arms"].values()
    bucket, _, key = arm["model"].removeprefix("s3://").partition("/")
    assert bucket == enforced.outputs["BucketName"]
    assert clients.s3.head_object(Bucket=bucket, Key=key)["ContentLength"] > 0
    streams = clients.logs.describe_log_streams(
        logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=f"{arm['job_name']}/"
    )
    assert streams["logStreams"], "the training role wrote the log"


ALLOWED: dict[str, Call] = {
    "write its model": lambda c, bucket: c.s3.put_object(Bucket=bucket, Key=f"jobs/{JOB}/output/model.tar.gz"),
    "write a checkpoint": lambda c, bucket: c.s3.put_object(Bucket=bucket, Key="checkpoints/x/step-1"),
    "read a checkpoint": lambda c, bucket: c.s3.get_object(Bucket=bucket, Key="checkpoints/x/step-1"),
    "list the bucket": lambda c, bucket: c.s3.list_objects_v2(Bucket=bucket, Prefix="data/"),
    "create its log": lambda c, _: c.logs.create_log_stream(
        logGroupName="/aws/sagemaker/TrainingJobs", logStreamName=f"{JOB}/algo-1-1"
    ),
}
DENIED: dict[str, Call] = {
    "read the model of a job": lambda c, bucket: c.s3.get_object(Bucket=bucket, Key="jobs/other/output/model.tar.gz"),
    "write input data": lambda c, bucket: c.s3.put_object(Bucket=bucket, Key="data/image.jpg"),
    "write a report": lambda c, bucket: c.s3.put_object(Bucket=bucket, Key="reports/other.json"),
    "delete a model": lambda c, bucket: c.s3.delete_object(Bucket=bucket, Key=f"jobs/{JOB}/output/model.tar.gz"),
    "write to another bucket": lambda c, _: c.s3.put_object(Bucket=OTHER_BUCKET, Key="jobs/x"),
    "list another bucket": lambda c, _: c.s3.list_objects_v2(Bucket=OTHER_BUCKET),
    "create a user": lambda c, _: c.iam.create_user(UserName="intruder"),
    "stop a job": lambda c, _: c.sagemaker.stop_training_job(TrainingJobName="counterpoise-other-0123456789-t1"),
    "describe a job": lambda c, _: c.sagemaker.describe_training_job(TrainingJobName=JOB),
    "read another secret": lambda c, _: c.secretsmanager.get_secret_value(SecretId="other"),
    "write the log of another stack's job": lambda c, _: c.logs.put_log_events(
        logGroupName="/aws/sagemaker/TrainingJobs",
        logStreamName="other-first-0123456789-t1/algo-1-1",
        logEvents=[{"timestamp": 0, "message": "forged"}],
    ),
    "start an execution": lambda c, _: c.sfn.start_execution(
        stateMachineArn="arn:aws:states:us-east-1:000000000000:stateMachine:counterpoise"
    ),
}


@pytest.mark.parametrize("what", ALLOWED)
def test_training_role_may(what: str, training_job: Clients, enforced: Deployment) -> None:
    ALLOWED[what](training_job, enforced.outputs["BucketName"])


@pytest.mark.parametrize("what", DENIED)
def test_training_role_may_not(what: str, training_job: Clients, enforced: Deployment) -> None:
    with pytest.raises(ClientError) as caught:
        DENIED[what](training_job, enforced.outputs["BucketName"])
    assert caught.value.response["Error"]["Code"] in ("AccessDenied", "AccessDeniedException")


def test_credentials_must_be_right(enforced: Deployment) -> None:
    right = enforced.aws.assume(enforced.outputs["TrainingRoleArn"], JOB)
    wrong = {
        "InvalidAccessKeyId": {**right, "aws_access_key_id": "ASIAAAAAAAAAAAAAAAAA"},
        "SignatureDoesNotMatch": {**right, "aws_secret_access_key": "wrong"},
    }
    for code, credentials in wrong.items():
        with pytest.raises(ClientError) as caught:
            Clients.of(enforced.aws).acting_as(credentials).s3.list_objects_v2(Bucket=enforced.outputs["BucketName"])
        assert caught.value.response["Error"]["Code"] == code


def test_workflow_role(enforced: Deployment) -> None:
    """What SimulatePrincipalPolicy says of the role of the deployed state machine."""
    clients, outputs = Clients.of(enforced.aws), enforced.outputs
    role = clients.sfn.describe_state_machine(stateMachineArn=outputs["StateMachineArn"])["roleArn"]
    own, other = enforced.job_arn(JOB), enforced.job_arn("other-first-0123456789-t1")
    training_role, bucket = outputs["TrainingRoleArn"], f"arn:aws:s3:::{outputs['BucketName']}"
    to_sagemaker = {"iam:PassedToService": "sagemaker.amazonaws.com"}
    expected: list[tuple[str, str, dict[str, str], bool]] = [
        ("sagemaker:CreateTrainingJob", own, {}, True),
        ("sagemaker:CreateTrainingJob", other, {}, False),
        ("sagemaker:DescribeTrainingJob", own, {}, True),
        ("sagemaker:DescribeTrainingJob", other, {}, False),
        ("sagemaker:AddTags", own, {}, True),
        ("sagemaker:DeleteModel", own, {}, False),
        ("iam:PassRole", training_role, to_sagemaker, True),
        ("iam:PassRole", training_role, {"iam:PassedToService": "lambda.amazonaws.com"}, False),
        ("iam:PassRole", role, to_sagemaker, False),
        ("s3:PutObject", f"{bucket}/reports/x.json", {}, True),
        ("s3:PutObject", f"{bucket}/jobs/x", {}, False),
        ("s3:GetObject", f"{bucket}/reports/x.json", {}, False),
        ("iam:CreateUser", "*", {}, False),
    ]
    told = [(action, resource, _is_allowed(clients, role, action, resource, c)) for action, resource, c, _ in expected]
    assert told == [(action, resource, allowed) for action, resource, _, allowed in expected]


def _is_allowed(clients: Clients, role: str, action: str, resource: str, context: dict[str, str]) -> bool:
    entries = [
        {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "string"}
        for key, value in context.items()
    ]
    answer = clients.iam.simulate_principal_policy(
        PolicySourceArn=role, ActionNames=[action], ResourceArns=[resource], ContextEntries=entries
    )
    return bool(answer["EvaluationResults"][0]["EvalDecision"] == "allowed")
