"""`counterpoise wait`: watches an execution until it has ended, and ends as it did."""

from infra.client.errors import ExitCode
from infra.client.executions import Execution, describe, find_execution
from infra.client.interrupts import asking_to_stop
from infra.client.jobs import JobHistory, describe_job
from infra.client.pace import Pace, looks
from infra.client.session import Session
from infra.client.status import show


def wait(session: Session, reference: str | None, pace: Pace) -> ExitCode:
    """Wait for the execution that is meant; raises BadInput and what `wait_for` raises."""
    return wait_for(session, find_execution(session.aws, session.stack, reference), pace)


def wait_for(session: Session, execution: Execution, pace: Pace) -> ExitCode:
    """Wait for an execution and show how it ended.

    Raises:
        TimedOut, Interrupted, AwsError: the wait ended before the execution.
    """
    aws, history, arn = session.aws, JobHistory(session.aws, execution.arn), execution.arn

    def look() -> tuple[Execution, str]:
        now, names = describe(aws, arn), history.names()
        job = describe_job(aws, names[-1]) if names else None
        return now, f", {job.name}: {job.secondary_status}" if job else ""

    subject = f"execution {execution.name} still runs, and goes on,"
    with asking_to_stop(session, execution), session.screen.progress() as progress:
        for now, job_state in looks(look, pace, subject):
            progress(f"{now.name}: {now.status}{job_state}")
            if not now.is_running:
                break
    return show(session.screen, now, history.jobs())
