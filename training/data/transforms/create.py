"""From the settings of a run to its transform."""

from __future__ import annotations

from pathlib import Path

from training.contract import TrainingConfig
from training.data.transforms.function import Functions, function_transform
from training.data.transforms.gaussian_blur import GaussianBlurStack
from training.data.transforms.normalize import Channels, Normalize
from training.data.transforms.number_format import float_format
from training.data.transforms.own_function import OwnFunction
from training.data.transforms.torchvision_steps import TorchvisionSteps
from training.data.transforms.transform import Transform

DATA_DIR = Path("/opt/ml/input/data")


def create_transform(config: TrainingConfig, mean: Channels, std: Channels, data_dir: Path = DATA_DIR) -> Transform:
    """Return the transform that a run asks for; mean and std, of pixels in 0..1, are the model's.

    `data_dir` holds a folder for each input channel, the one with the user's code among them. Raises ContractError, a
    line for each problem, where steps or the user's own function cannot be had or do not return an image.
    """
    if config.transform == "gaussian_blur_stack":
        wire = float_format(config.precision)
        return GaussianBlurStack(config.seed, implementation=config.transform_implementation, wire=wire)
    if config.transform == "normalize":
        return Normalize(mean, std)
    return function_transform(
        _functions(config, data_dir),
        image_size=config.image_size,
        seed=config.seed,
        precision=config.precision,
        mean=mean,
        std=std,
    )


def _functions(config: TrainingConfig, data_dir: Path) -> Functions:
    if config.transform == "torchvision":
        return TorchvisionSteps(config.transform_steps)
    # Absolute: a data worker has another working folder than the driver.
    return OwnFunction(config.transform, data_dir.absolute() / config.code_channel if config.code_channel else None)
