"""The input of one execution."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, SkipValidation
from pydantic.json_schema import GenerateJsonSchema

from training.contract.errors import ContractError
from training.contract.groups import Channel, InstanceGroup
from training.contract.relations import (
    DEFAULT_RUNTIME_SECONDS,
    LONGEST_JOB_SECONDS,
    MAX_CHANNELS,
    MAX_FALLBACKS,
    MAX_GROUPS,
    MAX_TAGS,
    run_relations,
)
from training.contract.settings import ListOf, Settings
from training.contract.training import TrainingConfig
from training.contract.values import Finding

MAX_INPUT_BYTES = 262_144  # what Step Functions takes as one execution's input

_ARTICLE_GROUPS = (
    InstanceGroup(name="gpu", instance_type="ml.g5.xlarge"),
    InstanceGroup(name="cpu", instance_type="ml.c5.4xlarge"),
)
_KEEP_GROUPS = "types and counts belong inside instance_groups; keep instance_groups and remove this key"

Composition = Annotated[tuple[InstanceGroup, ...], ListOf("groups", least=1, most=MAX_GROUPS)]
TagValue = Annotated[str, SkipValidation]  # `run_relations` looks at each


class RunConfig(Settings):
    """The input of one execution; an empty object is the article's experiment."""

    moved_settings: ClassVar[Mapping[str, str]] = {
        "instance_type": _KEEP_GROUPS,
        "instance_count": _KEEP_GROUPS,
        "Comment": "it is the console's example; start with {} instead",
    }

    mode: Literal["train", "compare"] = Field(
        default="train",
        description="One job, or the groups with accelerators alone and then all groups, for the article's comparison.",
    )
    instance_groups: Composition = Field(default=_ARTICLE_GROUPS, description="The hosts of the job, 1 to 5 groups.")
    fallback_instance_groups: Annotated[tuple[Composition, ...], ListOf("compositions", most=MAX_FALLBACKS)] = Field(
        default=(),
        description="Groups to try, in this order, when AWS has no capacity or quota for instance_groups.",
    )
    training: TrainingConfig = Field(default=TrainingConfig(), description="What the training job does.")
    channels: Annotated[tuple[Channel, ...], ListOf("channels", most=MAX_CHANNELS)] = Field(
        default=(), description="Input data of the job in S3."
    )
    max_runtime_seconds: int = Field(
        default=DEFAULT_RUNTIME_SECONDS,
        ge=1,
        le=LONGEST_JOB_SECONDS,
        description="Longest run of the job, in seconds; then it is stopped.",
    )
    spot: bool = Field(default=False, description="Whether to use spot capacity: cheaper, and it may be interrupted.")
    max_wait_seconds: int | None = Field(
        default=None,
        ge=1,
        le=LONGEST_JOB_SECONDS,
        description="With spot: longest run and wait for capacity together, in seconds.",
    )
    checkpoints: bool = Field(
        default=True, description="Whether checkpoints are kept in S3, so that an interrupted run goes on where it was."
    )
    volume_gb: int = Field(default=50, ge=1, le=16_384, description="Storage volume of every host, in GB.")
    tags: dict[str, TagValue] = Field(
        default={},
        max_length=MAX_TAGS,
        json_schema_extra={"x-allowed": "an object of at most 40 tags", "x-items": "tags"},
        description="Tags of the job, by key.",
    )

    @classmethod
    def relations(cls, raw: Mapping[str, Any]) -> list[Finding]:
        """What is wrong between the settings of a run, and with its tags."""
        training = raw.get("training")
        inner = TrainingConfig.relations(training) if isinstance(training, dict) else []
        article_groups = [group.model_dump() for group in _ARTICLE_GROUPS]
        return [
            *run_relations({"instance_groups": article_groups, **raw}),
            *((("training", *where), text) for where, text in inner),
        ]

    @classmethod
    def parse_json(cls, text: str) -> Self:
        """The run from JSON text of at most 262,144 bytes; raises ContractError."""
        num_bytes = len(text.encode("utf-8", "surrogatepass"))
        if num_bytes > MAX_INPUT_BYTES:
            raise ContractError([f"input: {num_bytes} bytes; allowed: {MAX_INPUT_BYTES} bytes; shorten it"])
        return cls.parse(_json_value(text))

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """The JSON schema (draft 2020-12) of an execution's input, with descriptions, defaults and limits."""
        return {"$schema": GenerateJsonSchema.schema_dialect, **cls.model_json_schema()}


def _json_value(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        problem = f"input: not JSON at {where}; allowed: a JSON object such as {{}}; correct it there"
    except ValueError:  # Python turns no text of over 4300 digits into a number
        problem = "input: a number of over 4300 digits; allowed: the numbers in docs/settings.md; shorten it"
    except RecursionError:
        problem = "input: lists or objects nested over 900 deep; allowed: a JSON object such as {}; flatten it"
    raise ContractError([problem])
