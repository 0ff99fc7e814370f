"""An execution of a state machine from its start, or its redrive, to its end; MiniStack evaluates each state."""

import contextlib
import copy
import json
import threading
from contextvars import ContextVar
from typing import Any

from ministack.core.responses import now_iso
from ministack.services import stepfunctions

from infra.local.aws.execution_events import send_status

Record = dict[str, Any]
"""MiniStack's record of one execution, under its own keys and these: definition, roleArn, position, redriveCount,
redriveDate, run."""

MAX_PAYLOAD_BYTES = 262_144
_current: ContextVar["Run | None"] = ContextVar("current run", default=None)
_add_event = stepfunctions._add_event


class RunEnded(BaseException):
    """The execution was stopped or timed out; whatever its thread still does is nobody's any more."""


def current_run() -> "Run | None":
    """The run that the calling thread works for."""
    return _current.get()


def run_execution(arn: str) -> None:
    """Runs an execution to its end, from where its record says it stands; MiniStack calls this in a new thread."""
    record = stepfunctions._executions.get(arn)
    if record is not None:
        run = Run(record)
        _current.set(run)
        with contextlib.suppress(RunEnded):
            run.to_end()


def add_event(record: Record, kind: str, details: dict[str, Any] | None = None) -> Any:
    """Adds to the history; raises RunEnded in the thread of a run whose execution has ended meanwhile."""
    run = _current.get()
    if run is None:
        return _add_event(record, kind, details)
    with run.lock:
        run.check()
        return _add_event(record, kind, details)


def sleep(seconds: float) -> None:
    """Waits as long as a state asks for, scaled; an end of the execution wakes it and raises RunEnded."""
    scaled = seconds * stepfunctions._SFN_WAIT_SCALE
    run = _current.get()
    if run is None:
        threading.Event().wait(scaled)
    elif run.ended.wait(scaled):
        raise RunEnded


class Run:
    """One walk through the states: the first attempt of an execution or one of its redrives."""

    def __init__(self, record: Record) -> None:
        machine = stepfunctions._state_machines[record["stateMachineArn"]]
        record.setdefault("definition", machine["definition"])  # a redrive keeps the definition of the first attempt
        record.setdefault("roleArn", machine["roleArn"])
        record["run"] = self
        self.ended = threading.Event()
        self.lock = threading.Lock()
        self.role_arn: str = record["roleArn"]
        self._record = record
        self._definition = json.loads(record["definition"])
        self._context = _context(record, machine["name"], self._definition)

    def check(self) -> None:
        """Raises RunEnded if the execution is not this run's any more."""
        if self._record["status"] != "RUNNING" or self._record["run"] is not self:
            raise RunEnded

    def to_end(self) -> None:
        """Walks through the states and records how that ended."""
        timer = self._start_timer()
        try:
            self._finish("SUCCEEDED", output=json.dumps(self._walk()))
        except stepfunctions._ExecutionError as error:
            self._finish("FAILED", error=error.error, cause=error.cause)
        except Exception as error:  # noqa: BLE001 - a fault of the interpreter ends this execution, not the service
            self._finish("FAILED", error="States.Runtime", cause=repr(error))
        finally:
            timer.cancel()

    def _start_timer(self) -> threading.Timer:
        limit = self._definition.get("TimeoutSeconds", 99_999_999)
        timer = threading.Timer(min(limit, threading.TIMEOUT_MAX), self._time_out)
        timer.daemon = True
        timer.start()
        return timer

    def _time_out(self) -> None:
        with contextlib.suppress(RunEnded):
            self._finish("TIMED_OUT")

    def _finish(self, status: str, **details: str) -> None:
        kind = {"SUCCEEDED": "Succeeded", "FAILED": "Failed", "TIMED_OUT": "TimedOut"}[status]
        with self.lock:
            self.check()
            self._record.update(status=status, stopDate=now_iso(), **details)
            _add_event(self._record, f"Execution{kind}", {f"execution{kind}EventDetails": details})
        self.ended.set()
        send_status(self._record)

    def _walk(self) -> Any:
        """The output of the last state. Raises _ExecutionError."""
        position = self._record.get("position") or {
            "name": self._definition["StartAt"],
            "value": json.loads(self._record["input"]),
            "variables": {},
        }
        name, value = position["name"], position["value"]
        self._context["variables"] = copy.deepcopy(position["variables"])
        while name is not None:
            variables = copy.deepcopy(self._context["variables"])
            self._record["position"] = {"name": name, "value": value, "variables": variables}
            value, name = self._pass_through(name, value)
        return value

    def _pass_through(self, name: str, value: Any) -> tuple[Any, str | None]:
        state = self._definition["States"][name]
        kind = state["Type"]
        self._context["State"] = {"Name": name, "EnteredTime": now_iso(), "RetryCount": 0}
        entered = {"name": name, "input": json.dumps(value)}
        add_event(self._record, f"{kind}StateEntered", {"stateEnteredEventDetails": entered})
        output, following = self._evaluate(kind, state, value)
        text = json.dumps(output)
        if len(text.encode()) > MAX_PAYLOAD_BYTES:
            cause = f"The state/task '{name}' returned a result with a size exceeding the maximum number of bytes"
            raise stepfunctions._ExecutionError("States.DataLimitExceeded", cause)
        exited = {"name": name, "output": text}
        add_event(self._record, f"{kind}StateExited", {"stateExitedEventDetails": exited})
        return output, following

    def _evaluate(self, kind: str, state: dict[str, Any], value: Any) -> tuple[Any, str | None]:
        if kind == "Fail":
            raise stepfunctions._ExecutionError(*stepfunctions._fail_state_error(state, value, self._context))
        if kind == "Succeed":
            return _succeed(state, value, self._context), None
        evaluate = getattr(stepfunctions, f"_execute_{kind.lower()}")
        arguments = (self._record,) if kind in ("Task", "Parallel", "Map") else ()
        output, following = evaluate(state, value, *arguments, self._context)
        return output, following


def _succeed(state: dict[str, Any], value: Any, context: dict[str, Any]) -> Any:
    if stepfunctions._state_query_language(state, context) == "JSONata":
        return stepfunctions._apply_jsonata_output(state, value, context, default=value)
    selected = stepfunctions._apply_input_path(state, value, context)
    return stepfunctions._apply_output_path(state, selected, context)


def _context(record: Record, machine_name: str, definition: dict[str, Any]) -> dict[str, Any]:
    """What expressions see as `$states.context`, with the entries that MiniStack itself keeps in it."""
    execution = {
        "Id": record["executionArn"],
        "Input": json.loads(record["input"]),
        "Name": record["name"],
        "RoleArn": record["roleArn"],
        "StartTime": record["startDate"],
        "RedriveCount": record.get("redriveCount", 0),
    }
    if record.get("redriveDate"):
        execution["RedriveTime"] = record["redriveDate"]
    return {
        "QueryLanguage": definition.get("QueryLanguage", "JSONPath"),
        "Execution": execution,
        "StateMachine": {"Id": record["stateMachineArn"], "Name": machine_name},
    }
