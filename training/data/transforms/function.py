"""A transform made of functions from tensor to tensor: torchvision's steps, or the user's own."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from training.contract import ContractError
from training.data.decoding import one_line
from training.data.transforms.normalize import Channels, normalize_bytes
from training.data.transforms.number_format import FLOAT16, UINT8, NumberFormat, float_format
from training.data.transforms.transform import Draw, seed_all

ImageFunction = Callable[[torch.Tensor], object]
_ALLOWED = ("uint8", "float32", "float16")


class Functions(Protocol):
    """Names of functions: small to pickle, loaded where they are called."""

    def load(self) -> Sequence[tuple[str, ImageFunction]]:
        """Return the functions in order, each under the name that errors show; raises ContractError."""
        ...


@dataclass(frozen=True, kw_only=True)
class FunctionTransform:
    """Calls functions one after another on each image, a uint8 tensor (3, image_size, image_size), on the host.

    Before each image torch, numpy.random and random are seeded by (seed, epoch, row). The last function returns a
    tensor or array (3, image_size, image_size). uint8 crosses the network as it is and is normalised by the
    accelerator; float32, which the user has scaled, crosses in the format of `float_format`; float16 as it is.
    """

    functions: Functions
    seed: int
    output: torch.dtype
    wire: NumberFormat
    mean: Channels
    std: Channels

    @property
    def wire_dtype(self) -> np.dtype[np.generic]:
        """What carries the functions' output."""
        return self.wire.carrier

    def wire_shape(self, image_size: int) -> tuple[int, int, int]:
        """Return the shape of one image, channels first, as the functions leave it."""
        return (3, image_size, image_size)

    def on_host(self, image: NDArray[np.uint8], draw: Draw, out: NDArray[np.generic]) -> None:
        """Transform one image, uint8 (image_size, image_size, 3), into `out`. Raises ContractError in one line."""
        name, pixels = _run(self.functions, image, self.seed, draw, subject=f"row {draw[1]}")
        if pixels.dtype != self.output:
            found, before = _text(pixels.dtype), _text(self.output)
            raise ContractError([f"{name} returned {found} for row {draw[1]}; expected {before}, as it did before"])
        self.wire.write(pixels, out)

    def on_device(self, images: torch.Tensor) -> torch.Tensor:
        """Turn the batch into float32; of uint8 also normalise it."""
        if self.output == torch.uint8:
            return normalize_bytes(images, self.mean, self.std)
        return self.wire.read(images)


def function_transform(
    functions: Functions, *, image_size: int, seed: int, precision: str, mean: Channels, std: Channels
) -> FunctionTransform:
    """Return the transform that calls `functions`; what they return is seen on an image of noise.

    Raises ContractError in one line where they cannot be loaded, fail, or return what is not allowed.
    """
    noise = np.random.default_rng(seed).integers(0, 256, (image_size, image_size, 3), np.uint8)
    _, pixels = _run(functions, noise, seed, (0, 0), subject="an image of noise")
    wire = {torch.uint8: UINT8, torch.float16: FLOAT16}.get(pixels.dtype, float_format(precision))
    return FunctionTransform(functions=functions, seed=seed, output=pixels.dtype, wire=wire, mean=mean, std=std)


def _run(
    functions: Functions, image: NDArray[np.uint8], seed: int, draw: Draw, *, subject: str
) -> tuple[str, torch.Tensor]:
    """Return the last function's name, and what it leaves of an image as a tensor in one of the allowed formats."""
    loaded = functions.load()  # before seeding: a module that draws while it is imported changes no image
    seed_all(seed, draw)
    value: object = torch.from_numpy(image.transpose(2, 0, 1).copy())  # the functions may write into it
    for name, function in loaded:
        try:
            value = function(value)  # type: ignore[arg-type]  # that each takes what the one before returns, shows here
        except Exception as error:
            reason = f"{type(error).__name__}: {one_line(error)}{_place(error)}"
            raise ContractError([f"{name} failed on {subject}: {reason}"]) from error
    shape = (3, *image.shape[:2])
    if not _is_allowed(value, shape):
        expected = f"a tensor or array of {', '.join(_ALLOWED[:-1])} or {_ALLOWED[-1]}, shape {shape}"
        raise ContractError([f"{name} returned {_describe(value)} for {subject}; expected {expected}"])
    return name, _as_tensor(value)


def _is_allowed(value: object, shape: tuple[int, ...]) -> bool:
    return (
        isinstance(value, torch.Tensor | np.ndarray) and _text(value.dtype) in _ALLOWED and tuple(value.shape) == shape
    )


def _as_tensor(value: object) -> torch.Tensor:
    if isinstance(value, np.ndarray):
        # Read-only arrays and those with backward strides are no tensors.
        return torch.from_numpy(np.require(value, requirements=["C", "W"]))
    assert isinstance(value, torch.Tensor)
    return value.detach()


def _describe(value: object) -> str:
    if isinstance(value, torch.Tensor | np.ndarray):
        return f"{_text(value.dtype)} of shape {tuple(value.shape)}"
    return f"a value of type {type(value).__name__}"


def _text(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def _place(error: Exception) -> str:
    """Return the last line of the user's own files that an exception came through; nothing if there is none."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    own = [frame for frame in frames if "site-packages" not in frame.filename]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
