"""The feed of one training worker: row ids go out to every CPU of the cluster, whole batches come back in order.

Ray tasks, not a Ray Data dataset (docs/adr/0002): a batch is cut into chunks small enough that the slowest CPU holds
nobody up, each chunk is one task, and Ray hands the next one to whichever CPU is free. Batches come in the order of the
plan, so the same seed trains on the same rows in the same order, however many hosts there are.
"""

import gc
import itertools
import os
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import ray
import torch
from numpy.typing import NDArray

from training.data.plan import RowPlan
from training.data.sources import Source
from training.data.transforms import Transform, prepare_batch

HOST_VARIABLE = "COUNTERPOISE_HOST"
TARGET_TASK_SECONDS = 0.4
"""CPU time of one task: long against the 2 ms that Ray takes for one, short against a step."""
FIRST_CHUNK_ROWS = 4
"""Rows of a task while nothing has been measured."""
TASKS_AHEAD_PER_CPU = 8
"""Enough that a CPU with an eighth of the others' speed finishes its chunk before the batches behind it run out."""
OBJECT_STORE_SHARE = 0.4
"""How much of the object store chunks may fill that nobody has asked for yet; Ray spills to disk at 0.8."""
DATA_NICENESS = 10
"""Preprocessing gives way to Ray's own processes and to the trainer: starved of CPU, they would idle every host."""

Span = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a data task needs to know; stored once in the cluster, read by every task."""

    source: Source
    transform: Transform
    plan: RowPlan
    image_size: int


class Part(NamedTuple):
    """Some rows of a batch: who prepared them, what CPU time that took, and when it ended by that host's clock."""

    host: str
    num_rows: int
    cpu_seconds: float
    ended_at: float


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One step's rows on the trainer's host. `images` is in wire form; rows with `valid` False could not be read."""

    images: torch.Tensor
    labels: torch.Tensor
    rows: NDArray[np.int64]
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


@ray.remote(num_cpus=1, max_retries=3)
def warm_up() -> None:
    """Pay a data worker's imports before there is work for it; the next task reuses its process."""
    become_data_worker()


def become_data_worker() -> None:
    """Give way to everything else on this host, and use one CPU."""
    if os.nice(0) < DATA_NICENESS:
        os.nice(DATA_NICENESS - os.nice(0))
        gc.freeze()  # what torch and torchvision have imported is for ever; a collection need not walk through it
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)  # one task per CPU; threads of several tasks would fight for the same ones


@ray.remote(num_cpus=1, max_retries=3)
def prepare_chunk(recipe: Recipe, start: int, stop: int) -> dict[str, Any]:
    """Prepare the rows at the places `start` to `stop` of the plan, on whichever host this runs."""
    become_data_worker()
    began = time.process_time()
    problems: dict[int, str] = {}
    chunk = prepare_batch(
        recipe.source,
        recipe.transform,
        recipe.plan.rows(start, stop),
        recipe.image_size,
        on_unreadable=lambda row, problem: problems.update({row: str(problem)}),
    )
    seconds = time.process_time() - began
    part = Part(os.environ.get(HOST_VARIABLE, ""), len(chunk["row"]), seconds, time.time())
    return {**chunk, "problems": problems, "part": part}


class _Task(NamedTuple):
    part: Span
    ref: Any


