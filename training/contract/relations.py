"""What can be wrong between settings of a run that are each fine by themselves, and with its tags."""

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from training.contract.instance_types import INSTANCE_TYPES, instance_type_has_accelerator
from training.contract.sentences import (
    NO_ACCELERATOR,
    NOT_A_CHANNEL,
    NOT_A_GROUP,
    ONLY_ACCELERATORS,
    SOME_NAME_GROUPS,
    SPOT_WITHOUT_CHECKPOINTS,
    SPOT_WITHOUT_WAIT,
    TAG_KEY_FORM,
    TAG_VALUE_ALLOWED,
    USED_BY_TWO,
    WAIT_TOO_SHORT,
    WAIT_WITHOUT_SPOT,
    WRONG_FORM,
    WRONG_KIND,
)
from training.contract.values import SECRET_ADVICE, Finding, Location, looks_secret, show_key, show_keys, show_value

LONGEST_JOB_SECONDS = 2_419_200  # 28 days
DEFAULT_RUNTIME_SECONDS = 3600
MAX_GROUPS = 5  # what SageMaker takes in one heterogeneous training job
MAX_FALLBACKS = 5
MAX_CHANNELS = 20
MAX_TAGS = 40  # of the 50 that a job may have
DEFAULT_CHANNEL = "training"
FILE_DATASETS = ("image_folder", "parquet")
THIS_RUN = "this run"
_TAG_CHARACTER = r"[^\x00-\x1f\x7f!\"#$%&'()*,;<>?\[\\\]^`{|}~]"  # AWS: letters of any script
TAG_KEY_PATTERN = f"^{_TAG_CHARACTER}{{1,128}}$"
TAG_VALUE_PATTERN = f"^{_TAG_CHARACTER}{{0,256}}$"
RESERVED_TAG_KEY_PATTERN = r"^[aA][wW][sS]:"


def run_relations(raw: Mapping[str, Any]) -> list[Finding]:
    """Everything that is wrong between the values of a run; `raw` may hold any JSON."""
    return list(
        chain(_groups(raw), _head_group(raw), _channels(raw), _used_channels(raw), _spot(raw), tag_findings(raw))
    )


def _compositions(raw: Mapping[str, Any]) -> Iterator[tuple[str, Location, list[Any]]]:
    """The lists of groups that may become the job's hosts: what each is called, where it is, what it holds."""
    yield THIS_RUN, ("instance_groups",), _items(raw.get("instance_groups"), MAX_GROUPS)
    for index, groups in enumerate(_items(raw.get("fallback_instance_groups"), MAX_FALLBACKS)):
        yield f"fallback_instance_groups[{index}]", ("fallback_instance_groups", index), _items(groups, MAX_GROUPS)


def _groups(raw: Mapping[str, Any]) -> Iterator[Finding]:
    for _, where, groups in _compositions(raw):
        yield from _repeated_names(where, groups, "group")
        if raw.get("mode") == "compare" and groups and all(map(_is_sound, groups)):
            accelerated = [instance_type_has_accelerator(group["instance_type"]) for group in groups]
            shown = ", ".join(f"{show_key(group['name'])} ({group['instance_type']})" for group in groups)
            if not any(accelerated):
                yield where, NO_ACCELERATOR.format(groups=shown)
            elif all(accelerated):
                yield where, ONLY_ACCELERATORS.format(groups=shown)


def _is_sound(group: object) -> bool:
    return (
        isinstance(group, dict)
        and isinstance(group.get("name"), str)
        and isinstance(group.get("instance_type"), str)
        and group["instance_type"] in INSTANCE_TYPES
    )


def _head_group(raw: Mapping[str, Any]) -> Iterator[Finding]:
    head_group = _object(raw.get("training")).get("head_group")
    yield from _missing_group(raw, ("training", "head_group"), [head_group])


def _missing_group(raw: Mapping[str, Any], where: Location, wanted: list[Any]) -> Iterator[Finding]:
    """The first of the wanted groups that is missing in the first list of groups in which one is."""
    for place, _, groups in _compositions(raw):
        names = _names(groups)
        for name in wanted:
            if isinstance(name, str) and names and name not in names:
                yield where, NOT_A_GROUP.format(value=show_value(name), place=place, names=show_keys(names))
                return


