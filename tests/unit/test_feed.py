"""The feed of a training worker: which rows each rank gets, and batches in order whatever the cluster does."""

import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.data import feed as feed_module
from training.data.feed import (
    FIRST_CHUNK_ROWS,
    OBJECT_STORE_SHARE,
    TARGET_TASK_SECONDS,
    TASKS_AHEAD_PER_CPU,
    Feed,
    Part,
    Recipe,
    Span,
    cut,
    max_tasks_ahead,
    single_pass_spans,
    training_spans,
)
from training.data.image_folder import ImageFolder
from training.data.plan import RowPlan
from training.data.synthetic import Synthetic
from training.data.transforms import Normalize

DEADLINE_SECONDS = 60.0
IMAGES = Path(__file__).resolve().parents[1] / "cases" / "images"


@given(st.integers(0, 10**6), st.integers(1, 300), st.integers(1, 300))
def test_a_cut_span_is_covered_evenly_by_parts_within_the_limit(start: int, length: int, chunk_rows: int) -> None:
    parts = cut((start, start + length), chunk_rows)
    assert parts[0][0] == start
    assert parts[-1][1] == start + length
    assert all(before[1] == after[0] for before, after in itertools.pairwise(parts))
    sizes = [stop - begin for begin, stop in parts]
    assert max(sizes) <= chunk_rows
    assert max(sizes) - min(sizes) <= 1
    assert len(parts) == -(-length // chunk_rows)


@given(st.integers(0, 20), st.integers(1, 16), st.integers(1, 8))
def test_ranks_tile_the_plan_and_make_the_same_number_of_steps(steps: int, batch_size: int, world_size: int) -> None:
    ranks = [
        list(training_spans(num_steps=steps, batch_size=batch_size, rank=rank, world_size=world_size))
        for rank in range(world_size)
    ]
    assert [len(spans) for spans in ranks] == [steps] * world_size
    _check_tiling((span for spans in ranks for span in spans), steps * batch_size * world_size)


@pytest.mark.parametrize(("rows", "workers", "batch"), [(10, 3, 4), (129, 2, 64), (63, 1, 64), (1000, 3, 64)])
def test_rows_that_do_not_divide_leave_no_rank_behind(rows: int, workers: int, batch: int) -> None:
    plan = RowPlan(rows, seed=1, shuffle=True)
    seen: list[int] = []
    for rank in range(workers):
        spans = list(training_spans(num_steps=20, batch_size=batch, rank=rank, world_size=workers))
        assert [stop - start for start, stop in spans] == [batch] * 20
        seen += [row for span in spans for row in plan.rows(*span).tolist()]
    counts = np.bincount(seen, minlength=rows)
    assert counts.max() - counts.min() <= 1, "an epoch has every row once, so none is ahead by more than one"


@given(st.integers(0, 400), st.integers(1, 32), st.integers(1, 8))
def test_a_single_pass_has_every_row_once_over_all_ranks(num_rows: int, batch_size: int, world_size: int) -> None:
    ranks = range(world_size)
    spans = [
        span
        for rank in ranks
        for span in single_pass_spans(num_rows=num_rows, batch_size=batch_size, rank=rank, world_size=world_size)
    ]
    assert all(0 < stop - start <= batch_size for start, stop in spans)
    _check_tiling(spans, num_rows)


def _check_tiling(spans: Iterable[Span], end: int) -> None:
    """The spans touch without a gap or an overlap, from 0 to `end`."""
    reached = 0
    for start, stop in sorted(spans):
        assert start == reached
        reached = stop
    assert reached == end


@given(st.integers(1, 500), st.integers(1, 16), st.floats(0, 1e12), st.integers(1, 10**9))
def test_tasks_ahead_are_bounded_by_cpus_and_memory(cpus: int, trainers: int, store: float, task_bytes: int) -> None:
    tasks = max_tasks_ahead(num_data_cpus=cpus, num_trainers=trainers, object_store_bytes=store, task_bytes=task_bytes)
    assert tasks >= 2
    if tasks > 2:
        assert tasks * trainers <= cpus * TASKS_AHEAD_PER_CPU
        assert tasks * trainers * task_bytes <= store * OBJECT_STORE_SHARE


def test_tasks_ahead_use_what_there_is() -> None:
    assert max_tasks_ahead(num_data_cpus=20, num_trainers=1, object_store_bytes=1e12, task_bytes=1) == (
        20 * TASKS_AHEAD_PER_CPU
    )
    assert max_tasks_ahead(num_data_cpus=20, num_trainers=1, object_store_bytes=0.0, task_bytes=0) == 2


class Task:
    """What stands for a reference to a task: the span it was asked for and, at some time, its end."""

    def __init__(self, start: int, stop: int) -> None:
        self.span = (start, stop)
        self.ended = threading.Event()
        self.is_cancelled = False


class Cluster:
    """Stands in for Ray in the feed's module: tasks end when the test, or the policy it gives, says so."""

    def __init__(self, *, seconds_per_row: float = 0.01, ends_at_once: bool = True) -> None:
        self.seconds_per_row = seconds_per_row
        self.ends_at_once = ends_at_once
        self.tasks: list[Task] = []
        self.failing: dict[int, Exception] = {}
        self.pending = 0
        self.label_selector: dict[str, str] | None = None
        self.peaks: list[int] = []
        """Tasks on the way after each submission."""
        self._submitted = threading.Condition()

    def options(self, *, label_selector: dict[str, str]) -> "Cluster":
        self.label_selector = label_selector
        return self

    def remote(self, recipe: object, start: int, stop: int) -> Task:
        assert recipe == "recipe"
        task = Task(start, stop)
        if self.ends_at_once:
            task.ended.set()
        with self._submitted:
            self.tasks.append(task)
            self.pending += 1
            self.peaks.append(self.pending)
            self._submitted.notify_all()
        return task

    def get(self, tasks: list[Task]) -> list[dict[str, Any]]:
        for task in tasks:
            assert task.ended.wait(DEADLINE_SECONDS), f"nobody ended the task of {task.span}"
            if task.is_cancelled:
                raise RuntimeError("task was cancelled")
            if task.span[0] in self.failing:
                raise self.failing[task.span[0]]
        self.pending -= len(tasks)
        return [self.chunk(*task.span) for task in tasks]

    def wait(
        self, tasks: list[Task], *, num_returns: int, timeout: float | None = None, fetch_local: bool = True
    ) -> tuple[list[Task], list[Task]]:
        del fetch_local
        deadline = time.monotonic() + DEADLINE_SECONDS
        while timeout is None and not any(task.ended.wait(0.005) for task in tasks):
            assert time.monotonic() < deadline, "nobody ended one of the tasks"
        ready = [task for task in tasks if task.ended.is_set()][:num_returns]
        return ready, [task for task in tasks if task not in ready]

    def cancel(self, task: Task) -> None:
        if not task.ended.is_set():
            task.is_cancelled = True
            task.ended.set()

    def chunk(self, start: int, stop: int) -> dict[str, Any]:
        rows = np.arange(start, stop)
        return {
            "image": np.repeat(rows.astype(np.float32), 3).reshape(-1, 3, 1, 1),
            "label": rows % 7,
            "row": rows,
            "valid": rows % 5 != 0,
            "problems": {row: f"{row}.jpg: broken" for row in rows.tolist() if row % 5 == 0},
            "part": Part(f"host-{start % 2}", len(rows), self.seconds_per_row * len(rows), ended_at=float(stop)),
        }

    def wait_for_tasks(self, count: int) -> None:
        with self._submitted:
            assert self._submitted.wait_for(lambda: len(self.tasks) >= count, DEADLINE_SECONDS)


MakeFeed = Callable[..., Feed]


@pytest.fixture
def make_feed(monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeFeed]:
    feeds: list[Feed] = []

    def make(cluster: Cluster, spans: Iterable[Span], **settings: Any) -> Feed:
        monkeypatch.setattr(
            feed_module, "ray", SimpleNamespace(get=cluster.get, cancel=cluster.cancel, wait=cluster.wait)
        )
        monkeypatch.setattr(feed_module, "prepare_chunk", cluster)
        values = {"batch_rows": 16, "max_tasks": 12, "prefetch_batches": 2, **settings}
        feeds.append(Feed(cast(Any, "recipe"), spans, **values))
        return feeds[-1]

    yield make
    for feed in feeds:
        feed.close()
        _join(feed)


def _join(feed: Feed) -> None:
    feed._thread.join(DEADLINE_SECONDS)
    assert not feed._thread.is_alive()


def spans_of(num_batches: int, rows: int = 16) -> list[Span]:
    return [(batch * rows, (batch + 1) * rows) for batch in range(num_batches)]


def test_batches_come_in_order_when_tasks_end_in_any(make_feed: MakeFeed) -> None:
    cluster = Cluster(ends_at_once=False)
    feed = make_feed(cluster, spans_of(20))
    shuffle = random.Random(3).shuffle
    ender_stops = threading.Event()

    def end_tasks() -> None:
        while not ender_stops.is_set():
            running = [task for task in list(cluster.tasks) if not task.ended.is_set()]
            shuffle(running)
            for task in running:
                task.ended.set()
            ender_stops.wait(0.001)

    ender = threading.Thread(target=end_tasks)
    ender.start()
    try:
        batches = list(feed)
    finally:
        ender_stops.set()
        ender.join(DEADLINE_SECONDS)
    assert [batch.rows.tolist() for batch in batches] == [list(range(*span)) for span in spans_of(20)]


def test_a_later_task_does_not_overtake_an_earlier_batch(make_feed: MakeFeed) -> None:
    cluster = Cluster(ends_at_once=False)
    parts = len(cut((0, 16), FIRST_CHUNK_ROWS))
    feed = make_feed(cluster, spans_of(3), max_tasks=(parts + 1) * TASKS_AHEAD_PER_CPU)
    cluster.wait_for_tasks(2 * parts)
    second = [task for task in cluster.tasks if task.span[0] >= 16]
    assert second
    for task in second:
        task.ended.set()
    assert feed._ready.empty()
    cluster.ends_at_once = True
    for task in cluster.tasks:
        task.ended.set()
    assert [int(batch.rows[0]) for batch in feed] == [0, 16, 32]


def test_no_more_tasks_are_on_the_way_than_allowed_but_for_the_rest_of_a_batch(make_feed: MakeFeed) -> None:
    cluster = Cluster(seconds_per_row=TARGET_TASK_SECONDS)  # one row a task, so 16 tasks a batch
    max_tasks = 10 * TASKS_AHEAD_PER_CPU
    num_batches = 3 * max_tasks // 16
    assert len(list(make_feed(cluster, spans_of(num_batches), max_tasks=max_tasks))) == num_batches
    assert max_tasks <= max(cluster.peaks) <= max_tasks - 1 + 16


def test_until_the_first_batch_is_there_each_cpu_has_one_task(make_feed: MakeFeed) -> None:
    cluster = Cluster(ends_at_once=False)
    parts = len(cut((0, 16), FIRST_CHUNK_ROWS))
    feed = make_feed(cluster, spans_of(30), max_tasks=6 * TASKS_AHEAD_PER_CPU)
    cluster.wait_for_tasks(6)
    feed.close()
    _join(feed)
    assert 6 <= len(cluster.tasks) <= 6 - 1 + parts


def test_a_whole_batch_is_always_on_the_way(make_feed: MakeFeed) -> None:
    cluster = Cluster(seconds_per_row=1.0)
    assert len(list(make_feed(cluster, spans_of(5), max_tasks=2))) == 5


@pytest.mark.parametrize("seconds_per_row", [1e-9, 0.01, 0.1, 0.3, 40.0])
def test_chunks_get_the_size_that_lasts_as_long_as_a_task_should(make_feed: MakeFeed, seconds_per_row: float) -> None:
    cluster = Cluster(seconds_per_row=seconds_per_row)
    list(make_feed(cluster, spans_of(12), max_tasks=1))
    sizes = [task.span[1] - task.span[0] for task in cluster.tasks]
    assert max(sizes[: len(cut((0, 16), FIRST_CHUNK_ROWS))]) <= FIRST_CHUNK_ROWS
    wanted = max(1, min(16, round(TARGET_TASK_SECONDS / seconds_per_row)))
    assert sizes[-1] == cut((0, 16), wanted)[-1][1] - cut((0, 16), wanted)[-1][0]


def test_a_batch_says_where_its_rows_were_prepared_and_which_are_broken(make_feed: MakeFeed) -> None:
    cluster = Cluster()
    first, last = list(make_feed(cluster, [(1, 17), (17, 20)], batch_rows=16))
    assert (first.images.shape, first.images.dtype) == ((16, 3, 1, 1), torch.float32)
    assert (first.labels.dtype, first.labels.tolist()) == (torch.int64, [row % 7 for row in range(1, 17)])
    assert sum(first.rows_by_host.values()) == 16
    assert set(first.rows_by_host) <= {"host-0", "host-1"}
    assert dict(first.problems) == {row: f"{row}.jpg: broken" for row in (5, 10, 15)}
    assert first.rows[~first.valid].tolist() == [5, 10, 15]
    assert last.rows.tolist() == [17, 18, 19]
    first.images[0] = 0  # a copy of its own: what Ray hands out may not be written to


def test_a_slow_task_does_not_hold_the_last_batch(make_feed: MakeFeed) -> None:
    cluster = Cluster(ends_at_once=False)
    parts = len(cut((0, 16), FIRST_CHUNK_ROWS))
    feed = make_feed(cluster, spans_of(1), max_tasks=(parts + 1) * TASKS_AHEAD_PER_CPU)
    cluster.wait_for_tasks(2 * parts)  # nothing was left to hand out, so each got a twin
    slow, *others = cluster.tasks[:parts]
    twin = next(task for task in cluster.tasks[parts:] if task.span == slow.span)
    for task in [*others, twin]:
        task.ended.set()
    assert [batch.rows.tolist() for batch in feed] == [list(range(16))]
    assert slow.is_cancelled
    assert len(cluster.tasks) == 2 * parts


def test_no_spans_no_batches(make_feed: MakeFeed) -> None:
    assert list(make_feed(Cluster(), [])) == []


def test_what_a_task_raises_reaches_the_trainer_and_the_rest_is_cancelled(make_feed: MakeFeed) -> None:
    cluster = Cluster(ends_at_once=False)
    cluster.failing = {16: ValueError("no such transform")}
    parts = len(cut((0, 16), FIRST_CHUNK_ROWS))
    feed = make_feed(cluster, spans_of(9), max_tasks=4 * parts * TASKS_AHEAD_PER_CPU)
    cluster.wait_for_tasks(4 * parts)
    ending = [task for task in cluster.tasks if task.span[1] <= 32]
    for task in ending:
        task.ended.set()
    batches = iter(feed)
    assert int(next(batches).rows[0]) == 0
    with pytest.raises(ValueError, match="no such transform"):
        next(batches)
    _join(feed)
    assert {task for task in cluster.tasks if task.is_cancelled} == set(cluster.tasks) - set(ending)


def test_closing_ends_the_thread_that_waits_for_a_task(make_feed: MakeFeed) -> None:
    cluster = Cluster(ends_at_once=False)
    feed = make_feed(cluster, spans_of(9))
    cluster.wait_for_tasks(2)
    feed.close()
    _join(feed)
    assert all(task.is_cancelled for task in cluster.tasks)


def test_closing_ends_the_thread_that_waits_for_the_trainer(make_feed: MakeFeed) -> None:
    cluster = Cluster()
    feed = make_feed(cluster, spans_of(1000), prefetch_batches=1)
    next(iter(feed))
    feed.close()
    _join(feed)
    assert len(cluster.tasks) < 1000


def test_a_closed_feed_leaves_no_task_behind_that_came_late(make_feed: MakeFeed) -> None:
    cluster = Cluster(ends_at_once=False)
    is_closed, is_asked = threading.Event(), threading.Event()

    def spans() -> Iterator[Span]:
        yield (0, 16)
        is_asked.set()
        assert is_closed.wait(DEADLINE_SECONDS)
        yield (16, 32)

    feed = make_feed(cluster, spans(), max_tasks=100)
    assert is_asked.wait(DEADLINE_SECONDS)
    feed.close()
    is_closed.set()
    _join(feed)
    assert [task.is_cancelled for task in cluster.tasks] == [True] * len(cluster.tasks)
    assert max(task.span[1] for task in cluster.tasks) == 32


def prepare_here(recipe: Recipe, start: int, stop: int) -> dict[str, Any]:
    """What the task does, in this process."""
    task: Any = feed_module.prepare_chunk
    chunk: dict[str, Any] = task._function(recipe, start, stop)
    return chunk


def test_a_data_task_prepares_the_rows_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "become_data_worker", lambda: None)
    monkeypatch.setenv(feed_module.HOST_VARIABLE, "algo-2")
    plan = RowPlan(10, seed=4, shuffle=True)
    recipe = Recipe(source=Synthetic(10, 3, 8, 0), transform=Normalize(), plan=plan, image_size=8)
    chunk = prepare_here(recipe, 3, 7)
    assert chunk["row"].tolist() == plan.rows(3, 7).tolist()
    assert chunk["image"].shape == (4, 8, 8, 3)
    assert (chunk["part"].host, chunk["part"].num_rows, chunk["problems"]) == ("algo-2", len(chunk["row"]), {})
    assert chunk["part"].cpu_seconds >= 0


