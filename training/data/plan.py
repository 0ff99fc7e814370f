"""Which row of the dataset belongs to which place in the run: a pure function of the seed, the same on every host."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from training.contract import ContractError
from training.data.locality import LocalOrder
from training.data.permutation import Int64Array, permute

# The numbers that keep the permutation of an epoch and the draw of the validation rows apart for one and the same seed.
_EPOCH_STREAM, _SPLIT_STREAM = 0, 1


class RowIds(Protocol):
    """A set of rows in a fixed order; a NumPy array of row ids is one."""

    def __len__(self) -> int: ...

    def __getitem__(self, positions: Int64Array, /) -> Int64Array: ...


@dataclass(frozen=True)
class PermutedRows:
    """The rows at the places `start` to `stop` of a seeded permutation of 0..num_rows-1, computed when asked for."""

    num_rows: int
    seed: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, positions: Int64Array, /) -> Int64Array:
        return permute(positions + self.start, self.num_rows, (self.seed, _SPLIT_STREAM))


@dataclass(frozen=True)
class EveryRow:
    """All rows of a dataset in ascending order."""

    num_rows: int

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, positions: Int64Array, /) -> Int64Array:
        return positions


@dataclass(frozen=True)
class RowPlan:
    """An endless sequence of row ids: place g lies in epoch g // num_rows, and an epoch has every row exactly once.

    `shuffle` draws an own permutation per epoch from (seed, epoch); without it the rows come in order. `subset` is a
    set of `num_rows` rows to use instead of 0..num_rows-1, for instance the training rows of a split. With
    `read_groups`, the ends of the dataset's read groups (`Source.read_groups`), a permutation keeps rows of a group
    near each other (training.data.locality); the subset must be ascending then.
    """

    num_rows: int
    seed: int
    shuffle: bool
    subset: RowIds | None = None
    read_groups: InitVar[Int64Array | None] = None
    _order: LocalOrder | None = field(init=False, repr=False, compare=False)

    def __post_init__(self, read_groups: Int64Array | None) -> None:
        if self.num_rows < 1:
            raise ContractError(["too few rows: 0 rows; the dataset needs at least one"])
        if self.subset is not None and len(self.subset) != self.num_rows:
            raise ValueError(f"num_rows is {self.num_rows}, but the subset has {len(self.subset)} rows")
        order = None
        if self.shuffle and read_groups is not None:
            order = LocalOrder(self._group_ends(read_groups), (self.seed, _EPOCH_STREAM))
        object.__setattr__(self, "_order", order)  # the class is frozen

    def rows(self, start: int, stop: int) -> Int64Array:
        """Return the row ids, int64, at the places `start` to `stop` (excluded) of the run; epochs may be crossed."""
        _check_places(start, stop)
        parts = []
        while start < stop:
            epoch, first = divmod(start, self.num_rows)
            count = min(stop - start, self.num_rows - first)
            parts.append(self._rows_of_epoch(epoch, first, count))
            start += count
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def epochs(self, start: int, stop: int) -> Int64Array:
        """Return the epoch, int64 from 0, of each of the places `start` to `stop` (excluded)."""
        _check_places(start, stop)
        return np.arange(start, stop, dtype=np.int64) // self.num_rows

    def _rows_of_epoch(self, epoch: int, first: int, count: int) -> Int64Array:
        if self._order is not None:
            positions = self._order.rows(epoch, first, count)
        else:
            positions = np.arange(first, first + count, dtype=np.int64)
            if self.shuffle:
                positions = permute(positions, self.num_rows, (self.seed, _EPOCH_STREAM, epoch))
        return positions if self.subset is None else self.subset[positions]

    def _group_ends(self, read_groups: Int64Array) -> Int64Array:
        """Return the ends of the read groups counted in rows of the subset: of ascending rows, a group's adjoin."""
        if self.subset is None:
            return read_groups
        rows = self.subset[np.arange(self.num_rows, dtype=np.int64)]
        if (np.diff(rows) <= 0).any():
            raise ValueError("the subset must be ascending where rows are read in groups")
        return np.searchsorted(rows, read_groups).astype(np.int64, copy=False)


def _check_places(start: int, stop: int) -> None:
    if not 0 <= start <= stop:
        raise ValueError(f"places must satisfy 0 <= start <= stop, got {start} and {stop}")


def check_enough_rows(num_rows: int, num_workers: int) -> None:
    """Raise ContractError where some training worker would have no row of its own in an epoch."""
    if num_rows < num_workers:
        rows, workers = _count(num_rows, "row"), _count(num_workers, "training worker")
        raise ContractError(
            [f"too few rows: {rows} for {workers}; at least {num_workers} are needed, add rows or train on fewer hosts"]
        )


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows held out: disjoint, and together every row of the dataset."""

    training: RowIds
    validation: RowIds


def split_rows(num_rows: int, validation_share: float, seed: int, labels: Int64Array | None = None) -> Split:
    """Hold out `validation_share` (0..0.5) of the rows, at least one; the choice depends on the seed only.

    With `labels` (int64, one per row) every class is held out by the same share and keeps a training row, and both
    parts are ascending. Raises ContractError where a share above 0 leaves nothing to train on or to hold out.
    """
    if validation_share <= 0:
        return Split(training=EveryRow(num_rows), validation=EveryRow(0))
    if labels is not None:
        return _split_by_class(labels, validation_share, seed)
    if num_rows < 2:
        raise _nothing_to_hold_out(validation_share, _count(num_rows, "row"))
    num_held_out = min(max(1, round(num_rows * validation_share)), num_rows - 1)
    return Split(
        training=PermutedRows(num_rows, seed, num_held_out, num_rows),
        validation=PermutedRows(num_rows, seed, 0, num_held_out),
    )


def _split_by_class(labels: Int64Array, share: float, seed: int) -> Split:
    # Systematic sampling: lay the rows out class by class, shuffled inside each, and take one every 1/share rows.
    # Every class, and the whole, is then held out by its share to within one row.
    rng = np.random.default_rng((seed, _SPLIT_STREAM))
    shuffled = rng.permutation(labels.size)
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    ticks = np.floor(np.arange(labels.size + 1) * share + rng.random())
    is_held_out = np.zeros(labels.size, np.bool_)
    is_held_out[order] = np.diff(ticks) > 0
    _keep_one_training_row(is_held_out, labels)
    if not is_held_out.any():
        sizes = np.bincount(labels)
        if sizes.max(initial=0) < 2:
            raise _nothing_to_hold_out(share, f"no class with two rows among {_count(labels.size, 'row')}")
        is_held_out[order[labels[order] == sizes.argmax()][0]] = True
    return Split(training=np.flatnonzero(~is_held_out), validation=np.flatnonzero(is_held_out))


def _keep_one_training_row(is_held_out: NDArray[np.bool_], labels: Int64Array) -> None:
    emptied = np.setdiff1d(labels, labels[~is_held_out])
    _, first_rows = np.unique(labels, return_index=True)
    is_held_out[first_rows[np.isin(labels[first_rows], emptied)]] = False


def _nothing_to_hold_out(share: float, what: str) -> ContractError:
    return ContractError([f"training.validation_share: {share} of {what} holds out nothing; set it to 0 or add rows"])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