def _channels(raw: Mapping[str, Any]) -> Iterator[Finding]:
    channels = _items(raw.get("channels"), MAX_CHANNELS)
    yield from _repeated_names(("channels",), channels, "channel")
    for index, channel in enumerate(channels):
        groups = _items(_object(channel).get("instance_groups"), MAX_GROUPS)
        yield from _missing_group(raw, ("channels", index, "instance_groups"), groups)
    naming = _names([channel for channel in channels if _object(channel).get("instance_groups") is not None])
    silent = _names([channel for channel in channels if _object(channel).get("instance_groups") is None])
    if naming and silent:
        yield ("channels",), SOME_NAME_GROUPS.format(naming=show_keys(naming), silent=show_keys(silent))


def _used_channels(raw: Mapping[str, Any]) -> Iterator[Finding]:
    """The channels that the training reads from, where the run lists any: on one machine folders stand for them."""
    training, names = _object(raw.get("training")), _names(_items(raw.get("channels"), MAX_CHANNELS))
    is_read = training.get("dataset") in FILE_DATASETS and training.get("data_uri") is None
    used = {"channel": training.get("channel", DEFAULT_CHANNEL)} if is_read else {}
    for setting, channel in (used | {"code_channel": training.get("code_channel")}).items():
        if isinstance(channel, str) and names and channel not in names:
            yield ("training", setting), NOT_A_CHANNEL.format(value=show_value(channel), names=show_keys(names))


def _spot(raw: Mapping[str, Any]) -> Iterator[Finding]:
    spot, wait = raw.get("spot", False), raw.get("max_wait_seconds")
    runtime = raw.get("max_runtime_seconds", DEFAULT_RUNTIME_SECONDS)
    shown = {"wait": show_value(wait), "runtime": show_value(runtime), "longest": LONGEST_JOB_SECONDS}
    if spot is True and raw.get("checkpoints") is False:
        yield ("checkpoints",), SPOT_WITHOUT_CHECKPOINTS
    if spot is False and _is_time(wait):
        yield ("max_wait_seconds",), WAIT_WITHOUT_SPOT.format(**shown)
    if spot is True and _is_time(runtime):
        if wait is None:
            yield ("max_wait_seconds",), SPOT_WITHOUT_WAIT.format(**shown)
        elif _is_time(wait) and wait < runtime:
            yield ("max_wait_seconds",), WAIT_TOO_SHORT.format(**shown)


def _is_time(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 1 <= value <= LONGEST_JOB_SECONDS and value == int(value)


def tag_findings(raw: Mapping[str, Any]) -> Iterator[Finding]:
    """What is wrong with each of the tags of a job or of a stack."""
    tags = _object(raw.get("tags"))
    if len(tags) <= MAX_TAGS:
        for key, value in tags.items():
            problem = _tag_problem(key, value) if isinstance(key, str) else None
            if problem:
                yield ("tags", key), problem


def _tag_problem(key: str, value: object) -> str | None:
    if looks_secret("", key) or looks_secret(key, value):
        return SECRET_ADVICE
    if not re.fullmatch(TAG_KEY_PATTERN, key) or re.search(RESERVED_TAG_KEY_PATTERN, key):
        return TAG_KEY_FORM
    if not isinstance(value, str):
        return WRONG_KIND.format(value=show_value(value), noun="text", allowed=TAG_VALUE_ALLOWED)
    if not re.fullmatch(TAG_VALUE_PATTERN, value):
        return WRONG_FORM.format(value=show_value(value), allowed=TAG_VALUE_ALLOWED)
    return None


def _repeated_names(where: Location, items: list[Any], kind: str) -> Iterator[Finding]:
    known: set[str] = set()
    for index, item in enumerate(items):
        for name in _names([item]):
            if name in known:
                yield (*where, index, "name"), USED_BY_TWO.format(value=show_value(name), kind=kind)
            known.add(name)


def _names(items: list[Any]) -> list[str]:
    """The names of the items that have one, each once, in their order."""
    names = [_object(item).get("name") for item in items]
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: object, most: int) -> list[Any]:
    """The items of a list that is not too long; one that is gets a line of its own and no others."""
    return list(value) if isinstance(value, list | tuple) and len(value) <= most else []
