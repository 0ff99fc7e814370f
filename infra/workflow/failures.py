"""What can go wrong, in JSONata: which kind of error it is, and the one sentence that a person reads about it."""

from infra.workflow.jsonata import Code, Value, literal
from infra.workflow.request import JOB_NAME
from infra.workflow.settings import WorkflowSettings

# Step Functions names an error after the class of AWS's Java SDK. Whatever is not in SageMaker's model, throttling and
# a malformed request alike, is SageMaker.SageMakerException; only the text tells which. The optimised integrations say
# SageMaker.AmazonSageMakerException and add the code to the text. Name and text are searched together.
_ERROR_TEXT = '($states.input.Error & ": " & $states.input.Cause)'
_QUOTA = "/ResourceLimitExceeded|service limit/"
_NAME_TAKEN = "/ResourceInUse|already exists|must be unique/"
_TRANSIENT = (
    "/Throttl|Rate exceeded|TooManyRequests|Too Many Requests|SdkClientException|States\\.Timeout"
    "|Internal(Failure|Server)|ServiceUnavailable|Status Code: 5[0-9][0-9]/"
)
_GONE = "/ResourceNotFound|not found|in status|Could not find/"
_NO_CAPACITY = "/^CapacityError|[Ii]nsufficient capacity|not enough capacity/"
_ABOUT_DATA = "/S3|s3:|[Bb]ucket/"

INVALID_INPUT, IMAGE_MISSING = "InvalidInput", "ImageMissing"
ENDED_BEFORE_JOBS = (INVALID_INPUT, IMAGE_MISSING)
"""The errors of executions that have asked for no job."""

MAX_CAUSE_CHARACTERS = 32_000  # Step Functions takes 32,768


def is_quota() -> str:
    """Whether the error of a state's input is a quota that is used up."""
    return f"$contains({_ERROR_TEXT}, {_QUOTA})"


def is_name_taken() -> str:
    """Whether the error of a state's input is a job of this name that exists already."""
    return f"$contains({_ERROR_TEXT}, {_NAME_TAKEN})"


def is_transient() -> str:
    """Whether the error of a state's input goes away: throttling, a lost answer, a fault of the service."""
    return f"$contains({_ERROR_TEXT}, {_TRANSIENT})"


def is_gone() -> str:
    """Whether a job could not be stopped because it has ended, or never was."""
    return f"$contains({_ERROR_TEXT}, {_GONE})"


def is_out_of_capacity() -> str:
    """Whether the job in a state's input failed because AWS had no hosts for it."""
    return f'$states.input.status = "Failed" and $contains($states.input.reason, {_NO_CAPACITY})'


def first_line(text: str) -> str:
    """The first line of a text that may be missing."""
    return f'$substringBefore($string({text}), "\\n")'


def log_link(settings: WorkflowSettings) -> str:
    """The page with the logs of all hosts of the current job."""
    page = (
        f"https://{settings.region}.console.aws.amazon.com/cloudwatch/home?region={settings.region}"
        "#logsV2:log-groups/log-group/$252Faws$252Fsagemaker$252FTrainingJobs$3FlogStreamNameFilter$3D"
    )
    return f"{literal(page)} & {JOB_NAME}"


def hosts() -> str:
    """The current composition: `1 x ml.g5.xlarge + 1 x ml.c5.4xlarge`."""
    return '$join([$job.groups.($string(instance_count) & " x " & instance_type)], " + ")'


def refusal(kind: str, reason: str) -> str:
    """`$tried` with the current composition and why AWS had no hosts for it."""
    return f'$append($tried, [{{"kind": {literal(kind)}, "what": {hosts()} & ": " & {reason}}}])'


def failure(error: str, *sentence: str) -> Value:
    """What a Fail state shows: the error's name, and a sentence made of expressions."""
    return {"error": error, "cause": Code(" & ".join(sentence))}


def without_advice(text: str) -> str:
    """What SageMaker says in the first line of a text, up to its advice: a quota's name stays, what to do is ours."""
    return f'$substringBefore({first_line(text)}, ". Please")'


