"""The contract: every setting of a run with its type, limits, default and help; all else is derived from it."""

from training.contract_errors import ContractError
from training.contract_groups import Channel, InstanceGroup
from training.contract_instance_types import instance_type_has_accelerator
from training.contract_run import RunConfig
from training.contract_text import decode_hyperparameters, encode_hyperparameters
from training.contract_training import TrainingConfig
from training.contract_values import nearest

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
