"""The settings of the training job itself; each travels to the hosts as one hyperparameter."""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SkipValidation

from training.contract.sentences import NOT_AN_ARGUMENT, NOT_FINITE, TOO_MANY_CHARACTERS
from training.contract.settings import JsonScalar, Settings
from training.contract.text import MAX_VALUE_CHARACTERS, decode_hyperparameters, encode_hyperparameters
from training.contract.values import SECRET_ADVICE, Finding, looks_secret, show_value

GROUP_NAME_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._\-]{0,61}[A-Za-z0-9])?$"  # a Ray label value: 63 characters
GROUP_NAME_ALLOWED = "1 to 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends"
CHANNEL_NAME_PATTERN = r"^[A-Za-z0-9.\-_]{1,64}$"
CHANNEL_NAME_ALLOWED = "1 to 64 letters, digits, '-', '_' or '.'"

NUMBER_CHARACTERS = 24  # the longest that a double is written with

ModelArgument = Annotated[JsonScalar | list[JsonScalar], SkipValidation]  # `_argument_problem` looks at each


class TrainingConfig(Settings):
    """What the training job does; every field travels as one hyperparameter."""

    model: str = Field(
        default="vit_base_patch16_224",
        pattern=r"^[A-Za-z0-9_.:/@\-]{1,256}$",
        json_schema_extra={"x-allowed": "a timm model name, 1 to 256 characters, such as vit_base_patch16_224"},
        description="Name of the timm model to train.",
    )
    model_arguments: dict[str, ModelArgument] = Field(
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
        pattern=CHANNEL_NAME_PATTERN,
        json_schema_extra={"x-allowed": CHANNEL_NAME_ALLOWED},
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
    prefetch_batches: int = Field(default=2, ge=1, le=64, description="Read-ahead of one training worker, in batches.")
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
        pattern=GROUP_NAME_PATTERN,
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

    @classmethod
    def relations(cls, raw: Mapping[str, Any]) -> list[Finding]:
        """What is wrong with the arguments of the model, each by its name."""
        arguments = raw.get("model_arguments")
        if not isinstance(arguments, dict):
            return []
        if _num_characters(arguments) > MAX_VALUE_CHARACTERS:
            return [(("model_arguments",), TOO_MANY_CHARACTERS.format(limit=MAX_VALUE_CHARACTERS))]
        found = {name: _argument_problem(name, value) for name, value in arguments.items() if isinstance(name, str)}
        return [(("model_arguments", name), problem) for name, problem in found.items() if problem]


def _argument_problem(name: str, value: object) -> str | None:
    items = value if isinstance(value, list) else [value]
    for item in items:
        if not isinstance(item, JsonScalar):
            return NOT_AN_ARGUMENT.format(value=show_value(item))
        if isinstance(item, float) and not math.isfinite(item):
            return NOT_FINITE.format(value=show_value(item))
    return SECRET_ADVICE if looks_secret("", name) or any(looks_secret(name, item) for item in items) else None


def _num_characters(arguments: Mapping[str, object]) -> int:
    """At least as many characters as the arguments take as JSON: what is no text counts with the most it can take."""
    return 1 + sum(_text_characters(str(name)) + _characters(value) + 2 for name, value in arguments.items())


def _characters(value: object) -> int:
    if isinstance(value, list):
        return 1 + sum(1 + (_text_characters(item) if isinstance(item, str) else NUMBER_CHARACTERS) for item in value)
    return _text_characters(value) if isinstance(value, str) else NUMBER_CHARACTERS


def _text_characters(text: str) -> int:
    return 2 + len(re.sub(r"[\x00-\x1f]", "123456", re.sub(r'["\\]', "12", text)))
