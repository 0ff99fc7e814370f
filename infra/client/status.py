"""`counterpoise status`: one execution and its training jobs, for people and as JSON."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.table import Table

from infra.client.errors import ExitCode
from infra.client.executions import Execution, find_execution
from infra.client.jobs import Job, jobs_of
from infra.client.screen import Screen
from infra.client.session import Session


def status(session: Session, reference: str | None) -> ExitCode:
    """Show an execution; raises BadInput and AwsError."""
    execution = find_execution(session.aws, session.stack, reference)
    return show(session.screen, execution, jobs_of(session.aws, execution.arn))


def show(screen: Screen, execution: Execution, jobs: list[Job]) -> ExitCode:
    """Show an execution with its jobs; returns what its state means for the shell."""
    screen.result(to_json(execution, jobs))
    lasted = duration(execution.started_at, execution.stopped_at or datetime.now(UTC))
    screen.show(f"{execution.name}: {execution.status}, {lasted}")
    if jobs:
        screen.show(_table(jobs))
    if execution.output:
        screen.show(*_outcome(execution.output))
    screen.show(execution.console_link)
    return exit_code(screen, execution)


def exit_code(screen: Screen, execution: Execution) -> ExitCode:
    """JOB_FAILED with its reason as a note, if the execution ended without success."""
    if execution.is_running or execution.has_succeeded:
        return ExitCode.OK
    screen.note(execution.failure)
    return ExitCode.JOB_FAILED


def to_json(execution: Execution, jobs: list[Job]) -> dict[str, Any]:
    """An execution and its jobs as --json prints them."""
    return {
        "execution_arn": execution.arn,
        "name": execution.name,
        "status": execution.status,
        "started_at": execution.started_at,
        "stopped_at": execution.stopped_at,
        "error": execution.error,
        "cause": execution.cause,
        "jobs": [asdict(job) for job in jobs],
        "output": execution.output,
        "console_link": execution.console_link,
    }


def duration(start: datetime, end: datetime) -> str:
    """The time between two moments as h:mm:ss."""
    return str(timedelta(seconds=max(int((end - start).total_seconds()), 0)))


def _table(jobs: list[Job]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("job", "arm", "status", "hosts", "billed"):
        table.add_column(heading, overflow="fold")
    for job in jobs:
        hosts = ", ".join(f"{group['instance_count']} x {group['instance_type']}" for group in job.instance_groups)
        billed = "" if job.billable_seconds is None else f"{job.billable_seconds} s"
        table.add_row(job.name, job.arm or "", f"{job.status} ({job.secondary_status})", hosts, billed)
    return table


def _outcome(output: dict[str, Any]) -> list[str]:
    """Where the model and the report of a success are."""
    arms = output.get("arms", {})
    models = [f"model ({name}): {arm['model']}" for name, arm in arms.items() if arm.get("model")]
    return models + ([f"report: {output['report']}"] if output.get("report") else [])
