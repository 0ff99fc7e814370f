"""What a job on AWS cannot do although the contract allows it, in JSONata, told in the same kind of sentence."""

from collections.abc import Mapping

from infra.workflow.jsonata import literal
from infra.workflow.settings import WorkflowSettings
from training.contract.relations import FILE_DATASETS

MAX_JOB_TAGS = 50  # SageMaker's limit
NUM_OWN_TAGS = 2  # counterpoise:stack and counterpoise:arm


def problems(settings: WorkflowSettings) -> str:
    """All that is wrong with the input: what the contract found, else what this stack cannot run."""
    checks = [_runtime(settings.max_runtime_limit_seconds), _tags(settings.tags), _data(), _code()]
    if settings.security.is_isolated:
        checks.append(_isolated_data())
    return f"($count($checked.problems) > 0 ? $checked.problems : [{', '.join(checks)}])"


def _runtime(limit_seconds: int) -> str:
    advice = (
        f" is over the limit of this stack; allowed: at most {limit_seconds}; lower it, or raise the limit with"
        " counterpoise:max_runtime_limit_seconds"
    )
    seconds = "$checked.run.max_runtime_seconds"
    return f'{seconds} > {limit_seconds} ? "max_runtime_seconds: " & $string({seconds}) & {literal(advice)}'


def _tags(own: Mapping[str, str]) -> str:
    advice = f" tags with those of this stack; allowed: {MAX_JOB_TAGS}; remove some"
    count = f"$count($keys($merge([$checked.run.tags, {literal(own)}]))) + {NUM_OWN_TAGS}"
    return f'{count} > {MAX_JOB_TAGS} ? "tags: " & $string({count}) & {literal(advice)}'


def _data() -> str:
    training = "$checked.run.training"
    is_read = f"{training}.dataset in {literal(FILE_DATASETS)} and {training}.data_uri = null"
    return _missing_channel(is_read, f'{training}.dataset & " reads its files"', f"{training}.channel")


def _code() -> str:
    channel = "$checked.run.training.code_channel"
    return _missing_channel(f"{channel} != null", '"Python reads the files of code_channel"', channel)


def _missing_channel(is_read: str, reading: str, channel: str) -> str:
    """On one machine a channel comes from a folder; a job on AWS would be billed until it misses it."""
    return (
        f'{is_read} and $count($checked.run.channels) = 0 ? "channels: 0 channels; " & {reading}'
        f' & " from channel " & {channel} & "; add {{\\"name\\": \\"" & {channel} & "\\", \\"s3_uri\\": \\"s3://...\\"}}"'
    )


def _isolated_data() -> str:
    advice = (
        " cannot be read under network isolation, which keeps hosts from S3; allowed: null; read a channel, or deploy"
        " with counterpoise:network_isolation=false"
    )
    uri = "$checked.run.training.data_uri"
    return f'{uri} != null ? "training.data_uri: " & {uri} & {literal(advice)}'