def test_a_data_task_names_the_files_that_it_could_not_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(feed_module, "become_data_worker", lambda: None)
    (tmp_path / "cat").symlink_to(IMAGES)
    source = ImageFolder(tmp_path, 8)
    plan = RowPlan(source.num_rows, seed=0, shuffle=False)
    recipe = Recipe(source=source, transform=Normalize(), plan=plan, image_size=8)
    chunk = prepare_here(recipe, 0, source.num_rows)
    names = {text.partition(":")[0] for text in chunk["problems"].values()}
    assert names == {"cat/error_page.jpg", "cat/truncated.jpg", "cat/zero_bytes.jpg"}
    assert sorted(chunk["problems"]) == chunk["row"][~chunk["valid"]].tolist()


@pytest.mark.parametrize(("niceness", "steps"), [(0, [10]), (4, [6]), (10, []), (19, [])])
def test_a_data_worker_gives_way_and_uses_one_thread(
    monkeypatch: pytest.MonkeyPatch, niceness: int, steps: list[int]
) -> None:
    nicer: list[int] = []
    threads: list[int] = []
    monkeypatch.setattr(os, "nice", lambda step: nicer.append(step) if step else niceness)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    feed_module.become_data_worker()
    assert (nicer, threads) == (steps, [1])


def test_a_feed_of_some_groups_asks_for_their_hosts_only(make_feed: MakeFeed) -> None:
    everywhere, somewhere = Cluster(), Cluster()
    list(make_feed(everywhere, [(0, 16)]))
    list(make_feed(somewhere, [(0, 16)], groups=("cpu", "spare")))
    assert everywhere.label_selector is None
    assert somewhere.label_selector == {"group": "in(cpu,spare)"}
