"""Every path of the workflow in the embedded AWS: how the execution ends, its Cause, and which jobs it asked for."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from infra.local.aws.server import EmbeddedAws
from infra.local.aws.settings import REGION
from infra.workflow.definition import build_definition
from infra.workflow.naming import job_stem
from infra.workflow.settings import WorkflowSettings
from infra.workflow.stop import build_stop_definition
from tests.embedded.clients import Clients, until
from tests.embedded.deployment import Deployment
from tests.embedded.jobs import BUCKET, REPOSITORY, Jobs
from tests.embedded.machines import Machines, statement
from tests.embedded.scenarios import Scenarios

NAME = "paths"
CPU_GROUP = {"name": "cpu", "instance_type": "ml.c5.4xlarge"}
GPU_GROUP = {"name": "gpu", "instance_type": "ml.g5.xlarge"}
OTHER_GROUPS = [{"name": "gpu", "instance_type": "ml.g4dn.xlarge"}, {"name": "cpu", "instance_type": "ml.m5.xlarge"}]
CAPACITY = (
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML instance type."
)
QUOTA = (
    "The account-level service limit 'ml.g5.xlarge for training job usage' is 0 Instances, with current utilization of"
    " 0 Instances and a request delta of 1 Instances. Please use AWS Service Quotas to request an increase."
)
LOGS = re.compile(rf"; logs: https://{REGION}\.console\.aws\.amazon\.com/cloudwatch/\S+$")
HELD = {"is_held": True}


@dataclass(frozen=True)
class Ended:
    """How one execution ended."""

    status: str
    output: Any
    error: str
    cause: str
    jobs: list[str]
    """The names of all CreateTrainingJob calls, in order, from the arm's letter on."""


@dataclass(frozen=True)
class Workflow:
    """Two state machines and the rule between them: the stack's, or others of the same definitions."""

    aws: EmbeddedAws
    machines: Machines
    name: str
    arn: str

    @property
    def clients(self) -> Clients:
        """Clients of the account that it is in."""
        return self.machines.clients

    def start(self, name: str, value: Any = None) -> str:
        """Starts an execution; its ARN."""
        text = json.dumps({} if value is None else value)
        started = self.clients.sfn.start_execution(stateMachineArn=self.arn, name=name, input=text)
        return str(started["executionArn"])

    def run(self, name: str, value: Any = None) -> Ended:
        """One execution to its end."""
        return self.ended(self.start(name, value))

    def ended(self, execution_arn: str) -> Ended:
        """How an execution has ended, once it has."""
        description = self.machines.ended(execution_arn)
        output = json.loads(description["output"]) if description["status"] == "SUCCEEDED" else None
        error, cause = description.get("error", ""), description.get("cause", "")
        return Ended(description["status"], output, error, cause, self.jobs(execution_arn))

    def stem(self, execution_arn: str) -> str:
        """What the names of the jobs of an execution begin with."""
        return job_stem(self.name, execution_arn)

    def jobs(self, execution_arn: str) -> list[str]:
        """The names asked for so far, from the arm's letter on."""
        stem = self.stem(execution_arn)
        return [call["job_name"].removeprefix(f"{stem}-") for call in self.aws.calls("CreateTrainingJob", stem)]

    def describe(self, job_name: str) -> dict[str, Any]:
        """The description of a job."""
        description: dict[str, Any] = self.clients.sagemaker.describe_training_job(TrainingJobName=job_name)
        return description

    def job_in(self, job_name: str, *, status: str) -> dict[str, Any]:
        """The description of a job once it has this primary or secondary status."""

        def look() -> dict[str, Any] | None:
            calls = self.aws.calls("CreateTrainingJob", job_name)
            description = self.describe(job_name) if any(call["error"] is None for call in calls) else {}
            states = description.get("TrainingJobStatus"), description.get("SecondaryStatus")
            return description if status in states else None

        return until(look, f"{job_name} {status}")

    def stopped_count(self, name: str) -> int:
        """How many jobs the stop machine says that it stopped for an execution of this name."""
        machine = self.arn + "-stop"

        def look() -> list[int] | None:
            executions = self.clients.sfn.list_executions(stateMachineArn=machine)["executions"]
            described = [self.clients.sfn.describe_execution(executionArn=one["executionArn"]) for one in executions]
            mine = [one for one in described if json.loads(one["input"])["name"] == name and "output" in one]
            return [sum(json.loads(one["output"])["num_stopped"] for one in mine)] if mine else None

        return until(look, f"the stop of {name}")[0]


