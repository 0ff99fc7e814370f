"""Batches on their way to the trainer's device: copied beside its work where that is a GPU, used in place where not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from training.data.batch import Assembly, Batch


@dataclass(eq=False)
class Staged:
    """A complete batch, its copy to the device under way."""

    assembly: Assembly
    images: torch.Tensor
    labels: torch.Tensor
    copied: torch.cuda.Event | None = None

    @property
    def is_copied(self) -> bool:
        """Whether the device has all of it; the buffer may be used again then, once the trainer is done as well."""
        return self.copied is None or bool(self.copied.query())  # type: ignore[no-untyped-call]

    def batch(self) -> Batch:
        """The batch for the trainer's current stream, which waits for the copy; the host does not."""
        if self.copied is not None:
            stream = torch.cuda.current_stream(self.images.device)
            stream.wait_event(self.copied)
            for tensor in (self.images, self.labels):
                tensor.record_stream(stream)  # allocated on the copying stream, which must not reuse its memory yet
        assembly = self.assembly
        return Batch(
            span=assembly.span,
            images=self.images,
            labels=self.labels,
            valid=assembly.buffer.valid[: assembly.num_rows].copy(),
            parts=tuple(assembly.parts),
            problems=assembly.problems,
        )


class Stager:
    """Starts the copies of complete batches to `device`, on a stream of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def stage(self, assembly: Assembly) -> Staged:
        """Start to copy a batch; on the CPU it is used where it lies."""
        images = assembly.buffer.images[: assembly.num_rows]
        labels = assembly.buffer.labels[: assembly.num_rows]
        if self._stream is None:
            return Staged(assembly, images, labels)
        with torch.cuda.stream(self._stream):
            images, labels = (tensor.to(self._device, non_blocking=True) for tensor in (images, labels))
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            copied.record(self._stream)
        return Staged(assembly, images, labels, copied)
