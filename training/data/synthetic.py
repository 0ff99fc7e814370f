"""The synthetic dataset: images of noise that every host can make by itself, so that no file has to be there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_PIXEL_STREAM, _LABEL_STREAM = 0, 1
_BYTES_PER_WORD = 8


@dataclass(frozen=True)
class Synthetic:
    """`num_rows` square images of uniform noise with random labels; a row depends on (seed, row) and nothing else."""

    num_rows: int
    num_classes: int
    image_size: int
    seed: int

    @property
    def class_names(self) -> tuple[str, ...]:
        """The class numbers as text."""
        return tuple(str(label) for label in range(self.num_classes))

    def label(self, row: int) -> int:
        """Return a class drawn from (seed, row)."""
        draw = np.random.SeedSequence((self.seed, _LABEL_STREAM, row)).generate_state(1, np.uint64)
        return int(draw[0] % np.uint64(self.num_classes))

    def known_labels(self) -> None:
        """Return None: labels are drawn row by row, and a split by class would gain nothing with noise for images."""

    def read_groups(self) -> None:
        """Return None: no row is cheaper after another."""

    def expect(self, rows: NDArray[np.int64]) -> None:
        """Do nothing: there is nothing to fetch."""

    def read(self, row: int) -> NDArray[np.uint8]:
        """Return noise drawn from (seed, row): uint8 (image_size, image_size, 3), a new writable array."""
        # Raw words of SFC64 viewed as bytes: of NumPy's generators and ways to draw, the cheapest (75 us for
        # 224 x 224 x 3 on one core, against 188 us for Generator.integers and 151 us for raw Philox).
        shape = (self.image_size, self.image_size, 3)
        num_bytes = self.image_size * self.image_size * 3
        generator = np.random.SFC64(np.random.SeedSequence((self.seed, _PIXEL_STREAM, row)))
        words: NDArray[np.uint64] = generator.random_raw(-(-num_bytes // _BYTES_PER_WORD))
        return words.astype("<u8", copy=False).view(np.uint8)[:num_bytes].reshape(shape)

    def describe(self, row: int) -> str:
        """Return the row's number; there is no file to name."""
        return f"row {row}"