@pytest.fixture(scope="session")
def make_workflow(embedded_aws: EmbeddedAws, machines: Machines, jobs: Jobs) -> Callable[..., Workflow]:
    """Creates a workflow under a name of its own."""

    def make(name: str, *, image: str | None = None, timeout_seconds: int | None = None) -> Workflow:
        clients = machines.clients
        chosen = image or jobs.request["AlgorithmSpecification"]["TrainingImage"]
        clients.ssm.put_parameter(Name=f"/{name}/image", Value=chosen, Type="String")
        settings = WorkflowSettings(
            name=name,
            partition="aws",
            region=REGION,
            bucket_name=BUCKET,
            training_role_arn=jobs.request["RoleArn"],
            image_parameter_name=f"/{name}/image",
            repository_name=REPOSITORY,
            repository_uri=chosen.partition("@")[0],
            prices_usd_per_hour={REGION: {"ml.g5.xlarge": 1.408, "ml.c5.4xlarge": 0.816}},
            prices_read="2026-09-27",
            poll_seconds=1,
            retry_seconds=1,
        )
        definition = build_definition(settings)
        if timeout_seconds:
            definition["TimeoutSeconds"] = timeout_seconds
        arn = machines.create(name, json.dumps(definition))
        stop_arn = machines.create(f"{name}-stop", json.dumps(build_stop_definition(settings)))
        stop_when_ended(clients, name, arn, stop_arn, machines.role_arn)
        return Workflow(embedded_aws, machines, name, arn)

    return make


def stop_when_ended(clients: Clients, name: str, arn: str, stop_arn: str, role_arn: str) -> None:
    """The rule that the stack has too."""
    pattern = {
        "source": ["aws.states"],
        "detail-type": ["Step Functions Execution Status Change"],
        "detail": {"stateMachineArn": [arn], "status": ["ABORTED", "FAILED", "TIMED_OUT"]},
    }
    clients.events.put_rule(Name=f"{name}-stop", EventPattern=json.dumps(pattern))
    target = {"Id": "stop", "Arn": stop_arn, "RoleArn": role_arn, "InputPath": "$.detail"}
    clients.events.put_targets(Rule=f"{name}-stop", Targets=[target])


@pytest.fixture(scope="session")
def workflow(make_workflow: Callable[..., Workflow]) -> Workflow:
    """The workflow that most paths run in."""
    return make_workflow(NAME)


def test_ok(workflow: Workflow) -> None:
    ended = workflow.run("all-is-well")
    assert (ended.status, ended.jobs) == ("SUCCEEDED", ["t1"])
    arm = ended.output["arms"]["train"]
    description = workflow.describe(arm["job_name"])
    assert arm["model"] == description["ModelArtifacts"]["S3ModelArtifacts"]
    assert arm["metrics"] == {m["MetricName"]: m["Value"] for m in description["FinalMetricDataList"]}
    assert arm["metrics"]["images_per_second"] == 123.4567890123
    assert arm["metrics"]["loss"] == 1e-05
    assert arm["billable_seconds"] == description["BillableTimeInSeconds"]
    assert arm["cost_usd"] == (1.408 + 0.816) * arm["billable_seconds"] / 3600
    assert arm["job_name"] in arm["logs"]


def test_the_report_is_the_output(workflow: Workflow) -> None:
    ended = workflow.run("reported")
    bucket, _, key = ended.output["report"].removeprefix("s3://").partition("/")
    stored = workflow.clients.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    assert json.loads(stored) == ended.output


def test_compare(workflow: Workflow, scenarios: Scenarios) -> None:
    rates = [10.25, 19.5]
    scenarios.set("side-by-side", *({"lines": [f"counterpoise: event=result images_per_second={r}"]} for r in rates))
    ended = workflow.run("side-by-side", {"mode": "compare"})
    assert (ended.status, ended.jobs) == ("SUCCEEDED", ["b1", "h1"])
    speedup = 19.5 / 10.25
    price_performance = speedup * 1.408 / (1.408 + 0.816)
    assert ended.output["results"] == {"speedup": speedup, "price_performance": price_performance}


def test_fallback(workflow: Workflow) -> None:
    workflow.aws.inject(operation="StartOfJob", job_name="second-choice", message=CAPACITY, times=2)
    ended = workflow.run("second-choice", {"fallback_instance_groups": [OTHER_GROUPS]})
    assert (ended.status, ended.jobs) == ("SUCCEEDED", ["t1", "t2", "t3"])
    types = [group["instance_type"] for group in ended.output["arms"]["train"]["instance_groups"]]
    assert types == ["ml.g4dn.xlarge", "ml.m5.xlarge"]


def test_no_capacity(workflow: Workflow) -> None:
    workflow.aws.inject(operation="StartOfJob", job_name="crowded", message=CAPACITY, times=9)
    ended = workflow.run("crowded", {"fallback_instance_groups": [OTHER_GROUPS]})
    assert (ended.status, ended.error, ended.jobs) == ("FAILED", "NoCapacity", ["t1", "t2", "t3", "t4"])
    words = ["(1) 1 x ml.g5.xlarge + 1 x ml.c5.4xlarge: CapacityError", "(3) 1 x ml.g4dn.xlarge + 1 x ml.m5.xlarge"]
    assert all(text in ended.cause for text in words)


