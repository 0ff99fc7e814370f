"""The feed of one training worker: data workers all over the cluster prepare its rows, batches come whole and in order.

Not a Ray Data dataset, and no image goes through Ray's object store (docs/adr/0002 and 0006). Each data worker has a
connection to the feed, gets its next rows as soon as it has ended those before, and sends what it made straight into
the memory of the batch. Batches come in the order of the plan, so the same seed trains on the same rows in the same
order, however many hosts there are and whatever happens to them.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
import torch

from training.data.batch import Assembly, Batch
from training.data.buffers import BufferPool
from training.data.device import Staged, Stager
from training.data.reception import Reception
from training.data.schedule import OpenBatch, Schedule
from training.data.spans import Span

MAX_BUFFER_BYTES = 2 << 30
"""What the batches of one feed may take of its host's memory."""
_IN_USE, _READY = 1, 1
"""Batches that the trainer has, and that should wait for it."""
_CLOSE_SECONDS = 10.0
_TICK_SECONDS = 0.05
"""How often at least late chunks are looked for."""


class Closeable(Protocol):
    """Something that ends with the feed."""

    def close(self) -> None: ...


class Feed:
    """Iterates over `spans` (places of the plan, one span a batch) as Batch values.

    Args:
        spans: what each batch holds; consumed lazily.
        batch_rows: rows of the largest span.
        wire_shape, wire_dtype: of one image as the transform's host part leaves it.
        address: of this host; data workers connect to a free port of it.
        device: where the batches are wanted.
        prefetch_batches: batches that may be in preparation or wait for the trainer, at least one; None finds out how
            many keep every worker busy.
    """

    def __init__(
        self,
        spans: Iterable[Span],
        *,
        batch_rows: int,
        wire_shape: tuple[int, int, int],
        wire_dtype: np.dtype[np.generic],
        address: str,
        device: torch.device,
        prefetch_batches: int | None = None,
    ) -> None:
        batch_bytes = batch_rows * wire_dtype.itemsize * int(np.prod(wire_shape))
        most = max(_IN_USE + _READY + 1, MAX_BUFFER_BYTES // batch_bytes)
        if prefetch_batches is not None:
            most = min(most, _IN_USE + prefetch_batches)
        self._has_fixed_size = prefetch_batches is not None
        self._num_extra = 0
        self._pool = BufferPool(batch_rows, wire_shape, wire_dtype, pin=device.type == "cuda", most=most)
        self._stager = Stager(device)
        self._schedule = Schedule(spans, batch_rows=batch_rows, most_open=most - _IN_USE)
        self._assemblies: dict[OpenBatch, Assembly] = {}

        self._lock = threading.Condition()  # guards what both threads touch: the next five
        self._ready: deque[Staged] = deque()
        self._returned: list[Staged] = []
        self._is_wanted = False
        self._is_closed = False
        self._ending: BaseException | None = None

        self._selector = selectors.DefaultSelector()
        self._bell, self._ear = socket.socketpair()
        for end in (self._bell, self._ear):
            end.setblocking(False)
        self._selector.register(self._ear, selectors.EVENT_READ, self._hear)
        self._reception = Reception(self._selector, address, self._schedule, self._assembly_of)
        self.endpoint = self._reception.endpoint
        self.workers: Closeable | None = None
        """Who prepares, where this feed is the one to end them."""
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Batch]:
        taken = self._next()
        while taken is not None:
            yield taken.batch()
            taken = self._next(taken)

    def fail(self, error: BaseException) -> None:
        """Let the trainer raise `error` instead of waiting for a batch; may be called from any thread."""
        self._end(error)
        self._ring()

    def close(self) -> None:
        """Send the data workers away; what they have in work is lost."""
        with self._lock:
            self._is_closed = True
            self._lock.notify_all()
        self._ring()
        self._thread.join(_CLOSE_SECONDS)
        if self.workers is not None:
            self.workers.close()

    def _next(self, returned: Staged | None = None) -> Staged | None:
        """The next batch for the trainer, which has no use for the `returned` one any more; None after the last."""
        with self._lock:
            if returned is not None:
                self._returned.append(returned)
            self._is_wanted = not self._ready
            self._ring()
            self._lock.wait_for(lambda: self._ready or self._ending is not None or self._is_closed)
            self._is_wanted = False
            if self._is_closed:
                return None
            if self._ready:
                return self._ready.popleft()
            if isinstance(self._ending, StopIteration):
                return None
            assert self._ending is not None
            raise self._ending

    # From here on, what the feed's own thread does.

    def _run(self) -> None:
        try:
            while not self._is_closed and self._ending is None:
                self._take_back()
                self._resize()
                self._reception.hand_out()
                for key, _ in self._selector.select(_TICK_SECONDS):
                    key.data()
                self._pass_on()
        except BaseException as error:  # noqa: BLE001 whatever it is, the trainer must hear of it
            self._end(error)
        finally:
            self._reception.close()
            self._selector.close()
            for end in (self._bell, self._ear):
                end.close()

    def _end(self, ending: BaseException) -> None:
        with self._lock:
            self._ending = self._ending or ending
            self._lock.notify_all()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # the thread has ended, or has been rung for already
            self._bell.send(b"\0")

    def _hear(self) -> None:
        self._ear.recv(1 << 12)

    def _assembly_of(self, batch: OpenBatch) -> Assembly:
        if batch not in self._assemblies:
            self._assemblies[batch] = Assembly(batch.span, self._pool.take())
        return self._assemblies[batch]

    def _take_back(self) -> None:
        """Use the buffers again that the trainer, or the copy to its device, has done with."""
        with self._lock:
            used = [staged for staged in self._returned if staged.is_copied]
            self._returned = [staged for staged in self._returned if not staged.is_copied]
        for staged in used:
            self._pool.give_back(staged.assembly.buffer)

    def _pass_on(self) -> None:
        """Give the trainer the batches that are complete, in order."""
        complete = [self._stager.stage(self._assemblies.pop(batch)) for batch in self._schedule.take_complete()]
        if complete:
            with self._lock:
                self._ready.extend(complete)
                self._lock.notify_all()
        if self._schedule.is_exhausted:
            self._end(StopIteration())

    def _resize(self) -> None:
        """Say how many batches may be in preparation: as many as keep the workers busy.

        And one more for each time that the trainer waited while a worker was idle for lack of room.
        """
        busy_elsewhere = self._pool.num_taken - len(self._assemblies)
        if self._is_wanted and self._schedule.is_held_up:
            self._num_extra += 1
            self._is_wanted = False  # once for each time
        wanted = _IN_USE + _READY + self._schedule.wanted_open + self._num_extra
        size = self._pool.most if self._has_fixed_size else min(wanted, self._pool.most)
        self._schedule.max_open = size - busy_elsewhere
