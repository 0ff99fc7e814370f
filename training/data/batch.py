"""A batch: as the trainer gets it, and while it is being put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from training.data.buffers import Buffer
from training.data.schedule import Chunk
from training.data.spans import Span


class Part(NamedTuple):
    """Some rows of a batch: who prepared them, what CPU time that took, and when it ended by that host's clock."""

    host: str
    num_rows: int
    cpu_seconds: float
    ended_at: float


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One step's rows, on the device of the rank, until the next batch is asked for.

    `images` (rows, *wire_shape) is in wire form, `labels` is int64 (rows,); rows with `valid` False could not be read.
    `span` are the places of the plan, `problems` the unreadable rows and why.
    """

    span: Span
    images: torch.Tensor
    labels: torch.Tensor
    valid: NDArray[np.bool_]
    parts: tuple[Part, ...]
    problems: Mapping[int, str]

    @property
    def rows_by_host(self) -> Mapping[str, int]:
        """How many rows each host prepared."""
        counts: Counter[str] = Counter()
        for part in self.parts:
            counts[part.host] += part.num_rows
        return counts

    @property
    def cpu_seconds(self) -> float:
        """What preparing the batch cost, on whichever hosts."""
        return sum(part.cpu_seconds for part in self.parts)


@dataclass(eq=False)
class Assembly:
    """The rows of one span in a buffer, chunk by chunk."""

    span: Span
    buffer: Buffer
    parts: list[Part] = field(default_factory=list)
    problems: dict[int, str] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        """Rows of the batch; the buffer may have room for more."""
        return self.span[1] - self.span[0]

    def place(self, chunk: Chunk) -> memoryview:
        """The memory that the images of a chunk belong into."""
        return self.buffer.image_bytes(*self._rows(chunk))

    def add(self, chunk: Chunk, part: Part, labels_and_valid: memoryview, problems: Mapping[int, str]) -> None:
        """Take in all of a chunk but its images."""
        self.buffer.set_labels(*self._rows(chunk), labels_and_valid)
        self.parts.append(part)
        self.problems.update(problems)

    def _rows(self, chunk: Chunk) -> Span:
        return chunk.start - self.span[0], chunk.stop - self.span[0]
