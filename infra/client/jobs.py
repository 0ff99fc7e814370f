"""The training jobs of an execution: their names from its history, their state from SageMaker."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from infra.client.aws import Aws

ENDED = ("Completed", "Failed", "Stopped")
NEW_EVENTS, ALL_EVENTS = 20, 1000  # of the history in one page; 1,000 is the most there is
_ARMS = {"t": "train", "b": "baseline", "h": "heterogeneous"}
_NAME_END = re.compile(r"-([a-z])(\d+)$")  # arm and attempt, as the workflow names its jobs


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training job as SageMaker describes it; `arm` and `attempt` are read from its name."""

    name: str
    arm: str | None
    attempt: int | None
    status: str
    secondary_status: str
    failure_reason: str | None
    created_at: datetime
    billable_seconds: int | None
    instance_groups: list[dict[str, Any]]
    model: str | None

    @property
    def has_ended(self) -> bool:
        """Whether its hosts are gone."""
        return self.status in ENDED

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop and still has hosts."""
        return self.status == "Stopping"


class JobHistory:
    """The names of the jobs of one execution, in the order of their creation; reads only what is new each time."""

    def __init__(self, aws: Aws, execution_arn: str) -> None:
        self._aws = aws
        self._execution_arn = execution_arn
        self._last_event_id = 0
        self._names: dict[str, None] = {}

    def names(self) -> list[str]:
        """The jobs that exist by now. Raises AwsError."""
        new = self._new_events()
        self._last_event_id = max((event["id"] for event in new), default=self._last_event_id)
        for event in sorted(new, key=lambda event: int(event["id"])):
            name = _job_in(event)
            if name:
                self._names.setdefault(name)
        return list(self._names)

    def jobs(self) -> list[Job]:
        """The same jobs as they are now. Raises AwsError."""
        return [describe_job(self._aws, name) for name in self.names()]

    def _new_events(self) -> list[dict[str, Any]]:
        """From the latest event backwards to the last one seen, so that a long history is read only once."""
        events: list[dict[str, Any]] = []
        pages = self._aws.pages(
            "stepfunctions",
            "GetExecutionHistory",
            executionArn=self._execution_arn,
            reverseOrder=True,
            # Two looks are seconds apart, in which few events happen; before the first look there were all the others.
            maxResults=NEW_EVENTS if self._last_event_id else ALL_EVENTS,
        )
        for page in pages:
            new = [event for event in page["events"] if event["id"] > self._last_event_id]
            events += new
            if len(new) < len(page["events"]):
                break
        return events


def _job_in(event: Mapping[str, Any]) -> str | None:
    """The job that a finished task created or described: a task that failed may have created none."""
    details = event.get("taskSucceededEventDetails", {})
    output = details.get("output", "")
    if "TrainingJobArn" not in output:
        return None
    try:
        arn = json.loads(output).get("TrainingJobArn", "")
    except (ValueError, AttributeError):
        return None
    return str(arn).rpartition(":training-job/")[2] or None


def describe_job(aws: Aws, name: str) -> Job:
    """The job as it is now; raises AwsError."""
    answer = aws.call("sagemaker", "DescribeTrainingJob", TrainingJobName=name)
    end = _NAME_END.search(name)
    groups = answer.get("ResourceConfig", {}).get("InstanceGroups", [])
    return Job(
        name=name,
        arm=_ARMS.get(end[1]) if end else None,
        attempt=int(end[2]) if end else None,
        status=answer["TrainingJobStatus"],
        secondary_status=answer.get("SecondaryStatus", ""),
        failure_reason=answer.get("FailureReason"),
        created_at=answer["CreationTime"],
        billable_seconds=answer.get("BillableTimeInSeconds"),
        instance_groups=[
            {
                "name": group["InstanceGroupName"],
                "instance_type": group["InstanceType"],
                "instance_count": group["InstanceCount"],
            }
            for group in groups
        ],
        model=answer.get("ModelArtifacts", {}).get("S3ModelArtifacts"),
    )


def jobs_of(aws: Aws, execution_arn: str) -> list[Job]:
    """Every job of an execution, in the order of their creation; raises AwsError."""
    return JobHistory(aws, execution_arn).jobs()