class Feed:
    """Iterates over `spans` (places of the plan, one span a batch) as Batch values, `prefetch_batches` ahead.

    Args:
        recipe: reference to the Recipe in the object store.
        spans: what each batch holds; consumed lazily.
        batch_rows: rows of the largest span.
        max_tasks: tasks that may be on the way or waiting to be used; the last batch among them is always whole.
        prefetch_batches: whole batches that may wait for the trainer, at least one.
        groups: names of the groups whose hosts prepare; None takes all.
    """

    def __init__(
        self,
        recipe: "ray.ObjectRef[Recipe]",
        spans: Iterable[Span],
        *,
        batch_rows: int,
        max_tasks: int,
        prefetch_batches: int,
        groups: Collection[str] | None = None,
    ) -> None:
        self._recipe = recipe
        selector = None if groups is None else {"group": f"in({','.join(groups)})"}
        self._prepare = prepare_chunk if selector is None else prepare_chunk.options(label_selector=selector)
        self._spans = iter(spans)
        self._batch_rows = batch_rows
        self._max_tasks = max_tasks
        # Until the first batch is there, one task per CPU: hosts that are ready early must not run far ahead.
        self._limit = max(1, max_tasks // TASKS_AHEAD_PER_CPU)
        self._pending: deque[list[_Task]] = deque()
        self._twins: list[Any] = []
        self._is_exhausted = False
        self._num_pending_tasks = 0
        self._chunk_rows = min(FIRST_CHUNK_ROWS, batch_rows)
        self._is_closed = threading.Event()
        self._ready: queue.Queue[Batch | BaseException | None] = queue.Queue(maxsize=max(1, prefetch_batches))
        self._thread = threading.Thread(target=self._produce, name="feed", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Batch]:
        while (item := self._ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    def close(self) -> None:
        """Stop preparing; what is on the way is cancelled."""
        self._is_closed.set()
        while not self._ready.empty():
            self._ready.get_nowait()
        self._cancel()  # wakes the thread if it waits for a task

    def _cancel(self) -> None:
        refs = [task.ref for tasks in list(self._pending) for task in tasks]  # a copy: the other thread may change it
        for ref in [*refs, *self._twins]:
            ray.cancel(ref)

    def _produce(self) -> None:
        try:
            self._submit()
            while self._pending and not self._is_closed.is_set():
                tasks = self._pending[0]
                chunks = self._take_last(tasks) if self._is_exhausted else ray.get([task.ref for task in tasks])
                self._pending.popleft()
                self._num_pending_tasks -= len(tasks)
                self._adapt(chunks)
                self._limit = self._max_tasks
                self._submit()
                self._put(_assemble(chunks))
            self._put(None)
        except BaseException as error:  # noqa: BLE001 whatever it is, the trainer must hear of it
            self._put(error)
        finally:
            self._cancel()  # what came onto its way while `close` ran, or has no use after an error

    def _put(self, item: Batch | BaseException | None) -> None:
        while not self._is_closed.is_set():
            try:
                self._ready.put(item, timeout=0.5)
                return
            except queue.Full:
                continue

    def _submit(self) -> None:
        """Keep as many tasks on the way as may be, and always a whole batch."""
        while self._num_pending_tasks < self._limit or not self._pending:
            span = next(self._spans, None)
            if span is None:
                self._is_exhausted = True
                return
            tasks = [_Task(part, self._prepare.remote(self._recipe, *part)) for part in cut(span, self._chunk_rows)]
            self._pending.append(tasks)
            self._num_pending_tasks += len(tasks)

    def _take_last(self, tasks: "list[_Task]") -> list[dict[str, Any]]:
        """The chunks of one of the last batches, when CPUs fall idle: what is not ready is prepared a second time.

        The twins queue behind everything else, so they only use CPUs that have nothing left to do, and they spare the
        run the time in which the slowest CPU, or a dead one, holds the last chunk. Of each pair the first one counts.
        """
        refs = [task.ref for task in tasks]
        ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)
        twins = {task: self._prepare.remote(self._recipe, *task.part) for task in tasks if task.ref not in ready}
        self._twins = list(twins.values())
        chunks = []
        for task in tasks:
            pair = [task.ref, *([twins[task]] if task in twins else [])]
            first, late = ray.wait(pair, num_returns=1)
            for ref in late:
                ray.cancel(ref)
            chunks += ray.get(first)
        return chunks

    def _adapt(self, chunks: list[dict[str, Any]]) -> None:
        """Choose the chunk size that makes a task last as long as it should, from the tasks just measured."""
        parts = [chunk["part"] for chunk in chunks]
        seconds_per_row = sum(part.cpu_seconds for part in parts) / sum(part.num_rows for part in parts)
        wanted = round(TARGET_TASK_SECONDS / max(seconds_per_row, 1e-6))
        self._chunk_rows = max(1, min(wanted, self._batch_rows))


def max_tasks_ahead(*, num_data_cpus: int, num_trainers: int, object_store_bytes: float, task_bytes: int) -> int:
    """How many tasks one of `num_trainers` training workers may keep on the way: bounded by CPUs and by memory."""
    by_cpus = num_data_cpus * TASKS_AHEAD_PER_CPU
    by_memory = int(object_store_bytes * OBJECT_STORE_SHARE / max(task_bytes, 1))
    return max(2, min(by_cpus, by_memory) // num_trainers)


def training_spans(*, num_steps: int, batch_size: int, rank: int, world_size: int) -> Iterator[Span]:
    """The places of one rank's batches: step by step, all ranks together cover the plan without a gap or an overlap."""
    for step in range(num_steps):
        start = (step * world_size + rank) * batch_size
        yield (start, start + batch_size)


def single_pass_spans(*, num_rows: int, batch_size: int, rank: int, world_size: int) -> Iterator[Span]:
    """The places of one rank's batches when every row is wanted exactly once; the last span may be short."""
    for start in range(rank * batch_size, num_rows, world_size * batch_size):
        yield (start, min(start + batch_size, num_rows))


def cut(span: Span, chunk_rows: int) -> list[Span]:
    """Cut a span into parts of at most `chunk_rows`, as even as they can be."""
    start, stop = span
    num_parts = -(-(stop - start) // chunk_rows)
    edges = [start + (stop - start) * part // num_parts for part in range(num_parts + 1)]
    return list(itertools.pairwise(edges))


def _assemble(chunks: list[dict[str, Any]]) -> Batch:
    return Batch(
        images=torch.from_numpy(np.concatenate([chunk["image"] for chunk in chunks])),
        labels=torch.from_numpy(np.concatenate([chunk["label"] for chunk in chunks])),
        rows=np.concatenate([chunk["row"] for chunk in chunks]),
        valid=np.concatenate([chunk["valid"] for chunk in chunks]),
        parts=tuple(chunk["part"] for chunk in chunks),
        problems={row: text for chunk in chunks for row, text in chunk["problems"].items()},
    )
