"""What happens to an image between dataset and model: a part on any host's CPU, then a part on the accelerator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torchvision.transforms import functional as vision  # type: ignore[import-untyped]

from training.contract import ContractError
from training.data.sources import Source, UnreadableRow

MAX_PLAUSIBLE_MEAN = 10.0
"""Pixels scaled to 0..1 or normalised have a mean near 0; pixels of 0..255 passed on unscaled have one near 100."""


class Transform(Protocol):
    """Two parts, so that what is lossless crosses the network as it is: uint8 is a quarter of float32."""

    @property
    def wire_dtype(self) -> np.dtype[np.generic]:
        """The number format in which `on_host` leaves an image."""
        ...

    def wire_shape(self, image_size: int) -> tuple[int, int, int]:
        """Return the shape of one image as `on_host` leaves it."""
        ...

    def on_host(self, image: NDArray[np.uint8], row: int, out: NDArray[np.generic]) -> None:
        """Work on one image, uint8 (image_size, image_size, 3), and write the result, in wire form, into `out`."""
        ...

    def on_device(self, images: torch.Tensor) -> torch.Tensor:
        """Turn a batch in wire form into the model's input: float32 (batch, 3, image_size, image_size)."""
        ...


@dataclass(frozen=True)
class GaussianBlurStack:
    """The article's transform: ToTensor, then ten GaussianBlur(kernel_size=11) with random sigma. All work on the host.

    Sigma is drawn from 0.1..2.0 for each image and blur as torchvision draws it, but from a generator seeded by
    (seed, row): the same row gives the same pixels on every host and in every epoch.
    """

    seed: int
    num_blurs: int = 10
    kernel_size: int = 11
    sigma_range: tuple[float, float] = (0.1, 2.0)

    @property
    def wire_dtype(self) -> np.dtype[np.generic]:
        """float32, since blurring leaves fractions."""
        return np.dtype(np.float32)

    def wire_shape(self, image_size: int) -> tuple[int, int, int]:
        """Return the shape of one image, channels first, as the model takes it."""
        return (3, image_size, image_size)

    def on_host(self, image: NDArray[np.uint8], row: int, out: NDArray[np.generic]) -> None:
        """Blur one image, uint8 (height, width, 3), into `out`, float32 (3, height, width) in 0..1."""
        tensor = vision.to_tensor(image)
        for sigma in self.draw_sigmas(row):
            tensor = vision.gaussian_blur(tensor, [self.kernel_size, self.kernel_size], [sigma, sigma])
        np.copyto(out, tensor.numpy())

    def draw_sigmas(self, row: int) -> list[float]:
        """Return the sigmas, in pixels, of a row's blurs."""
        drawn = torch.empty(self.num_blurs).uniform_(*self.sigma_range, generator=self.generator(row))
        return [float(sigma) for sigma in drawn.tolist()]

    def generator(self, row: int) -> torch.Generator:
        """Return a row's own random stream."""
        state = np.random.SeedSequence((self.seed, row)).generate_state(1, np.uint64)
        return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))  # manual_seed takes a signed number

    def on_device(self, images: torch.Tensor) -> torch.Tensor:
        """Return the batch as it came."""
        return images


@dataclass(frozen=True)
class Normalize:
    """Bytes to numbers around zero: the host passes uint8 on, the accelerator computes (pixel / 255 - mean) / std."""

    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)

    @property
    def wire_dtype(self) -> np.dtype[np.generic]:
        """uint8, as the image was read: a quarter of the bytes of float32."""
        return np.dtype(np.uint8)

    def wire_shape(self, image_size: int) -> tuple[int, int, int]:
        """Return the shape of one image, channels last, as it was read."""
        return (image_size, image_size, 3)

    def on_host(self, image: NDArray[np.uint8], row: int, out: NDArray[np.generic]) -> None:  # noqa: ARG002 no chance
        """Copy one image into `out`; all of them are treated alike."""
        np.copyto(out, image)

    def on_device(self, images: torch.Tensor) -> torch.Tensor:
        """Turn uint8 (batch, image_size, image_size, 3) into normalised float32, channels first."""
        scale, shift = _scale_and_shift(self.mean, self.std, images.device)
        channels_first = images.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
        return channels_first.mul_(scale).add_(shift)


