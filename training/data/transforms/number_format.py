"""The numbers in which images cross the network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray


@dataclass(frozen=True)
class NumberFormat:
    """`number` is what the bits mean; `carrier` is the NumPy format, as wide, whose arrays hold them."""

    number: torch.dtype
    carrier: np.dtype[np.generic]

    def write(self, pixels: torch.Tensor, out: NDArray[np.generic]) -> None:
        """Write pixels into `out`, of the carrier's format and the same shape; rounded as `Tensor.to` rounds."""
        torch.from_numpy(out).view(self.number).copy_(pixels)

    def read(self, images: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the carrier's format as float32, on its device; no value changes."""
        return images.view(self.number).to(torch.float32)


UINT8 = NumberFormat(torch.uint8, np.dtype(np.uint8))
FLOAT32 = NumberFormat(torch.float32, np.dtype(np.float32))
FLOAT16 = NumberFormat(torch.float16, np.dtype(np.float16))
BFLOAT16 = NumberFormat(torch.bfloat16, np.dtype(np.int16))  # NumPy has no bfloat16


def float_format(precision: str) -> NumberFormat:
    """Return the format in which float32 pixels cross when the model computes with `training.precision`.

    With bf16 or fp16 autocast rounds the input of the model's first layer, a convolution or a matrix product, to that
    format. Rounded before the network instead of behind it, the model computes the same from half the bytes.
    """
    return {"bf16": BFLOAT16, "fp16": FLOAT16}.get(precision, FLOAT32)
