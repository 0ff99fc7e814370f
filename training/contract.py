"""The contract: every setting of a run with its type, limits, default and help; all else is derived from it."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import InitErrorDetails, PydanticCustomError

from training.contract_errors import (
    SECRET_ADVICE,
    ContractError,
    Finding,
    looks_secret,
    nearest,
    show_path,
    show_value,
    validated,
)
from training.contract_text import MAX_VALUE_CHARACTERS, decode_hyperparameters, encode_hyperparameters, encode_value

__all__ = [
    "ContractError",
    "InstanceGroup",
    "RunConfig",
    "TrainingConfig",
    "decode_hyperparameters",
    "encode_hyperparameters",
    "instance_type_has_accelerator",
    "nearest",
]

MAX_INPUT_BYTES = 262_144  # what Step Functions takes as one execution's input
MAX_GROUPS = 5  # what SageMaker takes in one heterogeneous training job

JsonScalar: TypeAlias = str | int | float | bool | None
_ACCELERATED_TYPE = re.compile(r"ml\.(g|gr|p)[0-9]")
_GROUP_NAME_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._\-]{0,61}[A-Za-z0-9])?$"  # a Ray label value: 63 characters
_GROUP_NAME_ALLOWED = "1 to 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends"


def instance_type_has_accelerator(instance_type: str) -> bool:
    """Whether a SageMaker instance type has NVIDIA GPUs, by its family: g, gr or p followed by a digit."""
    return _ACCELERATED_TYPE.match(instance_type) is not None


def _complaint(sentence: str) -> PydanticCustomError:
    return PydanticCustomError("contract", sentence)


def _model_argument(value: object) -> object:
    items = value if isinstance(value, list) else [value]
    for item in items:
        if not isinstance(item, JsonScalar):
            raise _complaint(
                f"{show_value(item)} is not accepted; allowed: JSON scalars or one list of them; flatten it"
            )
        if isinstance(item, float) and not math.isfinite(item):
            raise _complaint(f"{item} is not a finite number; allowed: JSON values; set a finite number")
    return value


ModelArgument = Annotated[JsonScalar | list[JsonScalar], PlainValidator(_model_argument, JsonScalar | list[JsonScalar])]


def _model_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    for key, value in arguments.items():
        items = value if isinstance(value, list) else [value]
        if looks_secret("", key) or any(looks_secret(key, item) for item in items):
            raise _complaint(f"argument {show_path((key,))} {SECRET_ADVICE}")
    num_characters = len(encode_value(arguments, dict))
    if num_characters > MAX_VALUE_CHARACTERS:
        raise _complaint(f"{num_characters} characters as JSON; allowed: {MAX_VALUE_CHARACTERS}; shorten it")
    return arguments


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


class _Settings(BaseModel):
    """A frozen group of settings; `parse` is its door for values from outside, the constructor is for code."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_secrets(cls, value: object) -> object:
        if looks_secret("", value):
            raise _complaint(SECRET_ADVICE)
        return value

    @classmethod
    def parse(cls, obj: object) -> Self:
        """The settings from a decoded JSON object; raises ContractError with one line for each problem."""
        return validated(cls, obj)


class InstanceGroup(_Settings):
    """One group of identical hosts of the training job."""

    name: str = Field(
        pattern=_GROUP_NAME_PATTERN,
        json_schema_extra={"x-allowed": _GROUP_NAME_ALLOWED},
        description="Name of the group; no two groups of a run share one.",
    )
    instance_type: str = Field(
        pattern=r"^ml\.[a-z][a-z0-9]*(-[a-z0-9]+)*\.[a-z0-9]+(-[a-z0-9]+)*$",
        max_length=64,
        json_schema_extra={"x-allowed": "ml.<family>.<size>, such as ml.g5.xlarge"},
        description="SageMaker instance type of every host of the group.",
    )
    instance_count: int = Field(default=1, ge=1, le=1000, description="Number of hosts in the group, in hosts.")

    @property
    def has_accelerator(self) -> bool:
        """Whether the hosts of this group have NVIDIA GPUs."""
        return instance_type_has_accelerator(self.instance_type)


