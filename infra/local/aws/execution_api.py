"""The calls on executions that MiniStack lacks or answers unlike Step Functions, above all RedriveExecution."""

import contextvars
import json
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ministack.core.responses import error_response_json, json_response, now_iso
from ministack.services import stepfunctions

from infra.local.aws.execution_events import REDRIVABLE, send_status
from infra.local.aws.executions import MAX_PAYLOAD_BYTES, Record, run_execution

Response = tuple[int, dict[str, str], bytes]
Handler = Callable[[str, str, dict[str, str], bytes, Mapping[str, Any]], Awaitable[Response]]

MAX_NAME_CHARACTERS = 80


def extended(handle_request: Handler) -> Handler:
    """MiniStack's Step Functions with the calls of this module before or after its own."""

    async def handle(
        method: str, path: str, headers: dict[str, str], body: bytes, query: Mapping[str, Any]
    ) -> Response:
        action = headers.get("x-amz-target", "").rpartition(".")[2]
        request = json.loads(body or b"{}") if action in ("RedriveExecution", *_BEFORE, *_AFTER) else {}
        if action == "RedriveExecution":
            return _finalized(_redrive(request))
        early = _BEFORE[action](request) if action in _BEFORE else None
        response = early or await handle_request(method, path, headers, body, query)
        return _finalized(_AFTER[action](request, response) if action in _AFTER else response)

    return handle


def _redrive(request: dict[str, Any]) -> Response:
    """Goes on at the state that did not succeed, with its input and the variables as it found them."""
    arn = request.get("executionArn", "")
    record = stepfunctions._executions.get(arn)
    if record is None:
        return _refuse("ExecutionDoesNotExist", f"Execution Does Not Exist: '{arn}'")
    if record["status"] not in REDRIVABLE:
        return _refuse("ExecutionNotRedrivable", f"Execution is {record['status']} and cannot be redriven")
    date = now_iso()
    count = record.get("redriveCount", 0) + 1
    record.update(status="RUNNING", stopDate=None, redriveCount=count, redriveDate=date, error=None, cause=None)
    details = {"executionRedrivenEventDetails": {"redriveCount": count}}
    stepfunctions._add_event(record, "ExecutionRedriven", details)
    send_status(record)
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run_execution, arn), daemon=True).start()
    return json_response({"redriveDate": date})  # type: ignore[no-any-return]


def _before_start(request: dict[str, Any]) -> Response | None:
    name, text = request.get("name", ""), request.get("input", "{}")
    if len(name) > MAX_NAME_CHARACTERS:
        return _refuse("InvalidName", f"Invalid Name: '{name}'")
    if len(text.encode()) > MAX_PAYLOAD_BYTES:
        limit = f"Member must have length less than or equal to {MAX_PAYLOAD_BYTES}"
        return _refuse("ValidationException", f"Value at 'input' failed to satisfy constraint: {limit}")
    try:
        json.loads(text)
    except ValueError as error:
        return _refuse("InvalidExecutionInput", f"Invalid State Machine Execution Input: '{error}'")
    return _same_execution(request, name, text)


def _same_execution(request: dict[str, Any], name: str, text: str) -> Response | None:
    """The running execution of the same machine, name and input, since StartExecution is idempotent there."""
    machine = request.get("stateMachineArn", "")
    wanted = (machine, name, text, "RUNNING")
    for record in stepfunctions._executions.values():
        if (record["stateMachineArn"], record["name"], record["input"], record["status"]) == wanted:
            answer = {"executionArn": record["executionArn"], "startDate": record["startDate"]}
            return json_response(answer)  # type: ignore[no-any-return]
    return None


def _after_stop(request: dict[str, Any], response: Response) -> Response:
    record = stepfunctions._executions.get(request.get("executionArn"))
    if record and record["status"] != "RUNNING" and "run" in record:
        record["run"].ended.set()
    return response


def _after_describe(request: dict[str, Any], response: Response) -> Response:
    status, headers, body = response
    record = stepfunctions._executions.get(request.get("executionArn"))
    if record is None:
        return response
    return status, headers, json.dumps({**json.loads(body), **_more(record)}).encode()


def _more(record: Record) -> dict[str, Any]:
    more: dict[str, Any] = {"redriveCount": record.get("redriveCount", 0)}
    if record.get("redriveDate"):
        more["redriveDate"] = record["redriveDate"]
    more["redriveStatus"] = "REDRIVABLE" if record["status"] in REDRIVABLE else "NOTREDRIVABLE"
    if record["status"] not in REDRIVABLE:
        more["redriveStatusReason"] = f"Execution is {record['status']} and cannot be redriven"
    return more


def _finalized(response: Response) -> Response:
    """The answer with its dates as numbers."""
    return stepfunctions._finalize_response(response)  # type: ignore[no-any-return]


def _refuse(code: str, message: str) -> Response:
    return error_response_json(code, message, 400)  # type: ignore[no-any-return]


_BEFORE: dict[str, Callable[[dict[str, Any]], Response | None]] = {"StartExecution": _before_start}
_AFTER: dict[str, Callable[[dict[str, Any], Response], Response]] = {
    "StopExecution": _after_stop,
    "DescribeExecution": _after_describe,
}
