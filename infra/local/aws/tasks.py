"""A Task state with JSONata: its attempts, their time limit, and the Retry and Catch of Amazon States Language."""

import json
import random
from typing import Any

from ministack.core.responses import get_region
from ministack.services import stepfunctions

from infra.local.aws.executions import Record, add_event, sleep

State = dict[str, Any]
DEFAULT_TIMEOUT_SECONDS = 99_999_999
_execute_jsonpath_task = stepfunctions._execute_task


def execute_task(state: State, value: Any, record: Record, context: dict[str, Any]) -> tuple[Any, str | None]:
    """Output and next state of a Task. Raises _ExecutionError if no Retry helps and no Catch takes the error."""
    if stepfunctions._state_query_language(state, context) != "JSONata":
        output, following = _execute_jsonpath_task(state, value, record, context)
        return output, following
    num_retries: dict[int, int] = {}
    while True:
        context["State"]["RetryCount"] = sum(num_retries.values())
        try:
            return _attempt(state, value, record, context), state.get("Next")
        except stepfunctions._ExecutionError as error:
            retrier, index = stepfunctions._find_matching_retrier(state.get("Retry", []), error.error, num_retries)
            if retrier is None:
                return _catch(state, value, context, error)
            sleep(_delay_seconds(retrier, num_retries.get(index, 0)))
            num_retries[index] = num_retries.get(index, 0) + 1


def _catch(
    state: State, value: Any, context: dict[str, Any], error: stepfunctions._ExecutionError
) -> tuple[Any, str | None]:
    catcher = stepfunctions._find_matching_catcher(state.get("Catch", []), error.error)
    if catcher is None:
        raise error
    error_output = {"Error": error.error, "Cause": error.cause}
    return stepfunctions._apply_catcher(catcher, value, context, "JSONata", error_output), catcher["Next"]


def _delay_seconds(retrier: dict[str, Any], num_retries: int) -> float:
    """The wait before the next attempt, after so many retries by the same retrier."""
    delay = float(retrier.get("IntervalSeconds", 1) * retrier.get("BackoffRate", 2.0) ** num_retries)
    delay = min(delay, retrier.get("MaxDelaySeconds", delay))
    return random.uniform(0, delay) if retrier.get("JitterStrategy") == "FULL" else delay


def _attempt(state: State, value: Any, record: Record, context: dict[str, Any]) -> Any:
    service, _, action = state["Resource"].removeprefix("arn:aws:states:::").rpartition(":")
    names = {"resourceType": service, "resource": action}
    try:
        result = _call(state, value, record, context, names)
    except stepfunctions._ExecutionError as error:
        kind = "TimedOut" if error.error == "States.Timeout" else "Failed"
        details = {**names, "error": error.error, "cause": error.cause}
        add_event(record, f"Task{kind}", {f"task{kind}EventDetails": details})
        raise
    add_event(record, "TaskSucceeded", {"taskSucceededEventDetails": {**names, "output": json.dumps(result)}})
    output = stepfunctions._apply_jsonata_output(state, value, context, result=result, default=result)
    stepfunctions._apply_state_assign(state, value, context, result=result)
    return output


def _call(state: State, value: Any, record: Record, context: dict[str, Any], names: dict[str, str]) -> Any:
    arguments = stepfunctions._apply_jsonata_arguments(state, value, context)
    limit = DEFAULT_TIMEOUT_SECONDS
    if "TimeoutSeconds" in state:
        limit = stepfunctions._jsonata_state_field(state, "TimeoutSeconds", "number", value, context)
    scheduled = {**names, "region": get_region(), "parameters": json.dumps(arguments), "timeoutInSeconds": limit}
    add_event(record, "TaskScheduled", {"taskScheduledEventDetails": scheduled})
    add_event(record, "TaskStarted", {"taskStartedEventDetails": names})
    return stepfunctions._invoke_resource_with_timeout(state["Resource"], arguments, limit)
