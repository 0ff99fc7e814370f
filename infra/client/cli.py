"""The commands and their options, wired to the functions that do the work; nothing is decided here."""

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer

from infra.client.aws import connect
from infra.client.errors import BadInput, CommandError, ExitCode, exit_code_help
from infra.client.pace import LONGEST_JOB_SECONDS, Pace
from infra.client.screen import Screen, Streams
from infra.client.session import Session
from infra.client.stack import DEFAULT_STACK

PROJECT_ROOT = Path(__file__).resolve().parents[2]
STOP_SECONDS = 120.0  # SageMaker gives hosts as much between SIGTERM and SIGKILL

Execution: TypeAlias = Annotated[str | None, typer.Argument(help="Name or ARN; the latest if left out.")]
Input: TypeAlias = Annotated[
    str | None, typer.Option("--input", help="JSON file, - for standard input, or JSON text; the default is {}.")
]
DryRun: TypeAlias = Annotated[bool, typer.Option("--dry-run", help="Print what would be sent or run, and do nothing.")]
Timeout: TypeAlias = Annotated[float, typer.Option("--timeout", min=0, help="Longest wait, in seconds.")]
Poll: TypeAlias = Annotated[float, typer.Option("--poll", min=0.1, help="Time between two looks, in seconds.")]
EngineName: TypeAlias = Annotated[
    Literal["docker", "podman", "finch"] | None,
    typer.Option("--engine", help="Container engine; the first of these on PATH if left out."),
]

