"""Who prepares what: every row once and in order, fast workers do more, lost and slow ones hold nobody up."""

import heapq
import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.data.schedule import (
    CHUNKS_PER_WORKER,
    FIRST_CHUNK_ROWS,
    MAX_CHUNKS_PER_SECOND,
    MAX_CRASHES,
    TARGET_CHUNK_SECONDS,
    Chunk,
    PoisonedRows,
    Schedule,
    Worker,
)
from training.data.spans import Span, training_spans

BATCH = 16


def spans(num_batches: int, batch_size: int = BATCH) -> list[Span]:
    return list(training_spans(num_batches=num_batches, batch_size=batch_size, rank=0, world_size=1))


def make_schedule(num_batches: int, *, open_batches: int = 8, batch_size: int = BATCH) -> Schedule:
    schedule = Schedule(spans(num_batches, batch_size), batch_rows=batch_size, most_open=open_batches)
    schedule.max_open = open_batches
    return schedule


@dataclass
class Simulation:
    """Workers of given speeds against a schedule, in simulated time."""

    schedule: Schedule
    seconds_per_row: dict[Worker, float]
    now: float = 0.0
    batches: list[Span] = field(default_factory=list)
    rows_done: dict[Worker, int] = field(default_factory=dict)
    chunk_sizes: list[int] = field(default_factory=list)
    num_late: int = 0
    _ends: list[tuple[float, int, Worker]] = field(default_factory=list)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _lost: set[Worker] = field(default_factory=set)

    @classmethod
    def of(cls, schedule: Schedule, speeds: Mapping[str, float]) -> "Simulation":
        workers = {Worker(name): 1 / speed for name, speed in speeds.items()}
        for worker in workers:
            schedule.join(worker)
        return cls(schedule, workers)

    def worker(self, name: str) -> Worker:
        return next(worker for worker in self.seconds_per_row if worker.name == name)

    def lose(self, worker: Worker) -> None:
        self._lost.add(worker)
        self.schedule.leave(worker)

    def freeze(self, worker: Worker) -> None:
        """The worker does nothing any more, and nobody knows."""
        self._lost.add(worker)

    def deal(self) -> None:
        for worker in list(self.schedule.workers):
            was_idle = not worker.held
            while self.schedule.next_for(worker, self.now):
                pass
            assert len(worker.held) <= CHUNKS_PER_WORKER
            if was_idle and worker.held:
                self._begin(worker)

    def _begin(self, worker: Worker) -> None:
        seconds = worker.held[0].num_rows * self.seconds_per_row[worker]
        heapq.heappush(self._ends, (self.now + seconds, next(self._numbers), worker))

    def step(self) -> bool:
        """Go on to the next end of a chunk; returns whether there was one."""
        self.deal()
        while self._ends and self._ends[0][2] in self._lost:
            heapq.heappop(self._ends)
        if not self._ends:
            return False
        self.now, _, worker = heapq.heappop(self._ends)
        chunk = worker.held[0]
        cpu_seconds = chunk.num_rows * self.seconds_per_row[worker]
        is_first = self.schedule.done(worker, chunk, cpu_seconds=cpu_seconds, now=self.now)
        self.num_late += not is_first
        if is_first:
            self.rows_done[worker] = self.rows_done.get(worker, 0) + chunk.num_rows
        self.chunk_sizes.append(chunk.num_rows)
        if worker.held:
            self._begin(worker)
        self.batches += [batch.span for batch in self.schedule.take_complete()]
        return True

    def run(self, until_batches: int) -> None:
        while len(self.batches) < until_batches:
            if not self.step():
                self.now += 1.0  # nothing ends by itself: time passes, and what is late is found
            assert self.now < 1e6, "it stands still"


@settings(deadline=None)
@given(
    st.lists(st.floats(0.5, 500), min_size=1, max_size=12),
    st.integers(1, 30),
    st.integers(1, 70),
    st.integers(1, 6),
)
def test_all_batches_come_in_order_whatever_the_speeds(
    speeds: list[float], num_batches: int, batch_size: int, open_batches: int
) -> None:
    schedule = make_schedule(num_batches, open_batches=open_batches, batch_size=batch_size)
    simulation = Simulation.of(schedule, {f"w{number}": speed for number, speed in enumerate(speeds)})
    simulation.run(num_batches)
    assert simulation.batches == spans(num_batches, batch_size)
    assert sum(simulation.rows_done.values()) == num_batches * batch_size
    assert schedule.is_exhausted


@settings(deadline=None, max_examples=50)
@given(st.randoms(use_true_random=False), st.integers(2, 8))
def test_rows_of_lost_workers_are_prepared_by_others_exactly_once(chance: random.Random, num_workers: int) -> None:
    schedule = make_schedule(40)
    simulation = Simulation.of(schedule, {f"w{number}": chance.uniform(5, 50) for number in range(num_workers)})
    victims = list(simulation.seconds_per_row)[1 : 1 + min(2, num_workers - 1)]
    for victim in victims:
        for _ in range(chance.randint(1, 20)):
            simulation.step()
        simulation.lose(victim)
    simulation.run(40)
    assert simulation.batches == spans(40)
    assert sum(simulation.rows_done.values()) == 40 * BATCH


