"""`counterpoise start`: checks the input, starts an execution, and finds it again under the name it was given."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO

from infra.client.aws import Request
from infra.client.data_check import check_data
from infra.client.errors import AwsError, BadInput, ExitCode
from infra.client.executions import Execution, describe, execution_arn
from infra.client.image_pointer import check_image
from infra.client.names import execution_name, new_name
from infra.client.pace import Pace
from infra.client.run_input import run_input
from infra.client.session import Session
from infra.client.waiting import wait_for
from training.contract import ContractError, RunConfig


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the command line asks to run: see `run_input`; `name` None takes a new one."""

    source: str | None
    mode: str | None
    settings: Sequence[str]
    name: str | None
    stdin: TextIO


def start(session: Session, wish: Wish, pace: Pace | None, *, is_dry_run: bool) -> ExitCode:
    """Start an execution; with a pace also wait for its end.

    Raises:
        BadInput: the input is wrong, its data or the image is not there, or the name is that of another run.
        AwsError, TimedOut, Interrupted: see `wait_for`.
    """
    text, config = run_input(wish.source, wish.mode, wish.settings, wish.stdin)
    request = _request(session, wish.name, config.mode, text)
    check_data(session.aws, session.stack, config, session.screen)
    check_image(session.aws, session.stack)
    if is_dry_run:
        session.screen.plan([request.to_json()])
        return ExitCode.OK
    execution = _started(session, request, config)
    if pace:
        return wait_for(session, execution, pace)
    session.screen.result(
        {
            "execution_arn": execution.arn,
            "name": execution.name,
            "status": execution.status,
            "console_link": execution.console_link,
        }
    )
    session.screen.show(f"execution {execution.name}: {execution.status}", execution.console_link)
    if execution.is_running:
        session.screen.note(f"watch it: `counterpoise logs {execution.name} --follow`")
    return ExitCode.OK


def _request(session: Session, wanted: str | None, mode: str, text: str) -> Request:
    name = execution_name(wanted) if wanted else new_name(mode, datetime.now(UTC))
    if wanted and name != wanted:
        session.screen.note(f"--name: {wanted!r} is called {name} by Step Functions")
    parameters = {"stateMachineArn": session.stack.state_machine_arn, "name": name, "input": text}
    return Request(service="stepfunctions", operation="StartExecution", parameters=parameters)


def _started(session: Session, request: Request, config: RunConfig) -> Execution:
    """The execution of this name and input: a new one, or the one that was started with both before."""
    try:
        answer = session.aws.send(request)
    except AwsError as error:
        if error.code != "ExecutionAlreadyExists":
            raise
        # Also when it has ended, or when the same settings were written in another way.
        name = request.parameters["name"]
        execution = describe(session.aws, execution_arn(session.stack, name))
        if not _asks_for(execution.input, config):
            line = f"--name: {name} is an execution with another input ({execution.status.lower()}); take another name"
            raise BadInput(f"{line}, or see it: `counterpoise status {name}`") from error
        session.screen.note(f"execution {name} exists already with this input; nothing was started")
        return execution
    # Not described: Step Functions may not know it yet.
    return Execution(
        arn=answer["executionArn"],
        name=request.parameters["name"],
        status="RUNNING",
        started_at=answer["startDate"],
        input=request.parameters["input"],
    )


def _asks_for(text: str, config: RunConfig) -> bool:
    try:
        return RunConfig.parse_json(text) == config
    except ContractError:
        return False
