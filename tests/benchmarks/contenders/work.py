"""What the contenders of one host are asked for: batches of rows in the order of a plan, in wire form."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.data.plan import RowPlan
from training.data.sources import Source
from training.data.synthetic import Synthetic
from training.data.transforms import GaussianBlurStack, Normalize, Transform

IMAGE_SIZE, BATCH_SIZE, NUM_ROWS, NUM_CLASSES, SEED = 224, 64, 64_000, 1000, 0  # the article's
NUM_KEPT_IMAGES = 256
"""38 MB: more than the caches that one CPU has for itself, little beside what Python and torch take."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """`num_batches` batches of the first epoch, to be made by `num_workers` processes or threads."""

    source: Source
    transform: Transform
    num_batches: int
    num_workers: int

    def rows(self) -> NDArray[np.int64]:
        """Return the row ids, batch after batch."""
        return RowPlan(self.source.num_rows, SEED, shuffle=True).rows(0, self.num_batches * BATCH_SIZE)

    def new_images(self, *num_rows: int) -> NDArray[np.generic]:
        """Return memory for one image in wire form, or for some."""
        return np.empty((*num_rows, *self.transform.wire_shape(IMAGE_SIZE)), self.transform.wire_dtype)


class InMemory(Synthetic):
    """Rows that are in memory before they are asked for, the same few again and again: only moving them costs."""

    def label(self, row: int) -> int:
        """Return a class."""
        return row % self.num_classes

    def read(self, row: int) -> NDArray[np.uint8]:
        """Return an image that is not copied."""
        return _kept_image(self, row % NUM_KEPT_IMAGES)


@lru_cache(maxsize=NUM_KEPT_IMAGES)
def _kept_image(source: InMemory, row: int) -> NDArray[np.uint8]:
    return Synthetic.read(source, row)


class Workload(NamedTuple):
    """A kind of work; batches before the measurement fill every queue, numbers are even for pairs of workers."""

    source: Source
    transform: Transform
    num_warm_up_batches: int
    num_batches: int


_SYNTHETIC = Synthetic(NUM_ROWS, NUM_CLASSES, IMAGE_SIZE, SEED)
WORKLOADS: Mapping[str, Workload] = {
    # The article's transform, 40 ms and more of CPU time an image.
    "heavy": Workload(_SYNTHETIC, GaussianBlurStack(SEED), 4, 12),
    # Bytes as they are read; the accelerator normalises. Less than 2 ms an image.
    "light": Workload(_SYNTHETIC, Normalize(), 32, 400),
    # What is left is the path from a worker to the trainer.
    "path": Workload(InMemory(NUM_ROWS, NUM_CLASSES, IMAGE_SIZE, SEED), Normalize(), 32, 800),
}
