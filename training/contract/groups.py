"""What a run is given: groups of hosts and channels of input data."""

from typing import Annotated

from pydantic import Field, field_validator

from training.contract.instance_types import (
    INSTANCE_TYPE_PATTERN,
    INSTANCE_TYPES,
    instance_type_has_accelerator,
    near_instance_types,
)
from training.contract.relations import MAX_GROUPS
from training.contract.sentences import NOT_A_TRAINING_TYPE, TYPES_OF_NO_KIN
from training.contract.settings import ListOf, Settings, complaint
from training.contract.training import (
    CHANNEL_NAME_ALLOWED,
    CHANNEL_NAME_PATTERN,
    GROUP_NAME_ALLOWED,
    GROUP_NAME_PATTERN,
    S3_URI_ALLOWED,
    S3_URI_PATTERN,
)
from training.contract.values import show_value


class InstanceGroup(Settings):
    """One group of identical hosts of the training job."""

    name: str = Field(
        pattern=GROUP_NAME_PATTERN,
        json_schema_extra={"x-allowed": GROUP_NAME_ALLOWED},
        description="Name of the group; no two groups of a run share one.",
    )
    instance_type: str = Field(
        pattern=INSTANCE_TYPE_PATTERN,
        json_schema_extra={"x-allowed": "ml.<family>.<size>, such as ml.g5.xlarge"},
        description="SageMaker instance type of every host of the group.",
    )
    instance_count: int = Field(default=1, ge=1, le=1000, description="Number of hosts in the group, in hosts.")

    @field_validator("instance_type")
    @classmethod
    def _check_that_it_exists(cls, value: str) -> str:
        if value not in INSTANCE_TYPES:
            names = ", ".join(near_instance_types(value)) or TYPES_OF_NO_KIN
            raise complaint(NOT_A_TRAINING_TYPE.format(value=show_value(value), names=names))
        return value

    @property
    def has_accelerator(self) -> bool:
        """Whether the hosts of this group have NVIDIA GPUs."""
        return instance_type_has_accelerator(self.instance_type)


GroupName = Annotated[str, Field(json_schema_extra={"x-allowed": "the name of a group"})]


class Channel(Settings):
    """One input channel: a place in S3 whose files the hosts find in /opt/ml/input/data/<name>."""

    name: str = Field(
        pattern=CHANNEL_NAME_PATTERN,
        json_schema_extra={"x-allowed": CHANNEL_NAME_ALLOWED},
        description="Name of the channel; no two channels of a run share one.",
    )
    s3_uri: str = Field(
        pattern=S3_URI_PATTERN,
        json_schema_extra={"x-allowed": S3_URI_ALLOWED},
        description="Where the files of the channel are in S3.",
    )
    instance_groups: Annotated[tuple[GroupName, ...], ListOf("group names", least=1, most=MAX_GROUPS)] | None = Field(
        default=None,
        description="Groups whose hosts get the channel, null for all; either every channel names groups or none.",
    )
