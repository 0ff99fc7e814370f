"""What SageMaker refuses in a CreateTrainingJob request although every field by itself is fine."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from infra.local.aws.errors import ValidationError

Request = dict[str, Any]
MAX_RUNTIME_SECONDS = 28 * 24 * 3600
LOCAL_NVME = re.compile(r"ml\.(g4dn|g5|g6|g6e|gr6|p3dn|p4d|p4de|p5|p5e|p5en|p6-\w+|trn1|trn1n|trn2|[cmr]\d+g?i?dn?)\.")
"""Families whose volume is the instance's own disk, encrypted by its hardware."""
_SECRET = re.compile(r"(?<![A-Z0-9])(AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])|-----BEGIN [A-Z ]*PRIVATE KEY")
_SECRET_NAME = re.compile(r"(^|_)(aws_)?(secret_access_key|access_key_id|session_token)$", re.IGNORECASE)


def check_rules(request: Request) -> None:
    """Raises ValidationError for the first rule between fields that a request breaks."""
    for rule in _RULES:
        for sentence in rule(request):
            raise ValidationError(sentence)


def _algorithm(request: Request) -> Iterator[str]:
    algorithm = request.get("AlgorithmSpecification", {})
    if ("TrainingImage" in algorithm) == ("AlgorithmName" in algorithm):
        yield "You must specify exactly one of TrainingImage and AlgorithmName"
    for definition in algorithm.get("MetricDefinitions", []):
        try:
            re.compile(definition["Regex"])
        except re.error as error:
            yield f"Invalid regular expression '{definition['Regex']}' of metric {definition['Name']}: {error}"
    for name in _repeated(definition["Name"] for definition in algorithm.get("MetricDefinitions", [])):
        yield f"Metric names must be unique, and {name} is used more than once"


def _instances(request: Request) -> Iterator[str]:
    resources = request.get("ResourceConfig", {})
    groups = resources.get("InstanceGroups")
    if groups and ("InstanceType" in resources or "InstanceCount" in resources):
        yield "You can't specify InstanceType or InstanceCount together with InstanceGroups"
    if not groups and ("InstanceType" not in resources or "InstanceCount" not in resources):
        yield "ResourceConfig needs either InstanceGroups or both InstanceType and InstanceCount"
    if groups and resources.get("KeepAlivePeriodInSeconds"):
        yield "Warm pools are not supported for heterogeneous clusters: remove KeepAlivePeriodInSeconds"
    if groups and resources.get("InstancePreferences"):
        yield "InstancePreferences can't be specified together with InstanceGroups"
    if not resources.get("VolumeSizeInGB"):
        yield "VolumeSizeInGB must be at least 1"
    for name in _repeated(group["InstanceGroupName"] for group in groups or []):
        yield f"Instance group names must be unique, and {name} is used more than once"
    for group in groups or [resources]:
        if group["InstanceCount"] < 1:
            yield "InstanceCount must be at least 1"


def _volume_key(request: Request) -> Iterator[str]:
    resources = request.get("ResourceConfig", {})
    if resources.get("VolumeKmsKeyId"):
        for group in resources.get("InstanceGroups") or [resources]:
            if LOCAL_NVME.match(group["InstanceType"]):
                yield f"VolumeKmsKeyId is not supported for {group['InstanceType']}, which has local instance storage"


def _channels(request: Request) -> Iterator[str]:
    channels = request.get("InputDataConfig", [])
    for name in _repeated(channel["ChannelName"] for channel in channels):
        yield f"Channel names must be unique, and {name} is used more than once"
    assigned = {channel["ChannelName"]: _group_names(channel) for channel in channels}
    if any(assigned.values()) and not all(assigned.values()):
        without = sorted(name for name, groups in assigned.items() if not groups)
        yield f"Some channels have assigned instance groups while others have not: {', '.join(without)}"
    known = {group["InstanceGroupName"] for group in request.get("ResourceConfig", {}).get("InstanceGroups") or []}
    for name, groups in assigned.items():
        for group in sorted(set(groups) - known):
            yield f"Channel {name} is assigned to instance group {group}, which the job does not have"


def _group_names(channel: dict[str, Any]) -> list[str]:
    source: dict[str, Any] = channel["DataSource"].get("S3DataSource", {})
    return list(source.get("InstanceGroupNames", []))


def _stopping(request: Request) -> Iterator[str]:
    condition = request.get("StoppingCondition", {})
    runtime, wait = condition.get("MaxRuntimeInSeconds", 86_400), condition.get("MaxWaitTimeInSeconds")
    is_spot = request.get("EnableManagedSpotTraining", False)
    if runtime > MAX_RUNTIME_SECONDS:
        yield f"MaxRuntimeInSeconds must be at most {MAX_RUNTIME_SECONDS}"
    if wait is not None and not is_spot:
        yield "Invalid MaxWaitTimeInSeconds. It is only supported when EnableManagedSpotTraining is set to true"
    if is_spot and (wait is None or wait < runtime):
        yield (
            "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or equal to MaxRuntimeInSeconds"
            " when EnableManagedSpotTraining is set to true"
        )


def _secrets(request: Request) -> Iterator[str]:
    for field in ("HyperParameters", "Environment"):
        for key, value in request.get(field, {}).items():
            if _SECRET.search(value) or _SECRET_NAME.search(key):
                yield f"{field} must not contain security credentials: check the value of {key}"


def _tags(request: Request) -> Iterator[str]:
    keys = [tag["Key"] for tag in request.get("Tags", [])]
    for key in _repeated(keys):
        yield f"Duplicate tag key: {key}"
    if any(key.lower().startswith("aws:") for key in keys):
        yield "Tag keys must not begin with aws:"


def _not_emulated(request: Request) -> Iterator[str]:
    """What SageMaker accepts and this emulator does not do: better refused than done in another way."""
    if request.get("OutputDataConfig", {}).get("CompressionType") == "NONE":
        yield "The embedded AWS writes model.tar.gz only: leave OutputDataConfig.CompressionType out"
    for channel in request.get("InputDataConfig", []):
        name, source = channel["ChannelName"], channel["DataSource"].get("S3DataSource")
        if source is None or source["S3DataType"] != "S3Prefix":
            yield f"The embedded AWS reads channels by S3Prefix only: change the data source of channel {name}"
        elif source.get("S3DataDistributionType", "FullyReplicated") != "FullyReplicated":
            yield f"The embedded AWS gives every host all data: set channel {name} to FullyReplicated"
        elif channel.get("InputMode", "File") == "Pipe" or channel.get("CompressionType", "None") != "None":
            yield f"The embedded AWS gives files as they are: change InputMode or CompressionType of channel {name}"


def _repeated(names: Any) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


_RULES: tuple[Callable[[Request], Iterator[str]], ...] = (
    _algorithm,
    _instances,
    _volume_key,
    _channels,
    _stopping,
    _secrets,
    _tags,
    _not_emulated,
)
