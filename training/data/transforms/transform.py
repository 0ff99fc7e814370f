"""What every transform is, and the random numbers of one image."""

from __future__ import annotations

import random
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

Draw = tuple[int, int]
"""The epoch, from 0, and the row: the same pair gives the same random numbers on every host."""

# Keeps these numbers apart from those of the synthetic set and of the plan, which come from the same seed.
_TRANSFORM_STREAM = 2


class Transform(Protocol):
    """Two parts, so that what is lossless crosses the network as it is: uint8 is a quarter of float32."""

    @property
    def wire_dtype(self) -> np.dtype[np.generic]:
        """The number format in which `on_host` leaves an image."""
        ...

    def wire_shape(self, image_size: int) -> tuple[int, int, int]:
        """Return the shape of one image as `on_host` leaves it."""
        ...

    def on_host(self, image: NDArray[np.uint8], draw: Draw, out: NDArray[np.generic]) -> None:
        """Work on one image, uint8 (image_size, image_size, 3), and write the result, in wire form, into `out`."""
        ...

    def on_device(self, images: torch.Tensor) -> torch.Tensor:
        """Turn a batch in wire form into the model's input: float32 (batch, 3, image_size, image_size)."""
        ...


def random_words(seed: int, draw: Draw) -> list[int]:
    """Return three numbers of 63 bits to seed generators with, drawn from (seed, epoch, row)."""
    words = np.random.SeedSequence((seed, _TRANSFORM_STREAM, *draw)).generate_state(3, np.uint64)
    return [int(word) >> 1 for word in words]  # torch takes signed numbers


def seed_all(seed: int, draw: Draw) -> None:
    """Seed the generators of this process that transforms draw from: torch's on the CPU, numpy.random and random."""
    for_torch, for_numpy, for_python = random_words(seed, draw)
    torch.default_generator.manual_seed(for_torch)  # 1 us; torch.manual_seed sees to every device and takes 370 us
    np.random.seed(for_numpy & 0xFFFFFFFF)  # a whole number of 32 bits is 8 times as fast as a list of them
    random.seed(for_python)
