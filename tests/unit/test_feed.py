"""The feed: whole batches in the order of the plan, whoever prepares them, and nobody who does not know its key."""

import contextlib
import socket
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.feed_workers import (
    DEADLINE_SECONDS,
    ELSEWHERE,
    NUM_ROWS,
    ROW_BYTES,
    SIZE,
    LocalWorker,
    NumberedRows,
    ScriptedWorker,
    Tagged,
    make_feed,
    make_recipe,
    spans_of,
    working,
)
from training.data import reception, wire
from training.data.batch import Batch
from training.data.feed import Feed
from training.data.plan import RowPlan
from training.data.reception import DataWorkerFailed
from training.data.spans import training_spans
from training.data.worker import serve


@pytest.fixture(autouse=True)
def nobody_stays_connected() -> Iterator[None]:
    yield
    while ScriptedWorker.opened:
        ScriptedWorker.opened.pop().leave()


def rows_of(batch: Batch) -> list[int]:
    return [int(row) for row in batch.images[:, 1, 0, 0].tolist()]


def test_batches_hold_the_rows_of_the_plan_in_order() -> None:
    plan = RowPlan(NUM_ROWS, seed=3, shuffle=True)
    feed = make_feed(spans_of(80))
    with working([feed], ("algo-1", "algo-2", "algo-3"), plan=plan):
        num_batches = 0
        for span, batch in zip(spans_of(80), feed, strict=True):
            assert batch.span == span
            assert rows_of(batch) == plan.rows(*span).tolist()
            assert batch.images[:, 0, 0, 0].tolist() == plan.epochs(*span).tolist()
            assert batch.labels.tolist() == (plan.rows(*span) % 7).tolist()
            assert batch.images.shape == (16, 3, SIZE, SIZE)
            assert batch.valid.all()
            num_batches += 1
    assert num_batches == 80


def test_a_batch_says_who_prepared_it_and_what_that_cost() -> None:
    feed = make_feed(spans_of(30))
    with working([feed]):
        batches = [(batch.rows_by_host, batch.cpu_seconds, batch.parts) for batch in feed]
    for rows_by_host, cpu_seconds, parts in batches:
        assert sum(rows_by_host.values()) == 16
        assert set(rows_by_host) <= {"algo-1", "algo-2"}
        assert cpu_seconds == sum(part.cpu_seconds for part in parts) > 0
        assert all(part.ended_at > 1e9 for part in parts)


def test_workers_of_another_host_connect_by_tcp() -> None:
    feed = make_feed(spans_of(20))
    elsewhere = replace(feed.endpoint, local_name=ELSEWHERE)
    worker = threading.Thread(target=serve, args=(make_recipe(), [elsewhere], "algo-2"))
    worker.start()
    assert [row for batch in feed for row in rows_of(batch)] == list(range(20 * 16))
    feed.close()
    worker.join(DEADLINE_SECONDS)
    assert not worker.is_alive()


def test_the_last_batch_may_be_short() -> None:
    feed = make_feed([(0, 16), (16, 19)])
    with working([feed]):
        sizes = [(len(batch.images), len(batch.labels), len(batch.valid)) for batch in feed]
    assert sizes == [(16, 16, 16), (3, 3, 3)]


def test_unreadable_rows_keep_their_place_as_zeros_and_are_named() -> None:
    feed = make_feed(spans_of(20))
    problems: dict[int, str] = {}
    with working([feed], source=NumberedRows(broken=frozenset({5, 17, 300}))):
        for batch in feed:
            problems.update(batch.problems)
            bad = [row - batch.span[0] for row in batch.problems]
            assert np.flatnonzero(~batch.valid).tolist() == sorted(bad)
            assert all(not batch.images[place].any() for place in bad)
    assert problems == {5: "5.jpg: broken", 17: "17.jpg: broken", 300: "300.jpg: broken"}


