"""The emulator's own endpoint for tests: faults to come, calls that were made, the credentials of a job."""

import json
import os
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from pydantic import BaseModel, ConfigDict, ValidationError

from infra.local.aws.role_session import assume

PREFIX = "/_counterpoise/"
START_OF_JOB = "StartOfJob"
"""The operation of a fault that lets a job be created and then fail before it trains."""


class Fault(BaseModel):
    """What a call answers instead of its own answer, for some of the calls on some of the jobs."""

    model_config = ConfigDict(extra="forbid", strict=True)

    operation: str
    job_name: str = ""
    """A part of the name; empty means every job."""
    code: str = "InternalFailure"
    message: str = ""
    http_status: int = 400
    skip: int = 0
    """So many matching calls pass first."""
    times: int = 1
    is_applied: bool = False
    """The call does its work and only its answer is lost."""

    def is_about(self, operation: str, job_name: str) -> bool:
        """Whether this fault concerns a call."""
        return self.operation == operation and self.job_name in job_name


class Control:
    """Faults to come and calls that were; used from every thread of the emulator."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._calls: list[dict[str, Any]] = []

    def take_fault(self, operation: str, job_name: str) -> Fault | None:
        """The fault of this call, if there is one; each call uses up one."""
        with self._lock:
            for fault in self._faults:
                if not fault.is_about(operation, job_name) or fault.times == 0:
                    continue
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                return fault
        return None

    def note_call(self, operation: str, request: Mapping[str, Any], error: str | None) -> None:
        """Keeps a call with the code of the error that it answered, if any."""
        name = request.get("TrainingJobName", "")
        with self._lock:
            self._calls.append({"operation": operation, "job_name": name, "error": error, "request": request})

    def answer(self, method: str, path: str, query: str, body: bytes) -> tuple[int, Any]:
        """Status and JSON answer of a request to this endpoint."""
        name = path.removeprefix(PREFIX)
        if (method, name) == ("GET", "health"):
            return 200, {"pid": os.getpid()}
        if (method, name) == ("GET", "calls"):
            return 200, self._calls_of(parse_qs(query))
        if (method, name) == ("POST", "sessions"):
            wish = json.loads(body)
            return 200, assume(wish["role_arn"], wish["job_name"])
        if (method, name) == ("POST", "faults"):
            try:
                fault = Fault.model_validate_json(body)
            except ValidationError as error:
                return 400, {"message": str(error)}
            with self._lock:
                self._faults.append(fault)
            return 200, {}
        return 404, {"message": f"{method} {path} is not known; there are health, calls, faults and sessions"}

    def _calls_of(self, query: Mapping[str, list[str]]) -> list[dict[str, Any]]:
        operation, name = query.get("operation", [""])[0], query.get("job_name", [""])[0]
        with self._lock:
            return [
                call for call in self._calls if call["operation"].startswith(operation) and name in call["job_name"]
            ]


def to_body(answer: Any) -> bytes:
    """JSON as bytes."""
    return json.dumps(answer, default=str).encode()
