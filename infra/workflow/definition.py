"""The state machine that runs an execution: resolve the input, run the jobs of its arms one after the other, report."""

from infra.workflow import arms, failures
from infra.workflow.jobs import start_states, watch_states
from infra.workflow.jsonata import Code, expression
from infra.workflow.limits import problems
from infra.workflow.metrics import metric_definitions
from infra.workflow.naming import stem_expression
from infra.workflow.polling import retry
from infra.workflow.settings import WorkflowSettings
from infra.workflow.states import READ_ATTEMPTS, State, catch, choice, fail, read_errors, rule, task
from infra.workflow.summary import REPORT_KEY, execution_output
from infra.workflow.validation import checked_input

MAX_SECONDS = 2 * 29 * 24 * 3600
"""How long an execution may take: two arms of the 28 days that a job can, and the time around them."""


def build_definition(settings: WorkflowSettings) -> State:
    """The definition in Amazon States Language, as a value that JSON can hold; the same settings give the same."""
    return {
        "Comment": "Runs one training job, or the two that are compared, and reports what came of it",
        "QueryLanguage": "JSONata",
        "StartAt": "ResolveInput",
        "TimeoutSeconds": MAX_SECONDS,
        "States": {
            **_input_states(settings),
            **_image_states(settings),
            **start_states(settings),
            **watch_states(settings),
            **_report_states(settings),
            **{name: fail() for name in ("MissingImage", "NoHosts", "JobFailed", "Failed")},
        },
    }


def _input_states(settings: WorkflowSettings) -> dict[str, State]:
    execution = "$states.context.Execution"
    return {
        "ResolveInput": {
            "Type": "Pass",
            "Comment": "Fills in the defaults and lists what is wrong",
            "Assign": {
                "checked": expression(Code(checked_input("$states.input"))),
                "stem": expression(
                    Code(stem_expression(settings.name, name=f"{execution}.Name", arn=f"{execution}.Id"))
                ),
                # Plain values: Step Functions ends the evaluation of an expression that is about 100 levels deep, and
                # may count the parts of a list.
                "metric_definitions": metric_definitions(),
                "prices": settings.prices_usd_per_hour,
                "finished": {},
                "tried": [],
                "job": {"composition": 0},
            },
            "Output": {},
            "Next": "IsInputValid",
        },
        "IsInputValid": choice(
            rule(f"$count({problems(settings)}) = 0", "ResolveImage", run=Code("$checked.run")),
            default="RejectInput",
        ),
        "RejectInput": fail(failures.INVALID_INPUT, failures.rejected_input(problems(settings))),
    }


def _image_states(settings: WorkflowSettings) -> dict[str, State]:
    missing = ("Ecr.ImageNotFoundException", "Ecr.InvalidParameterException", "Ecr.RepositoryNotFoundException")
    return {
        "ResolveImage": task(
            f"arn:{settings.partition}:states:::aws-sdk:ssm:getParameter",
            arguments={"Name": settings.image_parameter_name},
            assign={"image": Code("$states.result.Parameter.Value"), "arms": Code(arms.arms())},
            next_state="FindImage",
            retries=retry(settings.retry_seconds, *read_errors("Ssm"), max_attempts=READ_ATTEMPTS),
            catches=[catch("Failed", failures.unexpected(f"cannot read parameter {settings.image_parameter_name}"))],
        ),
        "FindImage": task(
            f"arn:{settings.partition}:states:::aws-sdk:ecr:describeImages",
            arguments={
                "RepositoryName": settings.repository_name,
                "ImageIds": [{"ImageDigest": expression(Code('$substringAfter($image, "@")'))}],
            },
            next_state="NextArm",
            retries=retry(settings.retry_seconds, *read_errors("Ecr"), max_attempts=READ_ATTEMPTS),
            catches=[
                catch("MissingImage", failures.missing_image(settings), *missing),
                catch("Failed", failures.unexpected(f"cannot look into repository {settings.repository_name}")),
            ],
        ),
    }


def _report_states(settings: WorkflowSettings) -> dict[str, State]:
    unwritten = '{"report": null, "note": "the report could not be written: " & $states.errorOutput.Cause}'
    return {
        "Summarise": {"Type": "Pass", "Output": expression(execution_output(settings)), "Next": "PublishReport"},
        "PublishReport": task(
            f"arn:{settings.partition}:states:::aws-sdk:s3:putObject",
            arguments={
                "Bucket": settings.bucket_name,
                "Key": expression(Code(REPORT_KEY)),
                "ContentType": "application/json",
                "Body": expression(Code("$states.input")),
            },
            output=Code("$states.input"),
            next_state="Done",
            retries=retry(settings.retry_seconds, *read_errors("S3"), max_attempts=READ_ATTEMPTS),
            # The jobs have run and are paid for: their results are not lost with the copy in S3.
            catches=[
                {
                    "ErrorEquals": ["States.ALL"],
                    "Output": expression(Code(f"$merge([$states.input, {unwritten}])")),
                    "Next": "Done",
                }
            ],
        ),
        "Done": {"Type": "Succeed"},
    }
