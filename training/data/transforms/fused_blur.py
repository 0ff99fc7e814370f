"""Many Gaussian blurs of one image as two products with a banded matrix.

A blur is the same along rows and along columns, so it is M X M^T with a matrix M of one row per pixel, and many blurs
are one such product with the product of their matrices. That matrix needs no matrix products. torchvision continues an
image beyond its border by reflection (without repeating the border's pixel), which makes a row of S pixels an even
function on a circle of 2 S - 2; a symmetric kernel leaves it one; so the blurs compose on that circle as their kernels
do, by convolution, and the borders come out as if every blur had reflected anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Float64Array = NDArray[np.float64]

# What lies further from the diagonal is smaller than this, against 1 for all of a row: far below float32's rounding.
_NEGLIGIBLE = 1e-10
# Rows of a product: few skip more of the zeros beside the band, many keep the matrix units busy.
_BLOCK = 48


def blur_fused(image: NDArray[np.uint8], sigmas: Sequence[float], kernel_size: int) -> torch.Tensor:
    """Blur uint8 (S, S, channels) with each sigma in turn: float32 (channels, S, S) in 0..1.

    The kernels are torchvision's. The result is within 4e-7 of what they give in exact arithmetic; torchvision's own
    rounding, blur by blur, adds up to 1e-6 on noise, and to 2.5e-6 where a picture is flat and bright.
    """
    size = len(image)
    circle = _on_circle(reduce(np.convolve, _kernels(sigmas, kernel_size)), 2 * (size - 1))
    matrix, blocks = _matrix(circle, size), _blocks(circle, size)
    pixels = torch.from_numpy(image).permute(2, 0, 1).to(torch.float32, memory_format=torch.contiguous_format)
    # Every row of the matrix has the same sum, so blurring keeps a constant up to a factor. Without its mean an image
    # is small numbers of both signs, whose products are rounded much less.
    mean = float(pixels.mean())
    pixels.sub_(mean).div_(255)
    along_rows = torch.empty_like(pixels)
    for ours, theirs in blocks:
        torch.mm(pixels.view(-1, size)[:, theirs], matrix[ours, theirs].T, out=along_rows.view(-1, size)[:, ours])
    for ours, theirs in blocks:
        for source, target in zip(along_rows, pixels, strict=True):
            torch.mm(matrix[ours, theirs], source[theirs], out=target[ours])
    return pixels.add_(mean / 255 * circle.sum() ** 2)


def _kernels(sigmas: Sequence[float], kernel_size: int) -> Float64Array:
    """Return the blurs' kernels, (len(sigmas), kernel_size), rounded to float32 at every step as torchvision's are."""
    half = (kernel_size - 1) / 2
    places = torch.linspace(-half, half, kernel_size)
    density = torch.exp(-0.5 * (places / torch.tensor(sigmas)[:, None]).pow(2))
    return (density / density.sum(dim=1, keepdim=True)).double().numpy()


def _on_circle(kernel: Float64Array, length: int) -> Float64Array:
    """Wind a kernel around a circle of `length` places, its middle at place 0."""
    half = len(kernel) // 2
    circle = np.zeros(length)
    np.add.at(circle, np.arange(-half, half + 1) % length, kernel)
    return circle


def _matrix(circle: Float64Array, size: int) -> torch.Tensor:
    """Return the matrix of a blur along one axis, float32 (size, size).

    Pixel j stands on the circle at j and, but for the two at the border, again at -j: entry (i, j) is what the kernel
    around i has at both.
    """
    period = len(circle)
    windows = sliding_window_view(np.concatenate([circle, circle]).astype(np.float32), size)
    matrix = windows[period : period - size : -1] + windows[:size]
    matrix[:, [0, -1]] /= 2
    return torch.from_numpy(matrix)


def _blocks(circle: Float64Array, size: int) -> list[tuple[slice, slice]]:
    """Cut the matrix into blocks of rows, each with the columns in which they are not negligible."""
    width = int(np.flatnonzero(np.abs(circle[:size]) > _NEGLIGIBLE)[-1])
    return [
        (slice(start, start + _BLOCK), slice(max(0, start - width), start + _BLOCK + width))
        for start in range(0, size, _BLOCK)
    ]
