"""Which data worker prepares which rows next: pure decisions, without sockets and without a clock.

Every data worker holds two chunks: one in work and one behind it, so that it never waits for an answer. Whoever ends a
chunk gets the next one, which is all it takes for fast hosts to do more than slow ones. Batches are needed in order, so
a chunk that keeps the oldest open batch waiting is given out a second time: when it is late, to whoever asks; when
nothing else is left to do, to a worker that would be faster with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from training.data.spans import Span, cut

CHUNKS_PER_WORKER = 2
TARGET_CHUNK_SECONDS = 0.05
"""CPU time of one chunk: long against the 0.2 ms that handling one takes, short against a step."""
MAX_CHUNKS_PER_SECOND = 320.0
"""Over all workers. More of them get longer chunks, so that the trainer's host is not busy with dealing them out."""
FIRST_CHUNK_ROWS = 4
"""Rows of a chunk while nothing has been measured."""
LATE_FACTOR, LATE_SECONDS = 3.0, 0.25
"""A chunk is late when it has taken this many times as long as its worker's chunks take, and so many seconds more."""
MAX_CRASHES = 3
"""As often may a chunk be in work on a worker that is lost before the rows themselves are the suspects."""
_FORGETTING = 0.3
"""Weight of the newest measurement in a running average."""


class PoisonedRows(RuntimeError):
    """The data workers that had these rows in work were lost, one after the other."""


@dataclass(eq=False)
class Chunk:
    """Some rows of a batch that one worker prepares at once: places `start` to `stop` of the plan."""

    batch: OpenBatch
    start: int
    stop: int
    holders: list[Worker] = field(default_factory=list)
    is_done: bool = False
    num_crashes: int = 0

    @property
    def num_rows(self) -> int:
        """Rows in it."""
        return self.stop - self.start