def test_workers_serve_the_feeds_of_all_ranks() -> None:
    ranks = [
        make_feed(training_spans(num_batches=25, batch_size=16, rank=rank, world_size=3), batch_rows=16)
        for rank in range(3)
    ]
    found: list[list[int]] = [[], [], []]

    def read(rank: int) -> None:
        for batch in ranks[rank]:
            found[rank] += rows_of(batch)

    with working(ranks):
        readers = [threading.Thread(target=read, args=(rank,)) for rank in range(3)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(DEADLINE_SECONDS)
    plan = RowPlan(NUM_ROWS, seed=0, shuffle=False)
    assert found[1][:16] == list(range(16, 32))
    assert sorted(row for rows in found for row in rows) == sorted(plan.rows(0, 3 * 25 * 16).tolist())


def test_no_spans_no_batches() -> None:
    feed = make_feed([])
    with working([feed]):
        assert list(feed) == []


@pytest.mark.parametrize("prefetch_batches", [1, 2, 7])
def test_no_more_is_prepared_than_may_wait_for_the_trainer(prefetch_batches: int) -> None:
    feed = make_feed(spans_of(50), prefetch_batches=prefetch_batches)
    worker = ScriptedWorker(feed)
    batches = iter(feed)
    taken = threading.Thread(target=lambda: next(batches))
    taken.start()
    answered = 0
    worker.connection.settimeout(0.5)
    with contextlib.suppress(TimeoutError):  # nothing more is asked for
        while True:
            order = worker.order()
            worker.answer(order)
            answered = order.stop
    taken.join(DEADLINE_SECONDS)
    assert answered == (1 + prefetch_batches) * 16, "the batch that the trainer has, and those ahead of it"
    feed.close()


def test_rows_of_a_worker_that_is_lost_go_to_another() -> None:
    feed = make_feed(spans_of(4))
    lost = ScriptedWorker(feed)
    first, second = lost.order(), lost.order()
    lost.answer(first)
    lost.answer(second, num_bytes=ROW_BYTES // 2)
    lost.leave()
    other = ScriptedWorker(feed)
    batches = iter(feed)
    results: list[list[float]] = []
    reader = threading.Thread(target=lambda: results.extend(batch.images[:, 1, 0, 0].tolist() for batch in batches))
    reader.start()
    while (order := other.order()) != wire.END:
        other.answer(order)
    reader.join(DEADLINE_SECONDS)
    assert [row for rows in results for row in rows] == list(range(64))
    feed.close()


def test_of_a_chunk_that_two_prepare_the_first_whole_copy_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slow worker stops in the middle of its bytes; nothing that it sends later reaches the batch."""
    feed = make_feed([(0, 4)], batch_rows=4)
    slow = ScriptedWorker(feed, "slow")
    order = slow.order()
    slow.answer(order, value=-1.0, num_bytes=ROW_BYTES + 8)
    fast = ScriptedWorker(feed, "fast")
    give_out_twice(feed, monkeypatch)
    twin = fast.order()
    assert (twin.start, twin.stop) == (order.start, order.stop)
    fast.answer(twin)
    (batch,) = list(feed)
    assert batch.images[:, 1, 0, 0].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert [part.host for part in batch.parts] == ["fast"]
    slow.leave()
    feed.close()


def give_out_twice(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the schedule take what the slow worker holds for late, though no worker has been measured."""
    schedule = feed._schedule

    def late(worker: Any, _now: float) -> Any:
        held = [chunk for other in schedule.workers if other is not worker for chunk in other.held]
        return next((chunk for chunk in held if len(chunk.holders) == 1), None)

    monkeypatch.setattr(schedule, "_late", late)


def test_what_a_late_worker_of_this_host_leaves_never_reaches_a_batch_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = make_feed([(0, 4), (4, 8)], batch_rows=4)
    slow = LocalWorker(feed, "slow")
    order = slow.order()
    fast = ScriptedWorker(feed, "fast")
    give_out_twice(feed, monkeypatch)
    twin = fast.order()
    assert (twin.start, twin.stop) == (order.start, order.stop)
    fast.answer(twin)
    batches = iter(feed)
    first = next(batches)
    slow.answer(order, value=-1.0)
    for _ in range(2):  # the second half of the slow worker's orders, whoever gets which
        late = slow.order()
        slow.answer(late)
        if late.start == 4:
            break
    assert first.images[:, 1, 0, 0].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert next(batches).images[:, 1, 0, 0].tolist() == [4.0, 5.0, 6.0, 7.0]
    slow.leave()
    feed.close()


def test_rooms_are_used_in_turn_and_grow_with_the_chunks() -> None:
    feed = make_feed([(0, 1), (1, 3), (3, 7), (7, 11), (11, 12)], batch_rows=4)
    worker = LocalWorker(feed, "algo-1")
    batches = iter(feed)
    rows: list[int] = []
    while len(rows) < 12:
        order = worker.order()
        worker.answer(order)
        if order.stop in (1, 3, 7, 11, 12):
            rows += rows_of(next(batches))
    assert rows == list(range(12))
    worker.leave()
    feed.close()


def test_a_worker_that_tells_of_images_it_has_not_left_is_sent_away() -> None:
    feed = make_feed(spans_of(3))
    liar = LocalWorker(feed, "liar")
    liar.connection.sendall(liar.head_of(liar.order()))
    with working([feed]):
        rows = [row for batch in feed for row in rows_of(batch)]
        with contextlib.suppress(ConnectionResetError):
            while liar.connection.recv(
                1 << 16
            ):  # it had a second order; then comes the end, also of a feed that goes on
                pass
    assert rows == list(range(48))
    liar.leave()


def num_open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_memory_from_a_stranger_is_not_taken() -> None:
    feed = make_feed(spans_of(2))
    num_open = num_open_files()
    with socket.socket(socket.AF_UNIX) as stranger, tempfile.TemporaryFile() as room:
        stranger.settimeout(DEADLINE_SECONDS)
        stranger.connect(f"\0{feed.endpoint.local_name}")
        socket.send_fds(stranger, [b"GET / HTTP/1.1"], [room.fileno()])
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    with working([feed]):
        assert len(list(feed)) == 2
    assert num_open_files() <= num_open


def test_what_a_worker_raises_reaches_the_trainer_cause_first() -> None:
    feed = make_feed(spans_of(20))
    with (
        working([feed], transform=Tagged(failing=40)),
        pytest.raises(
            DataWorkerFailed, match=r"^ValueError: no such colour in row 40 \(preparing rows on algo-[12]\)\nTraceback"
        ),
    ):
        list(feed)


def test_a_failure_of_the_pool_reaches_a_trainer_that_waits() -> None:
    feed = make_feed(spans_of(2))
    failing = threading.Timer(0.0, feed.fail, [RuntimeError("no place for workers")])
    failing.start()
    with pytest.raises(RuntimeError, match="no place for workers"):
        next(iter(feed))
    feed.close()


def test_a_feed_that_has_no_worker_for_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reception, "_WORKERLESS_SECONDS", 0.0)
    feed = make_feed(spans_of(2))
    with pytest.raises(DataWorkerFailed, match="no data worker has been connected for 0 s"):
        next(iter(feed))
    feed.close()


def test_closing_ends_workers_and_a_trainer_that_waits() -> None:
    feed = make_feed(spans_of(50))
    worker = ScriptedWorker(feed)
    ended = threading.Event()

    def read() -> None:
        list(feed)
        ended.set()

    reader = threading.Thread(target=read)
    reader.start()
    worker.order()
    feed.close()
    assert ended.wait(DEADLINE_SECONDS)
    while worker.order() != wire.END:
        pass
    assert not feed._thread.is_alive()
    reader.join(DEADLINE_SECONDS)


@pytest.mark.parametrize("hello", [b"GET / HTTP/1.1\r\n\r\n".ljust(wire.HELLO_BYTES), b"\0" * wire.HELLO_BYTES])
def test_a_stranger_gets_no_answer_and_disturbs_nobody(hello: bytes) -> None:
    feed = make_feed(spans_of(10))
    with socket.create_connection((feed.endpoint.host, feed.endpoint.port), timeout=DEADLINE_SECONDS) as stranger:
        stranger.sendall(hello)
        with contextlib.suppress(ConnectionResetError):  # as good an end
            assert stranger.recv(1) == b""
        with working([feed]):
            assert len(list(feed)) == 10


def test_a_hello_that_was_overheard_opens_nothing() -> None:
    feed = make_feed(spans_of(1))
    side = wire.FeedSide(feed.endpoint.key)
    nonce = b"n" * 16
    overheard = nonce + wire._prove(feed.endpoint.key, b"hello", nonce)
    with socket.create_connection((feed.endpoint.host, feed.endpoint.port), timeout=DEADLINE_SECONDS) as stranger:
        stranger.sendall(overheard)
        assert len(wire.receive_exactly(stranger, len(side.welcome(overheard)))) > 0
        stranger.sendall(b"\0" * wire.ANSWER_BYTES)
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    feed.close()


def test_a_worker_does_not_serve_a_feed_with_another_key() -> None:
    feed = make_feed(spans_of(1))
    other = replace(feed.endpoint, key=b"k" * 32)
    with pytest.raises(ConnectionError):
        wire.connect(other, "algo-1")
    assert "key" not in repr(feed.endpoint)
    feed.close()
