"""A training job as SageMaker describes it: its request, its states with their times, and what it came to."""

import threading
import time
from collections.abc import Callable
from typing import Any

from infra.local.aws.settings import ACCOUNT, REGION

MAX_REASON_CHARACTERS = 1024
_ENDED = ("Completed", "Failed", "Stopped")
_SUMMARY = (
    "TrainingJobName",
    "TrainingJobArn",
    "CreationTime",
    "TrainingEndTime",
    "LastModifiedTime",
    "TrainingJobStatus",
    "SecondaryStatus",
)
_MESSAGES = {
    "Starting": "Starting the training job",
    "Downloading": "Downloading input data",
    "Training": "Training image download completed. Training in progress.",
    "Uploading": "Uploading generated training model",
    "Completed": "Training job completed",
    "Failed": "Training job failed",
    "Stopping": "Stopping the training job",
    "Stopped": "Training job stopped",
    "MaxRuntimeExceeded": "Training job runtime exceeded MaxRuntimeInSeconds provided",
}


def arn_of(job_name: str) -> str:
    """The ARN of a training job of the embedded account."""
    return f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/{job_name}"


class TrainingJob:
    """One job from its creation on; every method may be called from any thread."""

    def __init__(self, request: dict[str, Any], on_change: Callable[[dict[str, Any]], None]) -> None:
        self.request = request
        self.name: str = request["TrainingJobName"]
        self.arn = arn_of(self.name)
        self.tags: list[dict[str, str]] = list(request.get("Tags", []))
        self.stop_requested = threading.Event()
        self._on_change = on_change
        self._lock = threading.RLock()
        now = time.time()
        self._description: dict[str, Any] = {
            **{key: value for key, value in request.items() if key != "Tags"},
            "TrainingJobArn": self.arn,
            "ModelArtifacts": {"S3ModelArtifacts": f"{self.output_uri}/output/model.tar.gz"},
            "TrainingJobStatus": "InProgress",
            "SecondaryStatus": "Starting",
            "SecondaryStatusTransitions": [_transition("Starting", now)],
            "CreationTime": now,
            "LastModifiedTime": now,
        }

    @property
    def output_uri(self) -> str:
        """Where everything of this job lies, without a slash at the end."""
        prefix: str = self.request["OutputDataConfig"]["S3OutputPath"]
        return f"{prefix.rstrip('/')}/{self.name}"

    @property
    def status(self) -> str:
        """TrainingJobStatus."""
        with self._lock:
            return str(self._description["TrainingJobStatus"])

    def describe(self) -> dict[str, Any]:
        """The answer of DescribeTrainingJob."""
        with self._lock:
            transitions = [dict(transition) for transition in self._description["SecondaryStatusTransitions"]]
            return {**self._description, "SecondaryStatusTransitions": transitions}

    def summary(self) -> dict[str, Any]:
        """The job in the answer of ListTrainingJobs."""
        with self._lock:
            return {key: self._description[key] for key in _SUMMARY if key in self._description}

    def enter(self, secondary: str) -> None:
        """Takes the next state of a job in progress; while it is being stopped, it stays in Stopping."""
        with self._lock:
            if self.status != "InProgress":
                return
            now = self._move(secondary)
            if secondary == "Training":
                self._description["TrainingStartTime"] = now
        self._on_change(self.describe())

    def request_stop(self) -> bool:
        """Begins to stop the job; False if it has ended before or is being stopped."""
        with self._lock:
            if self.status != "InProgress":
                return False
            self._description["TrainingJobStatus"] = "Stopping"
            self._move("Stopping")
        self.stop_requested.set()
        self._on_change(self.describe())
        return True

    def end(self, status: str, secondary: str, failure_reason: str | None = None) -> None:
        """Enters the last state, with the times that are billed."""
        with self._lock:
            now = self._move(secondary)
            description = self._description
            description["TrainingJobStatus"] = status
            description["TrainingEndTime"] = now
            description["SecondaryStatusTransitions"][-1]["EndTime"] = now
            if failure_reason is not None:
                description["FailureReason"] = failure_reason[:MAX_REASON_CHARACTERS]
            if "TrainingStartTime" in description:
                seconds = max(1, round(now - description["TrainingStartTime"]))
                description.update(TrainingTimeInSeconds=seconds, BillableTimeInSeconds=seconds)
        self._on_change(self.describe())

    def set_metrics(self, metrics: list[dict[str, Any]]) -> None:
        """Sets FinalMetricDataList."""
        with self._lock:
            self._description["FinalMetricDataList"] = metrics

    @property
    def has_ended(self) -> bool:
        """Whether the job is in its last state."""
        return self.status in _ENDED

    def _move(self, secondary: str) -> float:
        now = time.time()
        transitions = self._description["SecondaryStatusTransitions"]
        transitions[-1]["EndTime"] = now
        transitions.append(_transition(secondary, now))
        self._description.update(SecondaryStatus=secondary, LastModifiedTime=now)
        return now


def _transition(secondary: str, now: float) -> dict[str, Any]:
    return {"Status": secondary, "StartTime": now, "StatusMessage": _MESSAGES[secondary]}
