"""`counterpoise list`: the executions of the stack, the latest first."""

from datetime import UTC, datetime
from itertools import islice

from rich.table import Table

from infra.client.errors import ExitCode
from infra.client.session import Session
from infra.client.status import duration


def list_executions(session: Session, limit: int) -> ExitCode:
    """List at most `limit` executions; raises AwsError."""
    pages = session.aws.pages(
        "stepfunctions", "ListExecutions", stateMachineArn=session.stack.state_machine_arn, maxResults=min(limit, 1000)
    )
    found = list(islice((execution for page in pages for execution in page["executions"]), limit))
    session.screen.result(
        [
            {
                "execution_arn": execution["executionArn"],
                "name": execution["name"],
                "status": execution["status"],
                "started_at": execution["startDate"],
                "stopped_at": execution.get("stopDate"),
            }
            for execution in found
        ]
    )
    if not found:
        session.screen.note("no execution yet; start one: `counterpoise start`")
        return ExitCode.OK
    table = Table(box=None, pad_edge=False)
    for heading in ("execution", "status", "started (UTC)", "lasted"):
        table.add_column(heading, overflow="fold")
    for execution in found:
        started = execution["startDate"]
        lasted = duration(started, execution.get("stopDate") or datetime.now(UTC))
        table.add_row(execution["name"], execution["status"], f"{started.astimezone(UTC):%Y-%m-%d %H:%M}", lasted)
    session.screen.show(table)
    return ExitCode.OK
