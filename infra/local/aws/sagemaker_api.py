"""The SageMaker service: its calls on training jobs, as boto3 and Step Functions make them."""

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from infra.local.aws.control import Control, Fault
from infra.local.aws.errors import ApiError, ValidationError
from infra.local.aws.job_events import send_change
from infra.local.aws.job_life import JobLife
from infra.local.aws.request_resources import check_resources
from infra.local.aws.request_rules import check_rules
from infra.local.aws.request_shapes import check_shapes
from infra.local.aws.settings import EmulatorSettings
from infra.local.aws.training_job import TrainingJob, arn_of

Answer = dict[str, Any]
JSON = {"Content-Type": "application/x-amz-json-1.1"}
MAX_TAGS = 50
DEFAULT_PAGE_JOBS = 10


class SageMaker:
    """All training jobs of the embedded account; a name is never free again."""

    def __init__(self, settings: EmulatorSettings, control: Control) -> None:
        self._settings, self._control = settings, control
        self._lives: dict[str, JobLife] = {}
        self._lock = threading.Lock()
        self._operations: dict[str, Callable[[dict[str, Any]], Answer]] = {
            "CreateTrainingJob": self._create,
            "DescribeTrainingJob": lambda request: self._find(request).job.describe(),
            "StopTrainingJob": self._stop,
            "ListTrainingJobs": self._list,
            "AddTags": self._add_tags,
            "ListTags": lambda request: {"Tags": self._find(request).job.tags},
        }

    async def handle_request(
        self,
        _method: str,
        _path: str,
        headers: Mapping[str, str],
        body: bytes | str,
        _query: Mapping[str, Any],
    ) -> tuple[int, dict[str, str], bytes]:
        """MiniStack's way to call a service."""
        operation = headers.get("x-amz-target", "").rpartition(".")[2]
        try:
            answer = await asyncio.to_thread(self._call, operation, json.loads(body or b"{}"))
        except ApiError as error:
            return error.status, dict(JSON), json.dumps({"__type": error.code, "message": error.message}).encode()
        return 200, dict(JSON), json.dumps(answer).encode()

    def end(self, grace_seconds: float) -> None:
        """Ends every runner, all at the same time."""
        threads = [threading.Thread(target=life.end_runner, args=(grace_seconds,)) for life in self._lives.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _call(self, operation: str, request: dict[str, Any]) -> Answer:
        fault = self._control.take_fault(operation, request.get("TrainingJobName", ""))
        try:
            answer = self._answer(operation, request, fault)
        except ApiError as error:
            self._control.note_call(operation, request, error.code)
            raise
        self._control.note_call(operation, request, None)
        return answer

    def _answer(self, operation: str, request: dict[str, Any], fault: Fault | None) -> Answer:
        if operation not in self._operations:
            known = ", ".join(self._operations)
            raise ApiError("UnknownOperationException", f"the embedded AWS has no {operation}; it has {known}")
        answer = {} if fault and not fault.is_applied else self._checked(operation, request)
        if fault is not None:
            raise ApiError(fault.code, fault.message, fault.http_status)
        return answer

    def _checked(self, operation: str, request: dict[str, Any]) -> Answer:
        check_shapes(operation, request)
        return self._operations[operation](request)

    def _create(self, request: dict[str, Any]) -> Answer:
        check_rules(request)
        name = request["TrainingJobName"]
        check_resources(request, arn_of(name))
        job = TrainingJob(request, send_change)
        with self._lock:
            if name in self._lives:
                raise ApiError(
                    "ResourceInUse",
                    "Training job names must be unique within an AWS account and region, and a training job with this "
                    f"name already exists ({job.arn})",
                )
            self._lives[name] = JobLife(job, self._settings, self._control)
        (self._settings.jobs_dir / name).mkdir(parents=True)
        send_change(job.describe())
        self._lives[name].start()
        return {"TrainingJobArn": job.arn}

    def _find(self, request: dict[str, Any]) -> JobLife:
        name = request.get("TrainingJobName") or request["ResourceArn"].rpartition("/")[2]
        if name not in self._lives:
            raise ValidationError("Requested resource not found.")
        return self._lives[name]

    def _stop(self, request: dict[str, Any]) -> Answer:
        job = self._find(request).job
        if not job.request_stop() and job.has_ended:
            raise ValidationError(f"The request was rejected because the training job is in status {job.status}.")
        return {}

    def _list(self, request: dict[str, Any]) -> Answer:
        jobs = [life.job.summary() for life in list(self._lives.values())]
        jobs = [job for job in jobs if _is_listed(job, request)]
        key = {"Name": "TrainingJobName", "Status": "TrainingJobStatus"}.get(request.get("SortBy", ""), "CreationTime")
        jobs.sort(key=lambda job: job[key], reverse=request.get("SortOrder", "Descending") == "Descending")
        start = int(request.get("NextToken", "0"))
        end = start + request.get("MaxResults", DEFAULT_PAGE_JOBS)
        answer: Answer = {"TrainingJobSummaries": jobs[start:end]}
        if end < len(jobs):
            answer["NextToken"] = str(end)
        return answer

    def _add_tags(self, request: dict[str, Any]) -> Answer:
        tags = self._find(request).job.tags
        merged = {tag["Key"]: tag for tag in [*tags, *request["Tags"]]}
        if len(merged) > MAX_TAGS:
            raise ApiError("ResourceLimitExceeded", f"A resource can have at most {MAX_TAGS} tags")
        tags[:] = merged.values()
        return {"Tags": tags}


def _is_listed(job: dict[str, Any], request: dict[str, Any]) -> bool:
    times = ("CreationTime", "LastModifiedTime")
    return (
        request.get("NameContains", "") in job["TrainingJobName"]
        and request.get("StatusEquals", job["TrainingJobStatus"]) == job["TrainingJobStatus"]
        and all(request.get(f"{time}After", job[time]) <= job[time] for time in times)
        and all(request.get(f"{time}Before", job[time]) >= job[time] for time in times)
    )
