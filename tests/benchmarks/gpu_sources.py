"""What brings batches to the GPU in `gpu_check`: three mock loaders whose next batch is always ready, and the feed."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from training.contract import TrainingConfig
from training.data.batch import Assembly, Batch
from training.data.buffers import Buffer
from training.data.device import Stager
from training.data.feed import Feed
from training.data.plan import RowPlan
from training.data.spans import training_spans
from training.data.synthetic import Synthetic
from training.data.transforms import Transform
from training.data.worker import Recipe, serve

NUM_CLASSES = 1000
_NUM_AHEAD = 2
"""Batches that `staged` has on their way to the device."""
_READ_AHEAD_BATCHES = 4


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of batches: their form, their size, and the device that they are wanted on."""

    config: TrainingConfig
    transform: Transform
    device: torch.device

    def on_host(self, *, pinned: bool) -> Assembly:
        """A batch of noise in the host's memory."""
        rows, shape = self.config.batch_size, self.transform.wire_shape(self.config.image_size)
        buffer = Buffer(rows, shape, self.transform.wire_dtype, pin=pinned and self.device.type == "cuda")
        buffer.images.copy_(torch.rand(buffer.images.shape) * (255 if buffer.images.dtype == torch.uint8 else 1))
        buffer.labels.random_(NUM_CLASSES)
        buffer.valid[:] = True
        return Assembly((0, rows), buffer)

    @property
    def num_image_bytes(self) -> int:
        """Bytes of the images of one batch."""
        return self.on_host(pinned=False).buffer.images.nbytes


def resident(kind: Kind) -> Iterator[Batch]:
    """The same batch, on the device since before the first step."""
    return itertools.repeat(_copied(kind.on_host(pinned=False), kind.device))


def blocking(kind: Kind) -> Iterator[Batch]:
    """The same batch in ordinary memory, copied when it is asked for; the host waits for the copy."""
    assembly = kind.on_host(pinned=False)
    while True:
        yield _copied(assembly, kind.device)


def staged(kind: Kind) -> Iterator[Batch]:
    """Batches in pinned memory, each on its way to the device before it is asked for, as the feed does it."""
    stager = Stager(kind.device)
    source = itertools.cycle([kind.on_host(pinned=True) for _ in range(_NUM_AHEAD + 1)])
    ahead = deque(stager.stage(next(source)) for _ in range(_NUM_AHEAD))
    while True:
        batch = ahead.popleft().batch()
        ahead.append(stager.stage(next(source)))
        yield batch


def _copied(assembly: Assembly, device: torch.device) -> Batch:
    buffer = assembly.buffer
    images, labels = buffer.images.to(device), buffer.labels.to(device)
    return Batch(span=assembly.span, images=images, labels=labels, valid=buffer.valid, parts=(), problems={})


@contextlib.contextmanager
def working_feed(kind: Kind, num_workers: int) -> Iterator[Iterator[Batch]]:
    """The product's feed without an end; its data workers are processes of this host."""
    config, transform = kind.config, kind.transform
    feed = Feed(
        training_spans(num_batches=1_000_000, batch_size=config.batch_size, rank=0, world_size=1),
        batch_rows=config.batch_size,
        wire_shape=transform.wire_shape(config.image_size),
        wire_dtype=transform.wire_dtype,
        address="127.0.0.1",
        device=kind.device,
        prefetch_batches=_READ_AHEAD_BATCHES,
    )
    recipe = Recipe(
        source=Synthetic(config.num_records, NUM_CLASSES, config.image_size, config.seed),
        transform=transform,
        plan=RowPlan(config.num_records, config.seed, shuffle=True),
        image_size=config.image_size,
    )
    process = multiprocessing.get_context("spawn").Process
    workers = [process(target=serve, args=(recipe, [feed.endpoint], "local"), daemon=True) for _ in range(num_workers)]
    for worker in workers:
        worker.start()
    try:
        yield iter(feed)
    finally:
        feed.close()
        for worker in workers:
            worker.join()
