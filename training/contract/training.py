"""The settings of the training job itself; each travels to the hosts as one hyperparameter."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SkipValidation, field_validator

from training.contract.models import is_model, near_models
from training.contract.sentences import MODELS_OF_NO_KIN, NOT_A_MODEL, NOT_A_TRANSFORM
from training.contract.settings import JsonScalar, ListOf, Settings, complaint
from training.contract.text import decode_hyperparameters, encode_hyperparameters
from training.contract.training_relations import DEFAULT_TRANSFORM, MAX_TRANSFORM_STEPS, training_relations
from training.contract.values import Finding, nearest, show_value

GROUP_NAME_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._\-]{0,61}[A-Za-z0-9])?$"  # a Ray label value: 63 characters
GROUP_NAME_ALLOWED = "1 to 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends"
CHANNEL_NAME_PATTERN = r"^[A-Za-z0-9.\-_]{1,64}$"
CHANNEL_NAME_ALLOWED = "1 to 64 letters, digits, '-', '_' or '.'"
S3_URI_PATTERN = r"^s3://[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9](/[^\x00-\x1f\x7f]{0,950})?$"
S3_URI_ALLOWED = "s3://<bucket>/<prefix>, at most 1018 characters"
COLUMN_PATTERN = r"^[^\x00-\x1f\x7f\"]{1,256}$"
COLUMN_ALLOWED = "the name of a column, 1 to 256 characters, no double quotes"

DEFAULT_STEPS = 1000  # the article's
BUILT_IN_TRANSFORMS = ("gaussian_blur_stack", "normalize", "torchvision")
_WORD = "[A-Za-z_][A-Za-z0-9_]{0,63}"
TRANSFORM_PATTERN = rf"^({_WORD}\.){{0,7}}{_WORD}(:{_WORD})?$"

ModelArgument = Annotated[JsonScalar | list[JsonScalar], SkipValidation]  # `training_relations` looks at each
TransformStep = Annotated[
    str,
    Field(
        pattern=r"^[A-Z][A-Za-z0-9]{0,39}(\([ -~]{0,158}\))?$",
        json_schema_extra={"x-allowed": "Name or Name(arguments), such as GaussianBlur(11), at most 200 characters"},
    ),
]


class TrainingConfig(Settings):
    """What the training job does; every field travels as one hyperparameter."""

    model: str = Field(
        default="vit_base_patch16_224",
        pattern=r"^[A-Za-z0-9_:/@\-][A-Za-z0-9_.:/@\-]{0,255}$",
        json_schema_extra={"x-allowed": "a timm model name, 1 to 256 characters, such as vit_base_patch16_224"},
        description="Name of the timm model to train, with fresh weights.",
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
    accumulate_batches: int = Field(
        default=1, ge=1, le=1024, description="Gradient of one optimizer step of one training worker, in batches."
    )
    steps: int | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="Length of the training; null takes epochs, or 1000 where that is null too, in optimizer steps.",
    )
    epochs: int | None = Field(
        default=None, ge=1, le=100_000, description="Length of the training in passes over the rows, instead of steps."
    )
    learning_rate: float = Field(default=0.001, gt=0, le=10, description="Learning rate of the SGD optimizer.")
    momentum: float = Field(default=0.9, ge=0, lt=1, description="Momentum of the SGD optimizer.")
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = Field(
        default="fp32", description="Number format of the forward and backward pass."
    )
    compile: bool = Field(
        default=False, description="Whether torch.compile translates the model: a slower start, then shorter steps."
    )
    channels_last: bool = Field(
        default=False, description="Whether images and weights lie in memory with the color channels last."
    )
    seed: int = Field(default=0, ge=0, le=2**31 - 1, description="Seed of weights, data and shuffling.")
    dataset: Literal["synthetic", "image_folder", "parquet"] = Field(
        default="synthetic",
        description="Source of the rows: made up on the hosts, a folder of images for each class, or Parquet files.",
    )
    num_records: int = Field(default=64_000, ge=1, le=1_000_000_000, description="Size of the synthetic set, in rows.")
    channel: str = Field(
        default="training",
        pattern=CHANNEL_NAME_PATTERN,
        json_schema_extra={"x-allowed": CHANNEL_NAME_ALLOWED},
        description="Name of the SageMaker input channel that holds the dataset; not used with data_uri.",
    )
    data_uri: str | None = Field(
        default=None,
        pattern=S3_URI_PATTERN,
        json_schema_extra={"x-allowed": f"{S3_URI_ALLOWED}, or null"},
        description="Where the hosts read the dataset in S3 while they train; null reads channel.",
    )
    image_column: str = Field(
        default="image",
        pattern=COLUMN_PATTERN,
        json_schema_extra={"x-allowed": COLUMN_ALLOWED},
        description="Name of the Parquet column that holds the images.",
    )
    label_column: str = Field(
        default="label",
        pattern=COLUMN_PATTERN,
        json_schema_extra={"x-allowed": COLUMN_ALLOWED},
        description="Name of the Parquet column that holds the classes.",
    )
    validation_share: float = Field(
        default=0.0, ge=0, le=0.5, description="Rows held out and scored at the end, as a share of all rows."
    )
    max_bad_share: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="Unreadable rows that are skipped before the run fails, as a share of all rows.",
    )
    transform: str = Field(
        default=DEFAULT_TRANSFORM,
        pattern=TRANSFORM_PATTERN,
        json_schema_extra={"x-allowed": f"{', '.join(BUILT_IN_TRANSFORMS)} or package.module:function"},
        description="Preprocessing of each image: built in, transform_steps of torchvision, or your own function.",
    )
    transform_implementation: Literal["torchvision", "fused"] = Field(
        default="torchvision",
        description="How gaussian_blur_stack is computed; fused is faster and gives the same pixels but for rounding.",
    )
    transform_steps: Annotated[tuple[TransformStep, ...], ListOf("transform steps", most=MAX_TRANSFORM_STEPS)] = Field(
        default=(),
        description="With transform torchvision: classes of torchvision.transforms.v2, in order, as steps.",
    )
    code_channel: str | None = Field(
        default=None,
        pattern=CHANNEL_NAME_PATTERN,
        json_schema_extra={"x-allowed": f"{CHANNEL_NAME_ALLOWED}, or null"},
        description="Name of the input channel with Python files to import from; null has only those of the image.",
    )
    preprocess_on: Literal["all_hosts", "cpu_hosts"] = Field(
        default="all_hosts",
        description="Hosts that preprocess; cpu_hosts leaves hosts with accelerators to train while there are others.",
    )
    prefetch_batches: int | None = Field(
        default=None,
        ge=1,
        le=64,
        description="Read-ahead of one training worker; null sizes it from measured times, in batches.",
    )
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
    checkpoint_every_steps: int = Field(
        default=500, ge=1, le=10_000_000, description="From one checkpoint to the next, in optimizer steps."
    )
    keep_checkpoints: int = Field(default=2, ge=1, le=100, description="Newest checkpoints that are kept.")
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

    def num_steps(self, num_rows: int, num_workers: int, *, steps_before: int = 0, rows_before: int = 0) -> int:
        """Optimizer steps of a training over `num_rows` rows by `num_workers` training workers together.

        `steps_before` of them are made by earlier jobs, with `rows_before` rows.
        """
        if self.epochs is None:
            return self.steps or DEFAULT_STEPS
        rows_per_step = self.batch_size * self.accumulate_batches * num_workers
        return steps_before - (rows_before - self.epochs * num_rows) // rows_per_step

    @field_validator("model")
    @classmethod
    def _check_that_timm_has_it(cls, value: str) -> str:
        if not is_model(value):
            names = ", ".join(near_models(value)) or MODELS_OF_NO_KIN
            raise complaint(NOT_A_MODEL.format(value=show_value(value), names=names))
        return value

    @field_validator("transform")
    @classmethod
    def _check_that_it_is_known(cls, value: str) -> str:
        if ":" not in value and value not in BUILT_IN_TRANSFORMS:
            names = ", ".join(nearest(value, BUILT_IN_TRANSFORMS) or BUILT_IN_TRANSFORMS)
            raise complaint(NOT_A_TRANSFORM.format(value=show_value(value), names=names))
        return value

    @classmethod
    def relations(cls, raw: Mapping[str, Any]) -> list[Finding]:
        """What is wrong between the settings of the training, and with the arguments of the model."""
        return training_relations(raw)
