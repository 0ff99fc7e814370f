"""`counterpoise stop`: ends an execution, and sees to it that its training jobs end too."""

from infra.client.aws import Aws, Request
from infra.client.errors import ExitCode, TimedOut
from infra.client.executions import Execution, describe, find_execution
from infra.client.jobs import Job, JobHistory
from infra.client.pace import Pace, looks
from infra.client.session import Session
from infra.client.status import to_json


def stop(session: Session, reference: str | None, pace: Pace, *, is_dry_run: bool) -> ExitCode:
    """Stop an execution and wait until SageMaker is stopping its jobs, which the stack's rule tells it to.

    Raises:
        BadInput: there is no such execution.
        TimedOut: a job still runs.
        AwsError: AWS refused.
    """
    aws, screen = session.aws, session.screen
    execution = find_execution(aws, session.stack, reference)
    request = stop_request(execution)
    if is_dry_run:
        screen.plan([request.to_json()])
        return ExitCode.OK
    if execution.is_running:
        aws.send(request)
    else:
        screen.note(f"{execution.name} had ended before: {execution.status}")
    jobs = _jobs_when_stopped(aws, execution, pace)
    execution = describe(aws, execution.arn)
    screen.result(to_json(execution, jobs))
    screen.show(f"{execution.name}: {execution.status}", *(f"{job.name}: {job.status}" for job in jobs))
    return ExitCode.OK


def stop_request(execution: Execution) -> Request:
    """What stops an execution; Step Functions shows error and cause in its history."""
    parameters = {"executionArn": execution.arn, "error": "Stopped", "cause": "stopped with `counterpoise stop`"}
    return Request(service="stepfunctions", operation="StopExecution", parameters=parameters)


def _jobs_when_stopped(aws: Aws, execution: Execution, pace: Pace) -> list[Job]:
    running: list[str] = []
    subject = f"SageMaker has not stopped the job of execution {execution.name}"
    try:
        for jobs in looks(JobHistory(aws, execution.arn).jobs, pace, subject):
            running = [job.name for job in jobs if not (job.has_ended or job.is_stopping)]
            if not running:
                break
    except TimedOut as error:
        commands = [f"`aws sagemaker stop-training-job --training-job-name {name}`" for name in running]
        raise TimedOut(f"{error}; stop it: {'; '.join(commands) or '`counterpoise stop` again'}") from error
    return jobs