class TrainingConfig(_Settings):
    """What the training job does; every field travels as one hyperparameter."""

    model: str = Field(
        default="vit_base_patch16_224",
        pattern=r"^[A-Za-z0-9_.:/@\-]{1,256}$",
        json_schema_extra={"x-allowed": "a timm model name, 1 to 256 characters, such as vit_base_patch16_224"},
        description="Name of the timm model to train.",
    )
    model_arguments: Annotated[dict[str, ModelArgument], AfterValidator(_model_arguments)] = Field(
        default={},
        json_schema_extra={"x-allowed": "an object of JSON scalars or lists of them, at most 2500 characters"},
        description="More arguments for timm.create_model, by name.",
    )
    num_classes: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Number of classes; null takes what the dataset has (synthetic: 1000).",
    )
    image_size: int = Field(default=224, ge=8, le=1024, description="Side of the square images, in pixels.")
    batch_size: int = Field(default=64, ge=1, le=4096, description="Batch of one training worker in one step, in rows.")
    steps: int = Field(default=1000, ge=1, le=10_000_000, description="Length of the training, in optimizer steps.")
    learning_rate: float = Field(default=0.001, gt=0, le=10, description="Learning rate of the SGD optimizer.")
    momentum: float = Field(default=0.9, ge=0, lt=1, description="Momentum of the SGD optimizer.")
    precision: Literal["fp32", "bf16"] = Field(
        default="fp32", description="Number format of the forward and backward pass."
    )
    seed: int = Field(default=0, ge=0, le=2**31 - 1, description="Seed of weights, data and shuffling.")
    dataset: Literal["synthetic", "image_folder"] = Field(
        default="synthetic",
        description="Source of the rows: made up on the hosts, or a folder of images for each class.",
    )
    num_records: int = Field(default=64_000, ge=1, le=1_000_000_000, description="Size of the synthetic set, in rows.")
    channel: str = Field(
        default="training",
        pattern=r"^[A-Za-z0-9.\-_]{1,64}$",
        json_schema_extra={"x-allowed": "1 to 64 letters, digits, '-', '_' or '.'"},
        description="Name of the SageMaker input channel that holds the image folder.",
    )
    validation_share: float = Field(
        default=0.0, ge=0, le=0.5, description="Rows held out and scored at the end, as a share of all rows."
    )
    max_bad_file_share: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="Unreadable files that are skipped before the run fails, as a share of all files.",
    )
    transform: Literal["gaussian_blur_stack", "normalize"] = Field(
        default="gaussian_blur_stack", description="Preprocessing of each image."
    )
    preprocess_on: Literal["all_hosts", "cpu_hosts"] = Field(
        default="all_hosts",
        description="Hosts that preprocess; cpu_hosts leaves hosts with accelerators to train while there are others.",
    )
    prefetch_batches: int = Field(default=2, ge=0, le=64, description="Read-ahead of one training worker, in batches.")
    balance_rounds: int = Field(
        default=0,
        ge=0,
        le=20,
        description="Rounds after the last step that measure the CPU hosts alone against all hosts, untrained rows; "
        "0 measures nothing.",
    )
    report_every_steps: int = Field(
        default=100, ge=1, le=1_000_000, description="From one progress line to the next, in steps."
    )
    head_group: str | None = Field(
        default=None,
        pattern=_GROUP_NAME_PATTERN,
        json_schema_extra={"x-allowed": "the name of a group, or null"},
        description="Group whose first host leads the cluster; null takes the group with accelerators.",
    )
    join_timeout_seconds: int = Field(
        default=600, ge=5, le=3600, description="Longest wait for all hosts to join the cluster, in seconds."
    )
    missing_hosts: Literal["fail", "continue"] = Field(
        default="fail",
        description="What to do when a host has not joined in that time: fail, or go on with those that did.",
    )
    stall_timeout_seconds: int = Field(
        default=600, ge=10, le=86_400, description="Longest time without progress before the run fails, in seconds."
    )

    @classmethod
    def from_hyperparameters(cls, mapping: Mapping[str, object]) -> Self:
        """The settings from SageMaker's text; keys beginning with `sagemaker_` are ignored; raises ContractError."""
        return decode_hyperparameters(cls, mapping)

    def to_hyperparameters(self) -> dict[str, str]:
        """Every setting that is not None as text of at most 2,500 characters; from_hyperparameters gives it back."""
        return encode_hyperparameters(self)


_ARTICLE_GROUPS = (
    InstanceGroup(name="gpu", instance_type="ml.g5.xlarge"),
    InstanceGroup(name="cpu", instance_type="ml.c5.4xlarge"),
)
_KEEP_GROUPS = "types and counts belong inside instance_groups; keep instance_groups and remove this key"


class RunConfig(_Settings):
    """The input of one execution; an empty object is the article's experiment."""

    moved_settings: ClassVar[Mapping[str, str]] = {"instance_type": _KEEP_GROUPS, "instance_count": _KEEP_GROUPS}

    instance_groups: Annotated[tuple[InstanceGroup, ...], BeforeValidator(_tuple)] = Field(
        default=_ARTICLE_GROUPS, min_length=1, max_length=MAX_GROUPS, description="The hosts of the job, 1 to 5 groups."
    )
    training: TrainingConfig = Field(default=TrainingConfig(), description="What the training job does.")

    @model_validator(mode="after")
    def _check_relations(self) -> Self:
        found = _relations([group.name for group in self.instance_groups], self.training.head_group)
        if found:
            errors = [InitErrorDetails(type=_complaint(text), loc=where, input=None) for where, text in found]
            raise ValidationError.from_exception_data("RunConfig", errors)
        return self

    @classmethod
    def parse(cls, obj: object) -> Self:
        """The run from a decoded JSON object; raises ContractError with one line for each problem."""
        # Pydantic compares settings only once each is valid by itself; the user wants to see everything at once.
        return validated(cls, obj, _relations_of_raw(obj))

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


def _relations(names: Iterable[object], head_group: object) -> list[Finding]:
    """What is wrong between settings that are each fine: group names that repeat, a head group that is none."""
    found: list[Finding] = []
    known: dict[str, None] = {}  # in the order of the groups
    for index, name in enumerate(names):
        if isinstance(name, str) and name in known:
            sentence = f"{show_value(name)} is used by two groups; group names must differ; rename one"
            found.append((("instance_groups", index, "name"), sentence))
        elif isinstance(name, str):
            known[name] = None
    if isinstance(head_group, str) and known and head_group not in known:
        allowed_names = ", ".join(show_path((name,)) for name in known)
        sentence = f"{show_value(head_group)} is not a group of this run; allowed: {allowed_names}; name one of them"
        found.append((("training", "head_group"), sentence))
    return found


def _relations_of_raw(obj: object) -> list[Finding]:
    raw = obj if isinstance(obj, dict) else {}
    groups, training = raw.get("instance_groups", list(_ARTICLE_GROUPS)), raw.get("training")
    names = [
        group.get("name") if isinstance(group, dict) else getattr(group, "name", None)
        for group in (groups if isinstance(groups, list | tuple) else [])
    ]
    return _relations(names, training.get("head_group") if isinstance(training, dict) else None)
