"""How a device computes: number format, memory format, compiled or not."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from training.contract import ContractError, TrainingConfig
from training.data.transforms import Transform
from training.models import ModelDescription, build_model

_AUTOCAST_TO = {"bf16": torch.bfloat16, "fp16": torch.float16}
_MAX_REASON_CHARACTERS = 200


@dataclass(frozen=True, kw_only=True)
class Numerics:
    """How one device computes: what a batch becomes for the model, and the number format that the model runs in."""

    device: torch.device
    config: TrainingConfig
    transform: Transform

    def inputs(self, images: torch.Tensor) -> torch.Tensor:
        """The model's input from images in wire form on the device: float32 (rows, 3, height, width)."""
        inputs = self.transform.on_device(images)
        return inputs.contiguous(memory_format=torch.channels_last) if self.config.channels_last else inputs

    def scores(self, model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
        """Class scores (rows, classes), in the format that they were computed in."""
        dtype = _AUTOCAST_TO.get(self.config.precision)
        with torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None):
            scores: torch.Tensor = model(inputs)
        return scores

    def loss(self, model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy, float32."""
        return nn.functional.cross_entropy(self.scores(model, inputs).float(), labels)


def set_precision(precision: str) -> None:
    """Say how CUDA multiplies float32 matrices in this process: tf32 keeps 10 bits of the fraction, any other all 23.

    Set either way, since convolutions take tf32 by default.
    """
    fp32_precision = "tf32" if precision == "tf32" else "ieee"
    backends: Any = torch.backends  # its attributes come into being at import, unseen by the type checker
    for operations in (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn):
        operations.fp32_precision = fp32_precision


def build_for_training(description: ModelDescription, config: TrainingConfig) -> nn.Module:
    """Return the model as `build_model` does, in the memory format that the settings ask for, and compiled if they do.

    To be wrapped for data-parallel training afterwards. In that order torch cuts the compiled backward pass at the
    wrapper's buckets, so that gradients are exchanged while others are computed; compiling the wrapper leaves the model
    as it was, without a word (torch 2.14.1). Compiled in place, the weights keep their names.
    """
    model = build_model(description.name, description.num_classes, description.image_size, description.arguments)
    if config.channels_last:
        model = model.to(memory_format=torch.channels_last)
    if config.compile:
        model.compile()
    return model


@contextmanager
def compile_errors_in_one_line() -> Iterator[None]:
    """Turn what torch.compile raises, which it does in the first step, into ContractError: what to set, and why."""
    from torch._dynamo.exc import TorchDynamoException  # a second of imports that a run without it need not pay

    try:
        yield
    except TorchDynamoException as error:
        cause = getattr(error, "inner_exception", error)
        reason = f"{type(cause).__name__}: {cause}".partition("\n")[0][:_MAX_REASON_CHARACTERS]
        problem = f"training.compile: true does not work here: {reason}"
        advice = "set it to false, or use an image with what is missing; it needs a C and a C++ compiler"
        raise ContractError([f"{problem}; {advice}"]) from error