def test_quota(workflow: Workflow) -> None:
    workflow.aws.inject(
        operation="CreateTrainingJob", job_name="no-quota", code="ResourceLimitExceeded", message=QUOTA, times=9
    )
    ended = workflow.run("no-quota", {"fallback_instance_groups": [OTHER_GROUPS]})
    assert (ended.status, ended.error, ended.jobs) == ("FAILED", "QuotaExceeded", ["t1", "t2"])
    assert "'ml.g5.xlarge for training job usage' is 0 Instances" in ended.cause
    assert "/servicequotas/home/services/sagemaker/quotas" in ended.cause


def test_throttled_then_ok(workflow: Workflow) -> None:
    workflow.aws.inject(
        operation="CreateTrainingJob", job_name="busy", code="ThrottlingException", message="Rate exceeded", times=2
    )
    ended = workflow.run("busy")
    assert (ended.status, ended.jobs) == ("SUCCEEDED", ["t1", "t1", "t1"])


@pytest.mark.parametrize("is_applied", [False, True])
def test_internal_error(workflow: Workflow, is_applied: bool) -> None:
    name = f"broken-{is_applied}".lower()
    workflow.aws.inject(
        operation="CreateTrainingJob",
        job_name=name,
        code="InternalFailure",
        message="internal",
        http_status=500,
        is_applied=is_applied,
    )
    ended = workflow.run(name)
    assert (ended.status, ended.jobs) == ("SUCCEEDED", ["t1", "t1"])
    created = [call for call in workflow.aws.calls("CreateTrainingJob", name) if call["error"] is None]
    assert len(created) == (0 if is_applied else 1), "a job whose answer was lost is not started again"


def test_internal_error_of_the_job(workflow: Workflow) -> None:
    reason = "InternalServerError: We encountered an internal error. Please try again."
    workflow.aws.inject(operation="StartOfJob", job_name="hiccup", message=reason)
    ended = workflow.run("hiccup")
    assert (ended.status, ended.error, ended.jobs) == ("FAILED", "JobFailed", ["t1"])
    assert f"failed: {reason}" in ended.cause


def test_algorithm_error(workflow: Workflow, scenarios: Scenarios) -> None:
    failure = "ray head: 1 of 2 hosts did not join within 600 s: algo-2\nTraceback (most recent call last)"
    scenarios.set("host-missing", {"status": "Failed", "failure": failure, "exit_code": 3})
    ended = workflow.run("host-missing")
    assert (ended.status, ended.error, ended.jobs) == ("FAILED", "JobFailed", ["t1"])
    assert "AlgorithmError: ray head: 1 of 2 hosts did not join within 600 s: algo-2" in ended.cause
    assert "\n" not in ended.cause
    assert LOGS.search(ended.cause)


def test_time_out_of_the_job(workflow: Workflow, scenarios: Scenarios) -> None:
    scenarios.set("too-slow", HELD)
    ended = workflow.run("too-slow", {"max_runtime_seconds": 1})
    assert (ended.status, ended.error, ended.jobs) == ("FAILED", "JobTimedOut", ["t1"])
    assert "was stopped after max_runtime_seconds = 1; raise it; logs: " in ended.cause


def test_time_out_of_the_execution(make_workflow: Callable[..., Workflow], scenarios: Scenarios) -> None:
    brief = make_workflow("brief", timeout_seconds=3)
    scenarios.set("endless", HELD)
    arn = brief.start("endless")
    ended = brief.ended(arn)
    assert (ended.status, ended.jobs) == ("TIMED_OUT", ["t1"])
    brief.job_in(f"{brief.stem(arn)}-t1", status="Stopped")


def test_stop_by_a_user(workflow: Workflow, scenarios: Scenarios) -> None:
    scenarios.set("unwanted", HELD)
    arn = workflow.start("unwanted")
    job = f"{workflow.stem(arn)}-t1"
    workflow.job_in(job, status="Training")
    workflow.clients.sagemaker.stop_training_job(TrainingJobName=job)
    ended = workflow.ended(arn)
    assert (ended.status, ended.error, ended.jobs) == ("FAILED", "JobStopped", ["t1"])
    assert f"training job {job} was stopped by a user; logs: " in ended.cause