app = typer.Typer(
    name="counterpoise",
    help="Start, watch and report training jobs of the deployed stack.",
    epilog=exit_code_help(),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
image = typer.Typer(help="Build the image that jobs run, and bring it into the repository.", no_args_is_help=True)
app.add_typer(image, name="image")


def main(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit code, see errors.py."""
    try:
        return int(app(list(arguments), prog_name="counterpoise", standalone_mode=False) or ExitCode.OK)
    except typer.TyperException as error:
        message = error.format_message().rstrip(".")
        if not message:  # without a command typer has shown the help instead
            return ExitCode.USAGE
        screen = Screen(Streams.of_process(), as_json="--json" in arguments)
        return screen.fail(BadInput(f"{message}; see `counterpoise --help`"))


def _open(
    stack: Annotated[
        str, typer.Option("--stack", envvar="COUNTERPOISE_STACK", help="Name of the deployed stack.")
    ] = DEFAULT_STACK,
    profile: Annotated[str | None, typer.Option("--profile", help="Profile of the AWS configuration.")] = None,
    # boto3 reads AWS_DEFAULT_REGION by itself, but not AWS_REGION, which every other AWS tool goes by.
    region: Annotated[
        str | None, typer.Option("--region", envvar="AWS_REGION", help="AWS region of the stack.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON; text for people goes to stderr.")
    ] = False,
) -> Session:
    screen = Screen(Streams.of_process(), as_json=as_json)
    return Session(screen=screen, stack_name=stack, connect=partial(connect, profile, region))


def _command(group: typer.Typer, name: str) -> Callable[[Callable[..., ExitCode]], Callable[..., ExitCode]]:
    """Makes a function of a session a command that has the session's options beside its own."""

    def register(action: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
        own = list(inspect.signature(action).parameters.values())[1:]
        shared = list(inspect.signature(_open).parameters.values())

        def run(**values: Any) -> ExitCode:
            session = _open(**{parameter.name: values.pop(parameter.name) for parameter in shared})
            return _finish(session.screen, partial(action, session, **values))

        run.__doc__ = action.__doc__
        run.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *shared)}
        group.command(name)(run)
        return action

    return register


def _finish(screen: Screen, action: Callable[[], ExitCode]) -> ExitCode:
    """The exit code of a command, whichever way it ends."""
    try:
        code = action()
        sys.stdout.flush()
        return code
    except CommandError as error:
        return screen.fail(error)
    except KeyboardInterrupt:
        screen.note("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains at its end
        return ExitCode.NO_READER


@_command(app, "start")
def _start(
    session: Session,
    source: Input = None,
    mode: Annotated[str | None, typer.Option("--mode", help="train or compare; goes over the input.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="One setting over the input, such as training.steps=5."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the execution: the same name and input start it only once.")
    ] = None,
    is_waiting: Annotated[bool, typer.Option("--wait", help="Wait for its end, and end as it did.")] = False,
    timeout: Timeout = LONGEST_JOB_SECONDS,
    poll: Poll = 5.0,
    is_dry_run: DryRun = False,
) -> ExitCode:
    """Check the input and start an execution."""
    from infra.client.start import Wish, start

    wish = Wish(source=source, mode=mode, settings=settings or [], name=name, stdin=sys.stdin)
    pace = Pace(poll_seconds=poll, timeout_seconds=timeout) if is_waiting else None
    return start(session, wish, pace, is_dry_run=is_dry_run)


@_command(app, "status")
def _status(session: Session, execution: Execution = None) -> ExitCode:
    """Show an execution and its training jobs."""
    from infra.client.status import status

    return status(session, execution)


@_command(app, "logs")
def _logs(
    session: Session,
    execution: Execution = None,
    is_following: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the execution has ended.")] = False,
    timeout: Timeout = LONGEST_JOB_SECONDS,
    poll: Poll = 2.0,
) -> ExitCode:
    """Show what all hosts printed, merged by time, each line after its group and host; with --json a line each."""
    from infra.client.logs import logs

    return logs(session, execution, Pace(poll_seconds=poll, timeout_seconds=timeout), is_following=is_following)


@_command(app, "wait")
def _wait(
    session: Session, execution: Execution = None, timeout: Timeout = LONGEST_JOB_SECONDS, poll: Poll = 5.0
) -> ExitCode:
    """Wait until an execution has ended, and end as it did."""
    from infra.client.waiting import wait

    return wait(session, execution, Pace(poll_seconds=poll, timeout_seconds=timeout))


@_command(app, "stop")
def _stop(
    session: Session,
    execution: Execution = None,
    timeout: Timeout = STOP_SECONDS,
    poll: Poll = 2.0,
    is_dry_run: DryRun = False,
) -> ExitCode:
    """Stop an execution, and see to it that its training jobs stop."""
    from infra.client.stop import stop

    return stop(session, execution, Pace(poll_seconds=poll, timeout_seconds=timeout), is_dry_run=is_dry_run)


@_command(app, "report")
def _report(
    session: Session,
    execution: Execution = None,
    folder: Annotated[
        Path | None, typer.Option("--output", help="Folder for the files; runs/<name> if left out.")
    ] = None,
) -> ExitCode:
    """Download the report of an execution and print its Results table."""
    from infra.client.report import report

    return report(session, execution, folder)


@_command(app, "list")
def _list(
    session: Session, limit: Annotated[int, typer.Option("--limit", min=1, help="Most executions to list.")] = 20
) -> ExitCode:
    """List the executions, the latest first."""
    from infra.client.listing import list_executions

    return list_executions(session, limit)


@_command(app, "doctor")
def _doctor(session: Session, source: Input = None) -> ExitCode:
    """Check what a run needs: credentials, bootstrap, stack, image, quota, permissions; and what mends each."""
    from infra.client.doctor import doctor
    from infra.client.run_input import run_input

    return doctor(session, run_input(source, None, [], sys.stdin)[1])


@_command(image, "build")
def _build(session: Session, engine: EngineName = None, is_dry_run: DryRun = False) -> ExitCode:
    """Build the image of this checkout; needs no AWS."""
    from infra.client.engine import find_engine
    from infra.client.image_build import build_image

    return build_image(session.screen, PROJECT_ROOT, partial(find_engine, engine), is_dry_run=is_dry_run)


@_command(image, "push")
def _push(session: Session, engine: EngineName = None, is_dry_run: DryRun = False) -> ExitCode:
    """Push the image of this checkout and make it the one that jobs run; pushing it again changes nothing."""
    from infra.client.engine import find_engine
    from infra.client.image_push import push_image

    return push_image(session, PROJECT_ROOT, partial(find_engine, engine), is_dry_run=is_dry_run)
