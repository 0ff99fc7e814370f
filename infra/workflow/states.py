"""States in Amazon States Language: what all tasks have in common, and short forms for the rest."""

from typing import Any

from infra.workflow.jsonata import Code, Value, expression

State = dict[str, Any]

CALL_SECONDS = 60
"""How long one call of an AWS API may take."""

READ_ATTEMPTS = 3
"""How often a call that changes nothing is repeated when it is throttled or not answered."""


def read_errors(service: str) -> tuple[str, ...]:
    """The errors after which a call that changes nothing is repeated.

    Throttling has no name of its own in most services: Step Functions calls it, as every error outside the service's
    model, by the service's general name.
    """
    names = ("ThrottlingException", f"{service}Exception", "SdkClientException")
    return (*(f"{service}.{name}" for name in names), "States.Timeout")


def task(
    resource: str,
    *,
    arguments: Any,
    next_state: str,
    retries: list[dict[str, Any]],
    catches: list[State],
    assign: dict[str, Value] | None = None,
    output: Value = None,
) -> State:
    """A call of an AWS API; without an `output` its result goes no further than the history."""
    return {
        "Type": "Task",
        "Resource": resource,
        "Arguments": arguments,
        "TimeoutSeconds": CALL_SECONDS,
        "Retry": retries,
        "Catch": catches,
        **_assigned(assign),
        "Output": {} if output is None else expression(output),
        "Next": next_state,
    }


def catch(next_state: str, failure: Value, *errors: str) -> State:
    """A way out for these errors, or for all: `$failure` says what is to be told."""
    return {
        "ErrorEquals": list(errors or ("States.ALL",)),
        **_assigned({"failure": failure}),
        "Output": {},
        "Next": next_state,
    }


def choice(*rules: State, default: str, **assign: Value) -> State:
    """The first rule that holds decides; if none does, `assign` holds for the default."""
    return {"Type": "Choice", "Choices": list(rules), **_assigned(assign), "Default": default}


def rule(condition: str, next_state: str, **assign: Value) -> State:
    """One way out of a choice, with what it assigns."""
    return {"Condition": expression(Code(condition)), **_assigned(assign), "Next": next_state}


def wait(seconds: Code, next_state: str) -> State:
    """A wait of so many seconds, which hands on what it was given."""
    return {"Type": "Wait", "Seconds": expression(seconds), "Next": next_state}


def fail(error: Value = Code("$failure.error"), cause: str = "$failure.cause") -> State:  # noqa: B008 - frozen
    """An end that shows the name of an error and a sentence."""
    shown = expression(error) if isinstance(error, Code) else error
    return {"Type": "Fail", "Error": shown, "Cause": expression(Code(cause))}


def _assigned(variables: dict[str, Value] | None) -> dict[str, Any]:
    if not variables:
        return {}
    return {"Assign": {name: expression(value) for name, value in variables.items()}}
