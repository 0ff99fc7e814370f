"""A deployed stack on the fake endpoint: its outputs, its image, and executions that end after so many looks."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.client.fake_aws import FakeAws, Fault, Parameters

ACCOUNT, REGION = "123456789012", "us-east-1"
MACHINE = f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:counterpoise"
REPOSITORY = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/counterpoise"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/counterpoise-training"
POINTER = "/counterpoise/image"
DIGEST = f"sha256:{'a' * 64}"
OUTPUTS = {
    "StateMachineArn": MACHINE,
    "ConsoleLink": "https://example.com/machine",
    "RepositoryUri": REPOSITORY,
    "RepositoryName": "counterpoise",
    "BucketName": "counterpoise-output",
    "ImageParameterName": POINTER,
    "TrainingRoleArn": ROLE,
    "LogGroupName": "/aws/vendedlogs/states/counterpoise",
    "NextCommand": "counterpoise start",
}
STARTED = datetime(2026, 11, 30, 12, tzinfo=UTC)


def execution_arn(name: str) -> str:
    return f"arn:aws:states:{REGION}:{ACCOUNT}:execution:counterpoise:{name}"


@dataclass
class FakeExecution:
    """An execution that shows `end` (what DescribeExecution then answers) from the look on that `looks_left` counts."""

    name: str
    input: str = "{}"
    end: Mapping[str, Any] = field(default_factory=lambda: {"status": "SUCCEEDED", "output": "{}"})
    looks_left: int = 0
    jobs: list[str] = field(default_factory=list)
    is_ended: bool = False
    started_at: datetime = STARTED

    def describe(self) -> dict[str, Any]:
        self.is_ended = self.is_ended or self.looks_left == 0
        self.looks_left = max(self.looks_left - 1, 0)
        state = (
            {"status": "RUNNING"} if not self.is_ended else {"stopDate": STARTED + timedelta(seconds=90), **self.end}
        )
        return {
            "executionArn": execution_arn(self.name),
            "stateMachineArn": MACHINE,
            "name": self.name,
            "input": self.input,
            "startDate": self.started_at,
            **state,
        }


class Deployed:
    """The stack's behaviour as the API reference tells it; `start_looks` is how long new executions run, in looks."""

    def __init__(self, fake: FakeAws) -> None:
        self.fake = fake
        self.executions: dict[str, FakeExecution] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.logs: dict[str, list[tuple[int, str]]] = {}  # by stream: milliseconds and text
        self.parameters = {POINTER: f"{REPOSITORY}@{DIGEST}", "/cdk-bootstrap/hnb659fds/version": "30"}
        self.start_looks = 0
        outputs = [{"OutputKey": key, "OutputValue": value} for key, value in OUTPUTS.items()]
        fake.answers |= {
            "DescribeStacks": {"Stacks": [{"StackName": "counterpoise", "StackStatus": "UPDATE_COMPLETE",
                                           "CreationTime": STARTED, "Outputs": outputs}]},
            "GetParameter": lambda asked: {"Parameter": {"Value": self.parameters[asked["Name"]]}},
            "PutParameter": self._put_parameter,
            "DescribeImages": {"imageDetails": [{"imageDigest": DIGEST}]},
            "StartExecution": self._start,
            "StopExecution": self._stop,
            "DescribeExecution": lambda asked: self._execution(asked).describe(),
            "ListExecutions": self._list,
            "GetExecutionHistory": self._history,
            "DescribeTrainingJob": lambda asked: self.jobs[asked["TrainingJobName"]],
            "DescribeLogStreams": self._streams,
            "GetLogEvents": self._events,
        }  # fmt: skip

    def add(self, execution: FakeExecution) -> FakeExecution:
        self.executions[execution.name] = execution
        return execution

    def add_job(self, name: str, status: str = "Completed", **more: Any) -> str:
        self.jobs[name] = {
            "TrainingJobName": name,
            "TrainingJobArn": job_arn(name),
            "TrainingJobStatus": status,
            "SecondaryStatus": {"InProgress": "Training"}.get(status, status),
            "CreationTime": STARTED,
            "ResourceConfig": {
                "InstanceGroups": [{"InstanceGroupName": "gpu", "InstanceType": "ml.g5.xlarge", "InstanceCount": 1}]
            },
            **more,
        }
        return name

    def _execution(self, asked: Parameters) -> FakeExecution:
        name = asked["executionArn"].rpartition(":")[2]
        if name not in self.executions:
            raise Fault("ExecutionDoesNotExist", f"Execution Does Not Exist: '{asked['executionArn']}'")
        return self.executions[name]

    def _start(self, asked: Parameters) -> dict[str, Any]:
        known = self.executions.get(asked["name"])
        # The same name and input while it runs is a success; after its end it is refused, whatever the input.
        if known and (known.is_ended or known.input != asked["input"]):
            raise Fault("ExecutionAlreadyExists", f"Execution Already Exists: '{execution_arn(asked['name'])}'")
        if not known:
            self.add(FakeExecution(asked["name"], asked["input"], looks_left=self.start_looks))
        return {"executionArn": execution_arn(asked["name"]), "startDate": STARTED}

    def _stop(self, asked: Parameters) -> dict[str, Any]:
        execution = self._execution(asked)
        execution.is_ended = True
        execution.end = {"status": "ABORTED", "error": asked.get("error"), "cause": asked.get("cause")}
        return {"stopDate": STARTED}

    def _list(self, asked: Parameters) -> dict[str, Any]:
        assert asked["stateMachineArn"] == MACHINE
        keys = ("executionArn", "stateMachineArn", "name", "status", "startDate", "stopDate")
        found = [execution.describe() for execution in reversed(self.executions.values())]
        return {"executions": [{key: value for key, value in one.items() if key in keys} for one in found]}

    def _history(self, asked: Parameters) -> dict[str, Any]:
        """In pages of two, so that every reader has to turn them."""
        events: list[dict[str, Any]] = [{"type": "ExecutionStarted", "executionStartedEventDetails": {"input": "{}"}}]
        for name in self._execution(asked).jobs:
            for output in ({"TrainingJobArn": job_arn(name)}, self.jobs[name]):
                text = json.dumps(output, default=str)
                events += [{"type": "TaskScheduled"}, {"type": "TaskSucceeded", "taskSucceededEventDetails":
                            {"resourceType": "aws-sdk:sagemaker", "resource": "any", "output": text}}]  # fmt: skip
        numbered = [{"id": index, "timestamp": STARTED, **event} for index, event in enumerate(events, start=1)]
        assert asked["reverseOrder"]
        start = int(asked.get("nextToken", 0))
        page = numbered[::-1][start : start + 2]
        return {"events": page, **({"nextToken": str(start + 2)} if start + 2 < len(numbered) else {})}

    def _streams(self, asked: Parameters) -> dict[str, Any]:
        if not self.logs:
            raise Fault("ResourceNotFoundException", "The specified log group does not exist.")
        names = [name for name in self.logs if name.startswith(asked["logStreamNamePrefix"])]
        return {"logStreams": [{"logStreamName": name} for name in names]}

    def _events(self, asked: Parameters) -> dict[str, Any]:
        """One event a page, then the same token again."""
        start = int(asked.get("nextToken", "0"))
        events = self.logs[asked["logStreamName"]][start : start + 1]
        return {
            "events": [{"timestamp": at, "message": text, "ingestionTime": at} for at, text in events],
            "nextForwardToken": str(start + len(events)),
        }

    def _put_parameter(self, asked: Parameters) -> dict[str, Any]:
        self.parameters[asked["Name"]] = asked["Value"]
        return {"Version": 2, "Tier": "Standard"}


def job_arn(name: str) -> str:
    return f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/{name}"
