"""Which row of the dataset belongs to which place in the run: a pure function of the seed, the same on every host."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from training.contract import ContractError

Int64Array = NDArray[np.int64]

# Six rounds of a balanced Feistel network: four already pass for random to anyone without the key (Luby and Rackoff,
# 1988); two more make up for the tiny domains of small datasets, where a half is one to four bits wide.
_NUM_ROUNDS = 6
# The numbers that keep the permutation of an epoch and the draw of the validation rows apart for one and the same seed.
_EPOCH_STREAM, _SPLIT_STREAM = 0, 1


class RowIds(Protocol):
    """A set of rows in a fixed order; a NumPy array of row ids is one."""

    def __len__(self) -> int: ...

    def __getitem__(self, positions: Int64Array, /) -> Int64Array: ...


def permute(positions: Int64Array, num_rows: int, key: Sequence[int]) -> Int64Array:
    """Send positions 0..num_rows-1, int64 of any length, through the permutation of 0..num_rows-1 that `key` names.

    A keyed Feistel network over the smallest even number of bits that holds `num_rows`, repeated for values that fall
    outside (cycle walking). It costs no memory, so 1e9 rows are as cheap as ten, and any place can be asked for.
    """
    half_bits = max(1, math.ceil((num_rows - 1).bit_length() / 2))
    round_keys = np.random.SeedSequence(key).generate_state(_NUM_ROUNDS, np.uint64).astype(np.uint64, copy=False)
    values = _feistel(positions.astype(np.uint64), half_bits, round_keys)
    # The domain is less than four times num_rows, so on average fewer than four passes are needed; every pass moves
    # along a cycle of the permutation that starts inside 0..num_rows-1, so it comes back inside and the loop ends.
    while (outside := values >= num_rows).any():
        values[outside] = _feistel(values[outside], half_bits, round_keys)
    return values.astype(np.int64)


def _feistel(values: NDArray[np.uint64], half_bits: int, round_keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    width, mask = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
    left, right = values >> width, values & mask
    for round_key in round_keys:
        left, right = right, left ^ (_scramble(right + round_key) & mask)
    return (left << width) | right


def _scramble(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix 64-bit values, wrapping around; the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


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
class RowPlan:
    """An endless sequence of row ids: place g lies in epoch g // num_rows, and an epoch has every row exactly once.

    `shuffle` draws an own permutation per epoch from (seed, epoch); without it the rows come in order. `subset` is a
    set of `num_rows` rows to use instead of 0..num_rows-1, for instance the training rows of a split.
    """

    num_rows: int
    seed: int
    shuffle: bool
    subset: RowIds | None = None

    def __post_init__(self) -> None:
        if self.num_rows < 1:
            raise ContractError(["too few rows: 0 rows; the dataset needs at least one"])
        if self.subset is not None and len(self.subset) != self.num_rows:
            raise ValueError(f"num_rows is {self.num_rows}, but the subset has {len(self.subset)} rows")

    def rows(self, start: int, stop: int) -> Int64Array:
        """Return the row ids, int64, at the places `start` to `stop` (excluded) of the run; epochs may be crossed."""
        if not 0 <= start <= stop:
            raise ValueError(f"places must satisfy 0 <= start <= stop, got {start} and {stop}")
        parts = []
        while start < stop:
            epoch, first = divmod(start, self.num_rows)
            count = min(stop - start, self.num_rows - first)
            parts.append(self._rows_of_epoch(epoch, first, count))
            start += count
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _rows_of_epoch(self, epoch: int, first: int, count: int) -> Int64Array:
        positions = np.arange(first, first + count, dtype=np.int64)
        if self.shuffle:
            positions = permute(positions, self.num_rows, (self.seed, _EPOCH_STREAM, epoch))
        return positions if self.subset is None else self.subset[positions]


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

    With `labels` (int64, one per row) every class is held out by the same share and keeps a training row. Raises
    ContractError where a share above 0 leaves nothing to train on or to hold out.
    """
    if validation_share <= 0:
        return Split(PermutedRows(num_rows, seed, 0, num_rows), PermutedRows(num_rows, seed, 0, 0))
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
