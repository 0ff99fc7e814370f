"""The contract: every setting of a run with its type, limits, default and help; all else is derived from it."""

from training.contract.errors import ContractError
from training.contract.groups import Channel, InstanceGroup
from training.contract.instance_types import instance_type_has_accelerator
from training.contract.run import RunConfig
from training.contract.text import decode_hyperparameters, encode_hyperparameters
from training.contract.training import TrainingConfig
from training.contract.values import nearest

__all__ = [
    "Channel",
    "ContractError",
    "InstanceGroup",
    "RunConfig",
    "TrainingConfig",
    "decode_hyperparameters",
    "encode_hyperparameters",
    "instance_type_has_accelerator",
    "nearest",
]