@lru_cache(maxsize=16)  # making them anew would copy from host to accelerator, and wait, in every step
def _scale_and_shift(
    mean: tuple[float, ...], std: tuple[float, ...], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tensors of shape (3, 1, 1) with pixel * scale + shift == (pixel / 255 - mean) / std."""
    means, stds = torch.tensor(mean, dtype=torch.float64), torch.tensor(std, dtype=torch.float64)
    scale, shift = 1 / (255 * stds), -means / stds
    return tuple(values.to(device, torch.float32).view(3, 1, 1) for values in (scale, shift))  # type: ignore[return-value]


def create_transform(
    name: str, seed: int, mean: tuple[float, float, float] = (0.5,) * 3, std: tuple[float, float, float] = (0.5,) * 3
) -> Transform:
    """Return the transform that `training.transform` names; mean and std, of pixels in 0..1, are the model's."""
    known: Mapping[str, Callable[[], Transform]] = {
        "gaussian_blur_stack": lambda: GaussianBlurStack(seed),
        "normalize": lambda: Normalize(mean, std),
    }
    if name not in known:
        raise ContractError([f"training.transform: {name!r} is unknown; allowed: {', '.join(known)}"])
    return known[name]()


def prepare_batch(
    source: Source,
    transform: Transform,
    row_ids: NDArray[np.int64],
    image_size: int,
    on_unreadable: Callable[[int, UnreadableRow], None] | None = None,
) -> dict[str, NDArray[Any]]:
    """Read and transform the rows of one batch on this host's CPU.

    Returns `image` (batch, *wire_shape) in the wire's dtype, `label` int64, `row` int64 and `valid` bool, each
    (batch,). An unreadable row keeps its place, as zeros with valid=False, so that a batch always has as many rows as
    were asked for; `on_unreadable` is told the row and the reason.
    """
    num_rows = len(row_ids)
    images = np.zeros((num_rows, *transform.wire_shape(image_size)), transform.wire_dtype)
    labels = np.empty(num_rows, np.int64)
    valid = np.ones(num_rows, np.bool_)
    for place, row in enumerate(row_ids.tolist()):
        labels[place] = source.label(row)
        try:
            transform.on_host(source.read(row), row, images[place])
        except UnreadableRow as problem:
            valid[place] = False
            if on_unreadable is not None:
                on_unreadable(row, problem)
    return {"image": images, "label": labels, "row": np.asarray(row_ids, np.int64), "valid": valid}


def check_batch(images: torch.Tensor, labels: torch.Tensor, num_classes: int) -> None:
    """Raise ContractError, a line per problem, where a batch is not what the model takes; meant for the first one.

    Right are images float32 (batch, 3, height, width), finite, mean between -10 and 10; labels int64 (batch,) within
    0..num_classes-1. Waits for the accelerator.
    """
    problems = [*_image_problems(images), *_label_problems(labels, num_classes)]
    if len(images) != len(labels):
        problems.append(f"batch: {len(images)} images but {len(labels)} labels; the transform must keep every row")
    if problems:
        raise ContractError(problems)


def _image_problems(images: torch.Tensor) -> list[str]:
    if images.ndim != 4 or images.shape[1] != 3:
        return [f"batch images: shape {tuple(images.shape)}; expected (batch, 3, height, width)"]
    if images.dtype != torch.float32:
        return [f"batch images: {_dtype(images)}; expected float32, convert in the transform's device part"]
    mean = images.mean().item()
    if not torch.isfinite(images).all():
        return ["batch images: not finite (NaN or infinity); look at the transform's output"]
    if abs(mean) >= MAX_PLAUSIBLE_MEAN:
        return [f"batch images: mean {mean:.4g}; expected between -10 and 10, scale pixels to 0..1 or normalise them"]
    return []


def _label_problems(labels: torch.Tensor, num_classes: int) -> list[str]:
    if labels.ndim != 1:
        return [f"batch labels: shape {tuple(labels.shape)}; expected (batch,), one class number per row"]
    if labels.dtype != torch.int64:
        return [f"batch labels: {_dtype(labels)}; expected int64, class numbers from 0"]
    if not labels.numel():
        return ["batch: no rows; at least one is needed"]
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= num_classes:
        return [f"batch labels: {low} to {high}; expected 0 to {num_classes - 1}, see training.num_classes"]
    return []


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
