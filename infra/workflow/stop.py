"""The second state machine: when an execution has ended without success, it stops the jobs that it may have left."""

from infra.workflow.failures import ENDED_BEFORE_JOBS, is_gone, is_transient
from infra.workflow.jsonata import Code, block, expression, literal
from infra.workflow.naming import ARM_LETTERS, ATTEMPTS_PER_RUN, name_expression, stem_expression
from infra.workflow.polling import retry, retry_seconds
from infra.workflow.settings import WorkflowSettings
from infra.workflow.states import READ_ATTEMPTS, State, choice, fail, rule, task, wait

MAX_REDRIVES_LOOKED_BACK = 4
"""An execution has one job at a time; a redrive can only go on with a job that an earlier run has left."""

MAX_CONCURRENCY = 4
MAX_WAITS = 6
MAX_SECONDS = 3600


def build_stop_definition(settings: WorkflowSettings) -> State:
    """The definition; its input is the detail of the event that an execution's status has changed.

    Nothing records which jobs an execution has: every name that one of its jobs can have is tried, and SageMaker says
    of most that there is no such job.
    """
    return {
        "Comment": "Stops the training jobs of an execution that has ended",
        "QueryLanguage": "JSONata",
        "StartAt": "NameJobs",
        "TimeoutSeconds": MAX_SECONDS,
        "States": {
            "NameJobs": {"Type": "Pass", "Output": expression(Code(_job_names(settings.name))), "Next": "WaitForCalls"},
            # A call that was under way when the execution ended may still create its job.
            "WaitForCalls": wait(Code(str(settings.retry_seconds)), "StopJobs"),
            "StopJobs": {
                "Type": "Map",
                "Items": expression(Code("$states.input")),
                "MaxConcurrency": MAX_CONCURRENCY,
                "ItemProcessor": {
                    "ProcessorConfig": {"Mode": "INLINE"},
                    "StartAt": "NameJob",
                    "States": _stop_states(settings),
                },
                "Next": "CountJobs",
            },
            "CountJobs": {
                "Type": "Pass",
                "Output": {
                    "stopped": _names_by_outcome("stopped"),
                    "num_stopped": expression(Code('$count($states.input[outcome = "stopped"])')),
                    "not_stopped": _names_by_outcome("failed"),
                },
                "Next": "IsAnyLeft",
            },
            "IsAnyLeft": choice(rule("$count($states.input.not_stopped) > 0", "JobsLeft"), default="Done"),
            "JobsLeft": fail(
                "JobsLeft",
                '"these training jobs could not be stopped and may go on: " & $join($states.input.not_stopped, ", ")'
                ' & "; stop them by hand"',
            ),
            "Done": {"Type": "Succeed"},
        },
    }


def _job_names(prefix: str) -> str:
    """Every name that a job of the execution may have had up to the redrive that has ended."""
    names = name_expression("$stem", "$letter", "$")
    return block(
        stem=stem_expression(prefix, name="$states.input.name", arn="$states.input.executionArn"),
        last="$max([0, $states.input.redriveCount])",
        first=f"$max([0, $last - {MAX_REDRIVES_LOOKED_BACK}])",
        attempts=f"[$first * {ATTEMPTS_PER_RUN} + 1 .. ($last + 1) * {ATTEMPTS_PER_RUN}]",
        names=f"{literal(list(ARM_LETTERS.values()))}.($letter := $; $attempts.({names}))",
        # An execution that ended before its first job has none.
        result=f"$states.input.error in {literal(ENDED_BEFORE_JOBS)} ? [] : $names",
    )


def _stop_states(settings: WorkflowSettings) -> dict[str, State]:
    kept = '$merge([$states.input, {"Error": $states.errorOutput.Error, "Cause": $states.errorOutput.Cause}])'
    waited = Code('{"name": $states.input.name, "num_waits": $states.input.num_waits + 1}')
    return {
        "NameJob": {
            "Type": "Pass",
            "Output": {"name": expression(Code("$states.input")), "num_waits": 0},
            "Next": "StopJob",
        },
        "StopJob": task(
            f"arn:{settings.partition}:states:::aws-sdk:sagemaker:stopTrainingJob",
            arguments={"TrainingJobName": expression(Code("$states.input.name"))},
            output=_outcome("stopped"),
            next_state="JobStopped",
            retries=retry(settings.retry_seconds, "SageMaker.ThrottlingException", max_attempts=READ_ATTEMPTS),
            catches=[{"ErrorEquals": ["States.ALL"], "Output": expression(Code(kept)), "Next": "WhyNotStopped"}],
        ),
        "WhyNotStopped": choice(
            {**rule(is_gone(), "JobStopped"), "Output": expression(_outcome("gone"))},
            {
                **rule(f"{is_transient()} and $states.input.num_waits < {MAX_WAITS}", "WaitBeforeRetry"),
                "Output": expression(waited),
            },
            default="JobNotStopped",
        ),
        "WaitBeforeRetry": wait(retry_seconds(settings.retry_seconds, "$states.input.num_waits"), "StopJob"),
        "JobNotStopped": {"Type": "Pass", "Output": expression(_outcome("failed")), "End": True},
        "JobStopped": {"Type": "Pass", "End": True},
    }


def _outcome(outcome: str) -> Code:
    return Code(f'{{"name": $states.input.name, "outcome": {literal(outcome)}}}')


def _names_by_outcome(outcome: str) -> str:
    return expression(Code(f"[$states.input[outcome = {literal(outcome)}].name]"))