def rejected_input(problems: str) -> str:
    """All problems of the input, one a line."""
    return f'$substring($join({problems}, "\\n"), 0, {MAX_CAUSE_CHARACTERS})'


def foreign_jobs() -> Value:
    """Jobs of another execution have all the names that this one could use."""
    return failure(
        "JobRefused",
        literal("jobs of an earlier execution of the same name have all names that are left; start with another name"),
    )


def missing_image(settings: WorkflowSettings) -> Value:
    """No image has been pushed, or the one that the parameter names is gone."""
    place = f"the repository {settings.repository_uri}"
    return failure(
        IMAGE_MISSING,
        f'($contains($image, "@") ? "image: " & $image & {literal(f" is not in {place}")}'
        f" : {literal(f'image: none has been pushed to {place}')})",
        literal("; build and push one with: counterpoise image build && counterpoise image push"),
    )


def no_hosts(settings: WorkflowSettings) -> Value:
    """Every composition was refused: which were tried, in order, why, and where to ask for more."""
    quotas = f"https://{settings.region}.console.aws.amazon.com/servicequotas/home/services/sagemaker/quotas"
    ask = f"ask for a higher quota of that name at {quotas}, or name other types in fallback_instance_groups"
    listed = '[$map($tried, function($one, $index) { "(" & $string($index + 1) & ") " & $one.what })]'
    return {
        "error": Code('$tried[-1].kind = "quota" ? "QuotaExceeded" : "NoCapacity"'),
        "cause": Code(
            f'"AWS has no hosts for arm " & $job.arm & "; tried in this order: " & $join({listed}, "; ") & "; "'
            f' & ("quota" in $tried.kind ? {literal(ask)}'
            ' : "start again later, or name other types in fallback_instance_groups")'
        ),
    }


def refused_job(settings: WorkflowSettings) -> Value:
    """SageMaker did not take the request, or never answered."""
    text = first_line("$states.input.Cause")
    return failure(
        "JobRefused", '"SageMaker did not start training job "', JOB_NAME, '": "', text, _data_hint(settings, text)
    )


def failed_job(settings: WorkflowSettings) -> Value:
    """The job ended without success: how, why, and where its logs are."""
    limit = (
        '$states.input.secondary_status = "MaxRuntimeExceeded"'
        ' ? "was stopped after max_runtime_seconds = " & $string($run.max_runtime_seconds) & "; raise it"'
    )
    wait = (
        '$states.input.secondary_status = "MaxWaitTimeExceeded"'
        ' ? "was stopped after max_wait_seconds = " & $string($run.max_wait_seconds) & "; raise it"'
    )
    reason = f"{first_line('$states.input.reason')} & {_data_hint(settings, '$states.input.reason')}"
    ended = f'($states.input.status = "Failed" ? "failed: " & {reason} : {limit} : {wait} : "was stopped by a user")'
    name = (
        '$states.input.status = "Failed" ? "JobFailed"'
        ' : $states.input.secondary_status in ["MaxRuntimeExceeded", "MaxWaitTimeExceeded"] ? "JobTimedOut"'
        ' : "JobStopped"'
    )
    cause = f'"training job " & {JOB_NAME} & " " & {ended} & "; logs: " & {log_link(settings)}'
    return {"error": Code(name), "cause": Code(cause)}


def unexpected(what: str) -> Value:
    """An error that no other sentence fits: what was being done, and what AWS said."""
    text = first_line("$states.errorOutput.Cause")
    return {"error": Code("$states.errorOutput.Error"), "cause": Code(f"{literal(what + ': ')} & {text}")}


def _data_hint(settings: WorkflowSettings, text: str) -> str:
    """Where the job reads from and as whom, if an error is about S3: only AWS knows whether it may."""
    role = literal(f", read by role {settings.training_role_arn}; counterpoise:input_s3_uris says what it may read")
    return (
        f"($contains($string({text}), {_ABOUT_DATA}) and $count($run.channels) > 0"
        f' ? "; inputs: " & $join([$run.channels.s3_uri], ", ") & {role} : "")'
    )