@dataclass(eq=False)
class OpenBatch:
    """A batch that is being prepared; `chunks` are all of its chunks."""

    span: Span
    chunks: list[Chunk] = field(default_factory=list)
    num_missing: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether all of its rows are there."""
        return self.num_missing == 0


@dataclass(eq=False)
class Worker:
    """A connected data worker: the chunks it holds, oldest first, and how fast it is, in wall time."""

    name: str
    held: deque[Chunk] = field(default_factory=deque)
    began_at: float = 0.0
    """When it could begin with the first of `held`."""
    seconds_per_row: float | None = None

    def expected_end(self, chunk: Chunk) -> float | None:
        """When it should have ended a chunk that it holds; None while it has ended none."""
        if self.seconds_per_row is None:
            return None
        rows = 0
        for held in self.held:
            rows += held.num_rows
            if held is chunk:
                break
        return self.began_at + rows * self.seconds_per_row


class Schedule:
    """Deals out the chunks of `spans`, one span a batch, a bounded number of batches at a time.

    Args:
        spans: what each batch holds; consumed lazily.
        batch_rows: rows of the largest span.
        most_open: batches that can ever be in preparation at once.
    """

    def __init__(self, spans: Iterable[Span], *, batch_rows: int, most_open: int) -> None:
        self.max_open = 0
        """Batches that may be in preparation now; the owner changes it as the trainer takes them."""
        self.open: deque[OpenBatch] = deque()
        self.workers: set[Worker] = set()
        self._spans: Iterator[Span] = iter(spans)
        self._batch_rows = batch_rows
        self._most_open = most_open
        self._fresh: deque[Chunk] = deque()
        self._next_span: Span | None = next(self._spans, None)
        self._cpu_seconds_per_row: float | None = None

    @property
    def is_exhausted(self) -> bool:
        """Whether every batch has been taken."""
        return self._next_span is None and not self.open

    @property
    def is_held_up(self) -> bool:
        """Whether a worker is idle for no other reason than `max_open`."""
        if self._fresh or self._next_span is None or len(self.open) < self.max_open:
            return False
        return any(not worker.held for worker in self.workers)

    @property
    def wanted_open(self) -> int:
        """Batches in preparation that keep every worker busy: what they hold together, and the oldest, half done."""
        return 1 - (-len(self.workers) * CHUNKS_PER_WORKER * self.chunk_rows // self._batch_rows)

    @property
    def chunk_rows(self) -> int:
        """Rows of the next chunk."""
        if self._cpu_seconds_per_row is None:
            return min(FIRST_CHUNK_ROWS, self._batch_rows)
        seconds = max(TARGET_CHUNK_SECONDS, len(self.workers) / MAX_CHUNKS_PER_SECOND)
        wanted = round(seconds / max(self._cpu_seconds_per_row, 1e-9))
        # Never so many that the workers together could not all be busy with the batches that can be open.
        most = self._most_open * self._batch_rows // max(1, len(self.workers) * CHUNKS_PER_WORKER)
        return max(1, min(wanted, most, self._batch_rows))

    def join(self, worker: Worker) -> None:
        """A worker has connected."""
        self.workers.add(worker)

    def leave(self, worker: Worker) -> None:
        """A worker is lost: what it held, and nobody else holds, is given out again, before anything new.

        Raises:
            PoisonedRows: the chunk that it had in work has now been in work on three workers that were lost.
        """
        self.workers.discard(worker)
        for place, chunk in enumerate(worker.held):
            chunk.holders.remove(worker)
            if chunk.is_done:
                continue
            chunk.num_crashes += place == 0
            if chunk.num_crashes >= MAX_CRASHES:
                raise PoisonedRows(
                    f"rows {chunk.start} to {chunk.stop - 1} of the plan: {MAX_CRASHES} data workers were lost while "
                    "they prepared them, out of memory or killed; try smaller images or look at the hosts' logs"
                )
            if not chunk.holders:
                self._fresh.append(chunk)
        worker.held.clear()
        self._fresh = deque(sorted(self._fresh, key=lambda chunk: chunk.start))

    def next_for(self, worker: Worker, now: float) -> Chunk | None:
        """The next chunk for a worker that holds fewer than it may; None where there is nothing for it to do."""
        if len(worker.held) >= CHUNKS_PER_WORKER:
            return None
        chunk = self._late(worker, now) or self._fresh_chunk() or self._faster_here(worker, now)
        if chunk is not None:
            if not worker.held:
                worker.began_at = now
            worker.held.append(chunk)
            chunk.holders.append(worker)
        return chunk

    def done(self, worker: Worker, chunk: Chunk, *, cpu_seconds: float, now: float) -> bool:
        """A worker has ended a chunk; returns whether it is the first to do so."""
        worker.held.remove(chunk)
        chunk.holders.remove(worker)
        worker.seconds_per_row = _average(worker.seconds_per_row, (now - worker.began_at) / chunk.num_rows)
        worker.began_at = now
        self._cpu_seconds_per_row = _average(self._cpu_seconds_per_row, cpu_seconds / chunk.num_rows)
        is_first = not chunk.is_done
        if is_first:
            chunk.is_done = True
            chunk.batch.num_missing -= 1
        return is_first

    def take_complete(self) -> Iterator[OpenBatch]:
        """The batches at the front that are complete, in order; each is closed."""
        while self.open and self.open[0].is_complete:
            yield self.open.popleft()

    def _fresh_chunk(self) -> Chunk | None:
        if not self._fresh and self._next_span is not None and len(self.open) < self.max_open:
            batch = OpenBatch(self._next_span)
            batch.chunks = [Chunk(batch, *span) for span in cut(self._next_span, self.chunk_rows)]
            batch.num_missing = len(batch.chunks)
            self.open.append(batch)
            self._fresh.extend(batch.chunks)
            self._next_span = next(self._spans, None)
        return self._fresh.popleft() if self._fresh else None

    def _late(self, worker: Worker, now: float) -> Chunk | None:
        """A chunk that keeps the oldest batch waiting for much longer than its holder needs for one."""
        for chunk, expected_end, began_at in self._blocking(worker):
            if now > began_at + LATE_FACTOR * (expected_end - began_at) + LATE_SECONDS:
                return chunk
        return None

    def _faster_here(self, worker: Worker, now: float) -> Chunk | None:
        """A chunk that keeps the oldest batch waiting and that this worker, which is idle, would end sooner."""
        if worker.held or worker.seconds_per_row is None:
            return None
        for chunk, expected_end, _ in self._blocking(worker):
            if now + worker.seconds_per_row * chunk.num_rows < expected_end:
                return chunk
        return None

    def _blocking(self, worker: Worker) -> Iterator[tuple[Chunk, float, float]]:
        """Of the oldest open batch, the chunks that one other worker holds; when it should end it, when it began."""
        for chunk in self.open[0].chunks if self.open else ():
            if not chunk.is_done and len(chunk.holders) == 1 and worker not in chunk.holders:
                holder = chunk.holders[0]
                expected_end = holder.expected_end(chunk)
                if expected_end is not None:
                    yield chunk, expected_end, holder.began_at


def _average(average: float | None, value: float) -> float:
    return value if average is None else average + _FORGETTING * (value - average)
