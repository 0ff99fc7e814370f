"""Whether a transform keeps its contract: on one row before a cluster is used, and on the first batch of a run."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from training.contract import ContractError
from training.data.sources import Source, UnreadableRow
from training.data.transforms.transform import Draw, Transform

MAX_PLAUSIBLE_MEAN = 10.0
"""Pixels scaled to 0..1 or normalised have a mean near 0; pixels of 0..255 passed on unscaled have one near 100."""
MAX_ROWS_TRIED = 32
"""Spread over the dataset: where none of them can be read, hardly a tenth of all can."""

_CANNOT_BE_REPEATED = (
    "training.transform: gives the same row other pixels each time, so this run cannot be repeated; it draws from a "
    "source that cannot be seeded from outside: draw from torch, numpy.random or random, which are seeded before each "
    "image"
)


def check_transform(transform: Transform, source: Source, image_size: int) -> list[str]:
    """Run the transform on the first row that can be read, and look at what the model would get.

    A function that gives the same row other pixels when it is asked again, with all generators seeded alike, is no
    error, since many trainings live with that; what is returned for the user to read says so.

    Raises:
        ContractError: no row can be read, the transform fails, or its result is not what the model takes.
    """
    row, image = _first_readable(source)
    if image.dtype != np.uint8 or image.shape != (image_size, image_size, 3):
        found = f"{image.dtype} of shape {image.shape}"
        raise ContractError(
            [f"dataset: {source.describe(row)} is {found}; expected uint8 ({image_size}, {image_size}, 3)"]
        )
    first, second = (_on_host(transform, image.copy(), (0, row), image_size) for _ in range(2))
    images = transform.on_device(torch.from_numpy(first)[None])
    check_batch(images, torch.tensor([source.label(row)]), source.num_classes)
    return [] if first.tobytes() == second.tobytes() else [_CANNOT_BE_REPEATED]


def _first_readable(source: Source) -> tuple[int, NDArray[np.uint8]]:
    reasons = []
    for row in np.unique(np.linspace(0, source.num_rows - 1, MAX_ROWS_TRIED).astype(np.int64)).tolist():
        try:
            return row, source.read(row)
        except UnreadableRow as problem:
            reasons.append(str(problem))
    raise ContractError([f"dataset: none of {len(reasons)} rows tried can be read; the first is {reasons[0]}"])


def _on_host(transform: Transform, image: NDArray[np.uint8], draw: Draw, image_size: int) -> NDArray[np.generic]:
    out = np.zeros(transform.wire_shape(image_size), transform.wire_dtype)
    transform.on_host(image, draw, out)
    return out


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
