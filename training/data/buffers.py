"""Memory that batches are received into: made once, used again for batch after batch, pinned where a GPU copies it."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray


class Buffer:
    """Room for one batch on the trainer's host: images in wire form, labels, and whether each row could be read."""

    def __init__(self, rows: int, wire_shape: tuple[int, ...], wire_dtype: np.dtype[np.generic], *, pin: bool) -> None:
        dtype = torch.from_numpy(np.empty(0, wire_dtype)).dtype
        self.images = torch.empty((rows, *wire_shape), dtype=dtype, pin_memory=pin)
        self.labels = torch.empty(rows, dtype=torch.int64, pin_memory=pin)
        self.valid = np.empty(rows, np.bool_)
        self._image_bytes = self.images.numpy().data.cast("B")
        self._label_values: NDArray[np.int64] = self.labels.numpy()

    def image_bytes(self, start: int, stop: int) -> memoryview:
        """The memory of the images of the rows `start` to `stop`, to be written to."""
        row_bytes = len(self._image_bytes) // len(self.valid)
        return self._image_bytes[start * row_bytes : stop * row_bytes]

    def set_labels(self, start: int, stop: int, packed: memoryview) -> None:
        """Take labels (int64), then validity (bool), of the rows `start` to `stop` from their bytes."""
        num_label_bytes = 8 * (stop - start)
        self._label_values[start:stop] = np.frombuffer(packed[:num_label_bytes], np.int64)
        self.valid[start:stop] = np.frombuffer(packed[num_label_bytes:], np.bool_)


class BufferPool:
    """Hands out buffers of one kind, at most `most` at a time; makes one only when none is free."""

    def __init__(
        self, rows: int, wire_shape: tuple[int, ...], wire_dtype: np.dtype[np.generic], *, pin: bool, most: int
    ) -> None:
        self.most = most
        self.num_taken = 0
        self._arguments = (rows, wire_shape, wire_dtype)
        self._pin = pin
        self._free: list[Buffer] = []

    def take(self) -> Buffer:
        """A buffer; what it holds is left over from its last use."""
        if self.num_taken >= self.most:
            raise RuntimeError(f"more than {self.most} buffers are wanted at a time")
        self.num_taken += 1
        return self._free.pop() if self._free else Buffer(*self._arguments, pin=self._pin)

    def give_back(self, buffer: Buffer) -> None:
        """Let a buffer be used again; nobody may read it any more."""
        self.num_taken -= 1
        self._free.append(buffer)
