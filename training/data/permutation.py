"""Permutations that a few numbers name: the same on every machine and in every version of NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]

# Six rounds of a balanced Feistel network: four already pass for random to anyone without the key (Luby and Rackoff,
# 1988); two more make up for the tiny domains of small datasets, where a half is one to four bits wide.
_NUM_ROUNDS = 6


def permute(positions: Int64Array, num_rows: int, key: Sequence[int]) -> Int64Array:
    """Send positions 0..num_rows-1, int64 of any length, through the permutation of 0..num_rows-1 that `key` names.

    A keyed Feistel network over the smallest even number of bits that holds `num_rows`, repeated for values that fall
    outside (cycle walking). It costs no memory, so 1e9 rows are as cheap as ten, and any place can be asked for.
    """
    half_bits = max(1, math.ceil((num_rows - 1).bit_length() / 2))
    round_keys = draw_keys(key, _NUM_ROUNDS)
    values = _feistel(positions.astype(np.uint64), half_bits, round_keys)
    # The domain is less than four times num_rows, so on average fewer than four passes are needed; every pass moves
    # along a cycle of the permutation that starts inside 0..num_rows-1, so it comes back inside and the loop ends.
    while (outside := values >= num_rows).any():
        values[outside] = _feistel(values[outside], half_bits, round_keys)
    return values.astype(np.int64)


def draw_keys(key: Sequence[int], count: int) -> NDArray[np.uint64]:
    """Return `count` 64-bit numbers that depend on `key` alone."""
    return np.random.SeedSequence(key).generate_state(count, np.uint64).astype(np.uint64, copy=False)


def scramble(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix 64-bit values, wrapping around; the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).

    Different values stay different, so sorting by the result is a permutation without ties.
    """
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _feistel(values: NDArray[np.uint64], half_bits: int, round_keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    width, mask = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
    left, right = values >> width, values & mask
    for round_key in round_keys:
        left, right = right, left ^ (scramble(right + round_key) & mask)
    return (left << width) | right
