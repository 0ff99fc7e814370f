"""An interpreter of Amazon States Language with JSONata for tests: no waiting, no network, a clock of its own."""

import hashlib
import json
import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any

import jsonata

Json = Any
Service = Callable[[str, Json], Json]
EXECUTION_ARN = "arn:aws:states:us-east-1:123456789012:execution:counterpoise:"
MAX_STATE_BYTES = 262_144
MAX_EVENTS = 25_000
EVENTS_OF_TASK = 5  # entered, scheduled, started, succeeded, exited
EVENTS_OF_ATTEMPT = 3  # scheduled, started, failed
EVENTS_OF_STATE = 2  # entered, exited


class ServiceError(Exception):
    """What a service integration answers instead of a result."""

    def __init__(self, error: str, cause: str) -> None:
        super().__init__(error, cause)
        self.error, self.cause = error, cause


class Aborted(Exception):
    """A service raises it to stop the execution at this call, as StopExecution does."""


@dataclass
class Clock:
    """The time of one execution, in milliseconds since 1970; waits move it on."""

    now: int = 1_796_000_000_000

    @property
    def text(self) -> str:
        moment = datetime.fromtimestamp(self.now / 1000, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass
class Ended:
    """How an execution ended."""

    status: str = "RUNNING"
    output: Json = None
    error: str = ""
    cause: str = ""
    num_events: int = 1  # ExecutionStarted
    path: list[str] = field(default_factory=list)
    waits_seconds: list[int] = field(default_factory=list)
    position: Json = None


def evaluate(text: str, bindings: dict[str, Json], clock: Clock | None = None) -> Json:
    """The value of a JSONata expression; raises ServiceError, as Step Functions does, where there is none."""
    clock = clock or Clock()
    compiled = compile_expression(text)
    compiled.register_lambda("millis", lambda: clock.now)
    null = jsonata.utils.Utils.NULL_VALUE
    values = {name: null if value is None else value for name, value in bindings.items()}
    try:
        value = compiled.evaluate(None, values)
    except jsonata.JException as error:
        raise ServiceError("States.QueryEvaluationError", f"{error} in {text}") from error
    if value is None and not compile_expression(f"$exists(({text}))").evaluate(None, values):
        raise ServiceError("States.QueryEvaluationError", f"no value: {text}")
    return value


@cache
def compile_expression(text: str) -> jsonata.Jsonata:
    """The expression with the functions that Step Functions adds to JSONata."""
    compiled = jsonata.Jsonata.jsonata(text)
    compiled.register_lambda("hash", lambda text, _algorithm: hashlib.sha256(text.encode()).hexdigest())
    compiled.register_lambda("random", random.random)
    return compiled


def resolve(template: Json, bindings: dict[str, Json], clock: Clock) -> Json:
    """A field of a state, with every expression in it replaced by its value."""
    if isinstance(template, dict):
        return {key: resolve(value, bindings, clock) for key, value in template.items()}
    if isinstance(template, list):
        return [resolve(value, bindings, clock) for value in template]
    if isinstance(template, str) and template.startswith("{%") and template.endswith("%}"):
        return evaluate(template[2:-2].strip(), bindings, clock)
    return template


class Machine:
    """One state machine; `service` answers the calls of its tasks, by resource."""

    def __init__(self, definition: Json, service: Service, clock: Clock | None = None) -> None:
        self.definition, self.service, self.clock = definition, service, clock or Clock()

    def run(self, value: Json, name: str = "run-1", *, redrive: Ended | None = None, num_redrives: int = 0) -> Ended:
        """One execution to its end; with `redrive`, the execution that ended so goes on where it was."""
        context = {
            "Execution": {
                "Id": EXECUTION_ARN + name,
                "Name": name,
                "Input": value,
                "StartTime": self.clock.text,
                "RedriveCount": num_redrives,
            }
        }
        run = _Run(self, context, Ended())
        start = redrive.position if redrive else (self.definition["StartAt"], value, {})
        try:
            run.ended.output = run.walk(self.definition, *deepcopy(start))
            run.ended.status = "SUCCEEDED"
        except ServiceError as error:
            run.ended.status, run.ended.error, run.ended.cause = "FAILED", error.error, error.cause
        except Aborted:
            run.ended.status = "ABORTED"
        run.ended.num_events += 1
        return run.ended


@dataclass
class _Run:
    machine: Machine
    context: Json
    ended: Ended

    def walk(self, scope: Json, name: str, value: Json, variables: dict[str, Json]) -> Json:
        while True:
            state = scope["States"][name]
            if scope is self.machine.definition:
                self.ended.position = (name, value, deepcopy(variables))
            self.ended.path.append(name)
            self.ended.num_events += EVENTS_OF_STATE
            assert self.ended.num_events <= MAX_EVENTS, "the history is full"
            value, following = getattr(self, f"_{state['Type'].lower()}")(state, value, variables)
            assert len(json.dumps(value)) <= MAX_STATE_BYTES
            if following is None:
                return value
            name = following

    def _leave(self, field: Json, default: Json, variables: dict[str, Json], **more: Json) -> Json:
        """The output of a state, once what it assigns is known: every expression sees the old values."""
        bindings = {**variables, "states": {"context": self.context, **more}}
        output = resolve(field["Output"], bindings, self.machine.clock) if "Output" in field else default
        variables.update(resolve(field.get("Assign", {}), bindings, self.machine.clock))
        return output

    def _pass(self, state: Json, value: Json, variables: dict[str, Json]) -> tuple[Json, str | None]:
        return self._leave(state, value, variables, input=value), state.get("Next")

    def _succeed(self, state: Json, value: Json, variables: dict[str, Json]) -> tuple[Json, None]:
        return self._leave(state, value, variables, input=value), None

    def _fail(self, state: Json, value: Json, variables: dict[str, Json]) -> tuple[Json, str]:
        bindings = {**variables, "states": {"context": self.context, "input": value}}
        error, cause = (resolve(state[key], bindings, self.machine.clock) for key in ("Error", "Cause"))
        raise ServiceError(error, cause)

    def _wait(self, state: Json, value: Json, variables: dict[str, Json]) -> tuple[Json, str]:
        bindings = {**variables, "states": {"context": self.context, "input": value}}
        seconds = resolve(state["Seconds"], bindings, self.machine.clock)
        assert int(seconds) == seconds >= 0
        self.ended.waits_seconds.append(int(seconds))
        self.machine.clock.now += int(seconds) * 1000
        return self._leave(state, value, variables, input=value), state["Next"]

    def _choice(self, state: Json, value: Json, variables: dict[str, Json]) -> tuple[Json, str]:
        bindings = {**variables, "states": {"context": self.context, "input": value}}
        for rule in state["Choices"]:
            condition = resolve(rule["Condition"], bindings, self.machine.clock)
            assert isinstance(condition, bool), rule["Condition"]
            if condition:
                return self._leave(rule, value, variables, input=value), rule["Next"]
        return self._leave(state, value, variables, input=value), state["Default"]

    def _map(self, state: Json, value: Json, variables: dict[str, Json]) -> tuple[Json, str]:
        bindings = {**variables, "states": {"context": self.context, "input": value}}
        items, inner = resolve(state["Items"], bindings, self.machine.clock), state["ItemProcessor"]
        return [self.walk(inner, inner["StartAt"], item, dict(variables)) for item in items], state["Next"]

    def _task(self, state: Json, value: Json, variables: dict[str, Json]) -> tuple[Json, str]:
        bindings = {**variables, "states": {"context": self.context, "input": value}}
        retries: dict[int, int] = {}
        self.ended.num_events += EVENTS_OF_TASK - EVENTS_OF_STATE
        while True:
            try:
                arguments = resolve(state["Arguments"], bindings, self.machine.clock)
                result = self.machine.service(state["Resource"].rpartition("aws-sdk:")[2], arguments)
                return self._leave(state, result, variables, input=value, result=result), state["Next"]
            except ServiceError as error:
                if not self._is_retried(state, error, retries):
                    return self._catch(state, error, value, variables)
                self.ended.num_events += EVENTS_OF_ATTEMPT

    def _is_retried(self, state: Json, error: ServiceError, retries: dict[int, int]) -> bool:
        for index, retrier in enumerate(state["Retry"]):
            if error.error in retrier["ErrorEquals"] or "States.ALL" in retrier["ErrorEquals"]:
                delay = retrier["IntervalSeconds"] * retrier["BackoffRate"] ** retries.get(index, 0)
                retries[index] = retries.get(index, 0) + 1
                self.machine.clock.now += int(min(delay, retrier["MaxDelaySeconds"]) * 1000)
                return bool(retries[index] <= retrier["MaxAttempts"])
        return False

    def _catch(self, state: Json, error: ServiceError, value: Json, variables: dict[str, Json]) -> tuple[Json, str]:
        told = {"Error": error.error, "Cause": error.cause}
        for catcher in state["Catch"]:
            if error.error in catcher["ErrorEquals"] or "States.ALL" in catcher["ErrorEquals"]:
                return self._leave(catcher, told, variables, input=value, errorOutput=told), catcher["Next"]
        raise error
