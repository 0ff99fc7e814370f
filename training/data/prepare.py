"""What a data worker does with rows: read, transform, and put into arrays that are there already."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.sources import Source, UnreadableRow
from training.data.transforms import Transform


def prepare_rows(
    source: Source,
    transform: Transform,
    rows: NDArray[np.int64],
    epochs: NDArray[np.int64],
    images: NDArray[Any],
    labels: NDArray[np.int64],
    valid: NDArray[np.bool_],
) -> dict[int, str]:
    """Read and transform rows on this host's CPU; returns what was wrong with those that could not be read.

    Args:
        source: where the rows are read.
        transform: its host part is applied.
        rows: row ids, (n,).
        epochs: the epoch that each row is wanted for, (n,).
        images: filled with the images in wire form, (n, *wire_shape).
        labels: filled with the classes, (n,).
        valid: filled with whether a row could be read, (n,); the image of one that could not is zeros.
    """
    problems: dict[int, str] = {}
    for place, (row, epoch) in enumerate(zip(rows.tolist(), epochs.tolist(), strict=True)):
        labels[place] = source.label(row)
        try:
            transform.on_host(source.read(row), (epoch, row), images[place])
        except UnreadableRow as problem:
            images[place] = 0
            problems[row] = str(problem)
        valid[place] = row not in problems
    return problems
