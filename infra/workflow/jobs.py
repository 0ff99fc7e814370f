"""The states around one training job: start it, look at it until it has ended, and decide what follows."""

from infra.workflow import arms, failures
from infra.workflow.jsonata import Code, expression
from infra.workflow.polling import poll_seconds, retry, retry_seconds
from infra.workflow.request import JOB_NAME, training_job_request
from infra.workflow.settings import WorkflowSettings
from infra.workflow.states import READ_ATTEMPTS, State, catch, choice, read_errors, rule, task, wait
from infra.workflow.summary import finished_arms, observed_job

WATCH_ATTEMPTS = 12
"""How often a look at a job is repeated: with growing waits that outlasts 40 minutes without SageMaker, since giving up
on a job means to stop it."""


def start_states(settings: WorkflowSettings) -> dict[str, State]:
    """From the next arm to a job that SageMaker has taken."""
    return {
        "NextArm": choice(
            rule(arms.is_arm_left(), "StartJob", job=arms.first_job(), tried=[]),
            default="Summarise",
        ),
        "StartJob": task(
            f"arn:{settings.partition}:states:::aws-sdk:sagemaker:createTrainingJob",
            arguments=expression(Code(training_job_request(settings))),
            next_state="WaitForJob",
            # By no general name: a request that SageMaker refuses would be repeated as well. See WhyNotStarted.
            retries=retry(settings.retry_seconds, "SageMaker.ThrottlingException", max_attempts=READ_ATTEMPTS),
            catches=[{"ErrorEquals": ["States.ALL"], "Next": "WhyNotStarted"}],
        ),
        "WhyNotStarted": choice(
            rule(
                failures.is_quota(),
                "NextComposition",
                tried=Code(failures.refusal("quota", failures.without_advice("$states.input.Cause"))),
            ),
            # Perhaps this very job, whose answer was lost.
            rule(failures.is_name_taken(), "CheckJob", job=Code('$merge([$job, {"is_name_taken": true}])')),
            rule(
                f"{failures.is_transient()} and $job.num_waits < {arms.MAX_WAITS}",
                "WaitBeforeRetry",
                job=Code('$merge([$job, {"num_waits": $job.num_waits + 1}])'),
            ),
            default="Failed",
            failure=failures.refused_job(settings),
        ),
        "WaitBeforeRetry": wait(retry_seconds(settings.retry_seconds, "$job.num_waits"), "StartJob"),
        "NextComposition": choice(
            rule(
                f'$tried[-1].kind = "capacity" and $job.num_tries < {arms.MAX_TRIES} and {arms.is_attempt_left()}',
                "WaitBeforeRetry",
                job=arms.same_composition_again(),
            ),
            rule(
                f"$job.composition + 1 < {arms.NUM_COMPOSITIONS} and {arms.is_attempt_left()}",
                "StartJob",
                job=arms.next_job("($job.composition + 1)"),
            ),
            default="NoHosts",
            failure=failures.no_hosts(settings),
        ),
    }


def watch_states(settings: WorkflowSettings) -> dict[str, State]:
    """From a job that SageMaker has taken to its end."""
    age = "($millis() - $job.planned_at) / 1000"
    return {
        "WaitForJob": wait(poll_seconds(settings.poll_seconds, age), "CheckJob"),
        "CheckJob": task(
            f"arn:{settings.partition}:states:::aws-sdk:sagemaker:describeTrainingJob",
            arguments={"TrainingJobName": expression(Code(JOB_NAME))},
            output=observed_job(),
            next_state="IsJobDone",
            retries=retry(settings.retry_seconds, *read_errors("SageMaker"), max_attempts=WATCH_ATTEMPTS),
            catches=[catch("Failed", failures.unexpected("cannot look at the training job, so it is stopped"))],
        ),
        "IsJobDone": choice(
            rule(f"$not($states.input.is_ours) and {arms.is_attempt_left()}", "StartJob", job=arms.next_job()),
            rule("$not($states.input.is_ours)", "Failed", failure=failures.foreign_jobs()),
            rule('$states.input.status in ["InProgress", "Stopping"]', "WaitForJob"),
            rule('$states.input.status = "Completed"', "NextArm", finished=Code(finished_arms(settings))),
            rule(f"{arms.is_redriven()} and {arms.is_attempt_left()}", "StartJob", job=arms.next_job()),
            rule(
                failures.is_out_of_capacity(),
                "NextComposition",
                tried=Code(failures.refusal("capacity", failures.without_advice("$states.input.reason"))),
            ),
            default="JobFailed",
            failure=failures.failed_job(settings),
        ),
    }
