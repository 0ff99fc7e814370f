"""Runs of numbers from 0 on, one after the other, held as the end (excluded) of each: classes, files, row groups."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def run_of(ends: NDArray[np.int64], number: int) -> int:
    """Return the run that a number lies in."""
    return int(np.searchsorted(ends, number, side="right"))


def start_of(ends: NDArray[np.int64], run: int) -> int:
    """Return the first number of a run."""
    return int(ends[run - 1]) if run else 0
