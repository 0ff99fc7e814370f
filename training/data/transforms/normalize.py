"""Bytes to numbers around zero, on the accelerator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from training.data.transforms.transform import Draw

Channels = tuple[float, float, float]


@dataclass(frozen=True)
class Normalize:
    """Bytes to numbers around zero: the host passes uint8 on, the accelerator computes (pixel / 255 - mean) / std."""

    mean: Channels = (0.5, 0.5, 0.5)
    std: Channels = (0.5, 0.5, 0.5)

    @property
    def wire_dtype(self) -> np.dtype[np.generic]:
        """uint8, as the image was read: a quarter of the bytes of float32."""
        return np.dtype(np.uint8)

    def wire_shape(self, image_size: int) -> tuple[int, int, int]:
        """Return the shape of one image, channels last, as it was read."""
        return (image_size, image_size, 3)

    def on_host(self, image: NDArray[np.uint8], draw: Draw, out: NDArray[np.generic]) -> None:  # noqa: ARG002 no chance
        """Copy one image into `out`; all of them are treated alike."""
        np.copyto(out, image)

    def on_device(self, images: torch.Tensor) -> torch.Tensor:
        """Turn uint8 (batch, image_size, image_size, 3) into normalised float32, channels first."""
        return normalize_bytes(images.permute(0, 3, 1, 2), self.mean, self.std)


def normalize_bytes(images: torch.Tensor, mean: Channels, std: Channels) -> torch.Tensor:
    """Turn uint8 (batch, 3, height, width) into (pixel / 255 - mean) / std, float32, contiguous, on its device."""
    scale, shift = _scale_and_shift(mean, std, images.device)
    return images.to(torch.float32, memory_format=torch.contiguous_format).mul_(scale).add_(shift)


@lru_cache(maxsize=16)  # making them anew would copy from host to accelerator, and wait, in every step
def _scale_and_shift(mean: Channels, std: Channels, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tensors of shape (3, 1, 1) with pixel * scale + shift == (pixel / 255 - mean) / std."""
    means, stds = torch.tensor(mean, dtype=torch.float64), torch.tensor(std, dtype=torch.float64)
    scale, shift = (values.to(device, torch.float32).view(3, 1, 1) for values in (1 / (255 * stds), -means / stds))
    return scale, shift
