"""An order of rows that is random and still reads well: neighbours in it come from few read groups."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from training.data.permutation import Int64Array, draw_keys, scramble

RUN_ROWS = 16
"""At most so many rows of one read group in a row. A batch of 64 so mixes four groups or more, also where a file is
sorted by class, and a group of 64 rows is read by about four data workers rather than by all of them."""
WINDOW_ROWS = 2048
"""Rows over which groups are mixed: as images of 110 KB, what a data worker keeps (parquet_groups.MAX_CACHED_BYTES)."""
MIN_WINDOW_GROUPS = 8
"""Groups of a window where they are large: what is read twice costs time, what is not mixed costs accuracy."""


@dataclass(frozen=True)
class _Epoch:
    groups: Int64Array
    """The groups in the order of the epoch."""
    edges: Int64Array
    """Window w has the groups at edges[w]..edges[w + 1]."""
    ends: Int64Array
    """Rows of the epoch up to the end of each window."""


class LocalOrder:
    """Random orders of the rows 0..group_ends[-1]-1, one an epoch, a pure function of (key, epoch, place).

    Groups come in a random order, cut into windows of about WINDOW_ROWS rows. Inside a window, the rows of each group
    are shuffled and cut into runs of at most RUN_ROWS, and the runs of all its groups are shuffled. Memory grows with
    the number of groups and the rows of a window, not with the rows of the dataset.

    Args:
        group_ends: end (excluded) of each read group, int64, ascending; groups without rows are left out.
        key: numbers that name the orders.
    """

    def __init__(self, group_ends: Int64Array, key: tuple[int, ...]) -> None:
        self._ends: Int64Array = np.unique(group_ends[group_ends > 0])
        self._sizes: Int64Array = np.diff(self._ends, prepend=0)
        self._key = key
        # One for the epoch before and one for the epoch after a border; two more windows for chunks done out of order.
        self._epoch = lru_cache(maxsize=2)(self._lay_out)
        self._window = lru_cache(maxsize=4)(self._mix)

    def __reduce__(self) -> tuple[type[LocalOrder], tuple[Int64Array, tuple[int, ...]]]:
        return LocalOrder, (self._ends, self._key)

    def rows(self, epoch: int, first: int, count: int) -> Int64Array:
        """Return the rows, int64 (count,), at the places `first` to `first + count` of an epoch."""
        ends = self._epoch(epoch).ends
        parts = [np.empty(0, np.int64)]
        window = int(np.searchsorted(ends, first, side="right"))
        while count > 0:
            rows = self._window(epoch, window)
            part = rows[first - (int(ends[window]) - rows.size) :][:count]
            parts.append(part)
            first, count, window = first + part.size, count - part.size, window + 1
        return np.concatenate(parts)

    def _lay_out(self, epoch: int) -> _Epoch:
        num_groups = self._sizes.size
        (key,) = draw_keys((*self._key, epoch), 1)
        groups = np.argsort(scramble(np.arange(num_groups, dtype=np.uint64) + key))
        groups_of_window = max(MIN_WINDOW_GROUPS, WINDOW_ROWS * num_groups // int(self._ends[-1]))
        num_windows = max(1, num_groups // groups_of_window)
        edges = np.arange(num_windows + 1) * num_groups // num_windows
        return _Epoch(groups, edges, np.cumsum(self._sizes[groups])[edges[1:] - 1])

    def _mix(self, epoch: int, window: int) -> Int64Array:
        layout = self._epoch(epoch)
        groups = layout.groups[layout.edges[window] : layout.edges[window + 1]]
        sizes = self._sizes[groups]
        row_key, run_key = draw_keys((*self._key, epoch, window + 1), 2)  # a last 0 would draw the epoch's own key
        # For every row of the window: its group, counted in the window, and its number inside the group.
        group = np.repeat(np.arange(groups.size), sizes)
        number = np.arange(group.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        rows = (self._ends[groups] - sizes)[group] + number
        rows = rows[np.lexsort((_mixed(rows, row_key), group))]
        runs_of_group = -(-sizes // RUN_ROWS)
        run = (np.cumsum(runs_of_group) - runs_of_group)[group] + number * runs_of_group[group] // sizes[group]
        return rows[np.argsort(_mixed(run, run_key), kind="stable")]


def _mixed(values: Int64Array, key: np.uint64) -> NDArray[np.uint64]:
    return scramble(values.astype(np.uint64) + key)