def test_abort_stops_the_job_and_redrive_starts_another(workflow: Workflow, scenarios: Scenarios) -> None:
    scenarios.set("abandoned", HELD, {})
    arn = workflow.start("abandoned")
    job = f"{workflow.stem(arn)}-t1"
    workflow.job_in(job, status="Training")
    workflow.clients.sfn.stop_execution(executionArn=arn, cause="no longer needed")
    assert workflow.ended(arn).status == "ABORTED"
    workflow.job_in(job, status="Stopped")
    assert workflow.stopped_count("abandoned") == 1
    workflow.clients.sfn.redrive_execution(executionArn=arn)
    ended = workflow.ended(arn)
    assert (ended.status, ended.jobs) == ("SUCCEEDED", ["t1", "t17"])
    assert ended.output["arms"]["train"]["job_name"] == f"{workflow.stem(arn)}-t17"


def test_the_deployed_rule_and_roles_stop_the_job_of_an_aborted_execution(
    deployment: Deployment, machines: Machines, scenarios: Scenarios
) -> None:
    deployed = Workflow(deployment.aws, machines, "counterpoise", deployment.outputs["StateMachineArn"])
    scenarios.set("deserted", HELD, {})
    arn = deployed.start("deserted")
    deployed.job_in(f"{deployed.stem(arn)}-t1", status="Training")
    deployed.clients.sfn.stop_execution(executionArn=arn)
    deployed.job_in(f"{deployed.stem(arn)}-t1", status="Stopped")
    assert deployed.stopped_count("deserted") == 1
    deployed.clients.sfn.redrive_execution(executionArn=arn)
    assert deployed.ended(arn).jobs == ["t1", "t17"]


def test_redrive_of_the_second_arm_keeps_the_first(workflow: Workflow, scenarios: Scenarios) -> None:
    scenarios.set("half-done", {}, HELD, {})
    arn = workflow.start("half-done", {"mode": "compare"})
    job = f"{workflow.stem(arn)}-h1"
    workflow.job_in(job, status="Training")
    workflow.clients.sfn.stop_execution(executionArn=arn)
    workflow.job_in(job, status="Stopped")
    workflow.clients.sfn.redrive_execution(executionArn=arn)
    ended = workflow.ended(arn)
    assert (ended.status, ended.jobs) == ("SUCCEEDED", ["b1", "h1", "h17"])
    assert list(ended.output["arms"]) == ["baseline", "heterogeneous"]


def test_redrive_after_a_failure_tells_the_same_again(workflow: Workflow, scenarios: Scenarios) -> None:
    """AWS enters a Fail state again; the failed job is not repeated, and nothing else is started."""
    scenarios.set("beyond-help", {"status": "Failed", "failure": "out of ideas"})
    arn = workflow.start("beyond-help")
    first = workflow.ended(arn)
    workflow.clients.sfn.redrive_execution(executionArn=arn)
    assert workflow.ended(arn) == first
    assert first.jobs == ["t1"]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("unknown-key", {"instance_group": []}, ["instance_group: unknown setting", "instance_groups"]),
        ("not-an-object", [1], ["input: a list of 1 is not an object"]),
        ("no-gpu", {"mode": "compare", "instance_groups": [CPU_GROUP]}, ["cpu (ml.c5.4xlarge)"]),
        ("two-problems", {"volume_gb": 0, "training": {"steps": 0}}, ["training.steps: 0", "volume_gb: 0"]),
        ("no-model", {"training": {"model": "resnet-50"}}, ["training.model: 'resnet-50'", "nearest: resnet50;"]),
        ("stack-limit", {"max_runtime_seconds": 432_001}, ["max_runtime_seconds: 432001 is over the limit of this"]),
    ],
)
def test_bad_input(workflow: Workflow, name: str, value: Any, words: list[str]) -> None:
    ended = workflow.run(name, value)
    assert (ended.status, ended.error, ended.jobs) == ("FAILED", "InvalidInput", [])
    assert all(text in ended.cause for text in words), ended.cause


@pytest.mark.parametrize("image", ["none", f"000000000000.dkr.ecr.{REGION}.amazonaws.com/x@sha256:{'0' * 64}"])
def test_missing_image(make_workflow: Callable[..., Workflow], image: str) -> None:
    ended = make_workflow(f"bare{len(image)}", image=image).run("early")
    assert (ended.status, ended.error, ended.jobs) == ("FAILED", "ImageMissing", [])
    assert ended.cause.endswith("; build and push one with: counterpoise image build && counterpoise image push")


def test_a_role_that_may_not_is_told(make_workflow: Callable[..., Workflow]) -> None:
    workflow = make_workflow("unprivileged")
    refused = Machines.create_role(workflow.clients, "unprivileged-role", [statement(["sagemaker:*"])])
    workflow.clients.sfn.update_state_machine(stateMachineArn=workflow.arn, roleArn=refused)
    ended = workflow.run("denied")
    assert (ended.status, ended.jobs) == ("FAILED", [])
    assert ended.cause.startswith("cannot read parameter /unprivileged/image: ")
    assert "is not authorized to perform: ssm:GetParameter" in ended.cause