def test_hosts_of_unlike_speed_all_stay_busy() -> None:
    speeds = {"gpu": 10.0, "cpu-1": 20.0, "cpu-2": 20.0}
    simulation = Simulation.of(make_schedule(200, open_batches=4, batch_size=64), speeds)
    simulation.run(20)
    began, rows = simulation.now, sum(simulation.rows_done.values())
    simulation.run(180)
    rate = (sum(simulation.rows_done.values()) - rows) / (simulation.now - began)
    assert rate == pytest.approx(sum(speeds.values()), rel=0.02)
    for name, speed in speeds.items():
        share = simulation.rows_done[simulation.worker(name)] / sum(simulation.rows_done.values())
        assert share == pytest.approx(speed / sum(speeds.values()), rel=0.1)
    assert simulation.num_late <= 5, "in steady state no work is done twice"


def test_a_host_that_slows_down_loses_work_to_the_others() -> None:
    simulation = Simulation.of(make_schedule(300, open_batches=4, batch_size=64), {"a": 20.0, "b": 20.0})
    simulation.run(50)
    simulation.seconds_per_row[simulation.worker("b")] *= 4
    simulation.run(60)
    began, rows = simulation.now, sum(simulation.rows_done.values())
    simulation.run(250)
    rate = (sum(simulation.rows_done.values()) - rows) / (simulation.now - began)
    assert rate == pytest.approx(25.0, rel=0.03)


def test_a_worker_that_freezes_holds_the_run_up_for_a_moment_only() -> None:
    simulation = Simulation.of(make_schedule(100), {"a": 20.0, "b": 20.0, "c": 20.0})
    simulation.run(20)
    frozen = simulation.worker("b")
    simulation.freeze(frozen)
    before = simulation.now
    simulation.run(25)
    assert simulation.now - before < 10.0
    simulation.run(100)
    assert simulation.batches == spans(100)
    assert len(frozen.held) <= CHUNKS_PER_WORKER


def test_the_last_chunk_goes_to_a_worker_that_would_end_it_sooner() -> None:
    simulation = Simulation.of(make_schedule(6), {"slow": 1.0, "fast": 200.0})
    simulation.run(6)
    slow = simulation.worker("slow")
    assert simulation.rows_done[simulation.worker("fast")] > 80
    assert simulation.now < 16 / 1.0, "nobody waited until the slow one had ended a batch"
    assert len(slow.held) <= CHUNKS_PER_WORKER


def test_rows_that_cost_three_workers_their_lives_end_the_run() -> None:
    schedule = make_schedule(4)

    def lose_one_at_work() -> None:
        worker = Worker("w")
        schedule.join(worker)
        assert schedule.next_for(worker, 0.0) is not None
        schedule.next_for(worker, 0.0)
        schedule.leave(worker)

    for _ in range(MAX_CRASHES - 1):
        lose_one_at_work()
    with pytest.raises(PoisonedRows, match=r"rows 0 to 3 of the plan: 3 data workers were lost"):
        lose_one_at_work()


def test_rows_that_waited_behind_others_are_not_suspected() -> None:
    schedule = make_schedule(4)
    suspects = set()
    for number in range(2 * MAX_CRASHES - 2):
        worker = Worker(f"w{number}")
        schedule.join(worker)
        first = schedule.next_for(worker, 0.0)
        second = schedule.next_for(worker, 0.0)
        assert isinstance(first, Chunk)
        assert isinstance(second, Chunk)
        schedule.done(worker, first, cpu_seconds=0.1, now=1.0)  # the second is in work now
        suspects.add(second.start)
        schedule.leave(worker)
    assert len(suspects) >= 2


def test_nothing_is_given_out_beyond_the_batches_that_may_be_open() -> None:
    schedule = make_schedule(10, open_batches=2)
    workers = [Worker(f"w{number}") for number in range(20)]
    for worker in workers:
        schedule.join(worker)
    given_out = [chunk for worker in workers for _ in range(2) if (chunk := schedule.next_for(worker, 0.0))]
    assert sum(chunk.num_rows for chunk in given_out) == 2 * BATCH
    assert len(given_out[0].batch.chunks) == BATCH // FIRST_CHUNK_ROWS
    was_held_up = schedule.is_held_up
    schedule.max_open = 3
    assert (was_held_up, schedule.is_held_up) == (True, False)
    assert schedule.next_for(workers[-1], 0.0) is not None


@pytest.mark.parametrize(
    ("cpu_seconds_per_row", "num_workers", "rows"),
    [
        (TARGET_CHUNK_SECONDS, 2, 1),
        (TARGET_CHUNK_SECONDS / 10, 2, 10),
        (1e-6, 2, 64),
        (10.0, 2, 1),
        (TARGET_CHUNK_SECONDS / 10, int(2 * TARGET_CHUNK_SECONDS * MAX_CHUNKS_PER_SECOND), 20),
        (1e-6, 400, 8),  # 100 open batches have to keep 400 workers busy with two chunks each
    ],
)
def test_chunks_take_as_long_as_they_should(cpu_seconds_per_row: float, num_workers: int, rows: int) -> None:
    schedule = make_schedule(100, open_batches=100, batch_size=64)
    workers = [Worker(f"w{number}") for number in range(num_workers)]
    for worker in workers:
        schedule.join(worker)
    chunk = schedule.next_for(workers[0], 0.0)
    assert chunk is not None
    assert schedule.chunk_rows == FIRST_CHUNK_ROWS
    schedule.done(workers[0], chunk, cpu_seconds=cpu_seconds_per_row * chunk.num_rows, now=1.0)
    assert schedule.chunk_rows == rows


def test_no_spans_no_work() -> None:
    schedule = make_schedule(0)
    worker = Worker("w")
    schedule.join(worker)
    assert schedule.is_exhausted
    assert schedule.next_for(worker, 0.0) is None
