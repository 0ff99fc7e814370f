"""The time of steps on the device's own time line, read late, so that measuring does not make host and device wait."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import torch

from training.metrics import StepFigures

if TYPE_CHECKING:
    from training.data.batch import Batch


class Moment:
    """The moment at which a device has done all that it was given so far; on the CPU that is now."""

    def __init__(self, device: torch.device) -> None:
        self._at = time.perf_counter()
        self._event: torch.cuda.Event | None = None
        if device.type == "cuda":
            # A host that waits for it sleeps. By default it spins, on a CPU that could prepare images meanwhile.
            self._event = torch.cuda.Event(enable_timing=True, blocking=True)  # type: ignore[no-untyped-call]
            self._event.record(torch.cuda.current_stream(device))

    def wait(self) -> None:
        """Return when it has come."""
        if self._event is not None:
            self._event.synchronize()

    def seconds_since(self, earlier: Moment) -> float:
        """Seconds between two moments of one device; waits until both have come."""
        if self._event is None or earlier._event is None:
            return self._at - earlier._at
        self.wait()
        milliseconds: float = earlier._event.elapsed_time(self._event)
        return milliseconds / 1000


class StepTimer:
    """Times steps: what the device waited for batches, and the rest.

    On CUDA the host runs ahead: while the device computes with one batch, the host fetches the next and lines up its
    work. Only a device that comes to the end of its work before that has to wait for data. So the marks are set in the
    line of its work, and read when it has passed them. The host runs one batch ahead and no further: more would only
    fill the device's memory with batches.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._asked = Moment(device)
        self._step = _Step(self._asked)
        self._unread: deque[_Step] = deque()

    def timed(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The same batches; how long each was waited for, and who prepared it, counts for the step that takes it."""
        source = iter(batches)
        while True:
            before, self._asked = self._asked, Moment(self._device)
            before.wait()
            batch = next(source, None)
            if batch is None:
                return
            self._step.count(batch, asked=self._asked, came=Moment(self._device))
            yield batch

    def end_step(self) -> None:
        """The device has been given all of a step; the next one begins."""
        self._step.ended = Moment(self._device)
        self._unread.append(self._step)
        self._step = _Step(self._step.ended)

    def read(self, *, but: int = 0) -> Iterator[StepFigures]:
        """The figures, each once, of all steps but so many of the newest; waits until the device has done them."""
        while len(self._unread) > but:
            yield self._unread.popleft().figures()


class _Step:
    """What is to be read of one step."""

    def __init__(self, began: Moment) -> None:
        self.began = self.ended = began
        self._waits: list[tuple[Moment, Moment]] = []
        self._rows_by_host: Counter[str] = Counter()
        self._num_valid = 0
        self._preparing_cpu_seconds = 0.0

    def count(self, batch: Batch, *, asked: Moment, came: Moment) -> None:
        """Count a batch of this step, with the moments between which it was waited for."""
        self._waits.append((asked, came))
        self._rows_by_host.update(batch.rows_by_host)
        self._num_valid += int(batch.valid.sum())
        self._preparing_cpu_seconds += batch.cpu_seconds

    def figures(self) -> StepFigures:
        """What it comes to; waits until the device has come to its end."""
        wait_seconds = sum(came.seconds_since(asked) for asked, came in self._waits)
        return StepFigures(
            wait_seconds=wait_seconds,
            compute_seconds=self.ended.seconds_since(self.began) - wait_seconds,
            rows_by_host=self._rows_by_host,
            num_valid=self._num_valid,
            preparing_cpu_seconds=self._preparing_cpu_seconds,
        )
