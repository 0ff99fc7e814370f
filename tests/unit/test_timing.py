"""What is measured of steps on a device that works while the host goes on, by clocks that the tests control."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
import torch

from tests.unit.one_rank import ROWS, make_batch
from training.data.batch import Batch
from training.metrics import StepFigures
from training.timing import Moment, StepTimer


class Machine:
    """A host's clock, and a GPU that does one thing after the other, in seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.device_is_free_at = 0.0
        self.num_waits = 0

    def spend(self, seconds: float) -> None:
        """The host does something."""
        self.now += seconds

    def give(self, seconds: float) -> None:
        """The device gets work; the host goes on at once."""
        self.device_is_free_at = max(self.device_is_free_at, self.now) + seconds

    def batches(self, seconds: float) -> Iterator[Batch]:
        """Batches that take the host some time each."""
        while True:
            self.spend(seconds)
            yield make_batch()


class FakeEvent:
    """An event on the machine's GPU; what `torch.cuda.Event` is on a real one."""

    machine: Machine

    def __init__(self, *, enable_timing: bool, blocking: bool) -> None:
        assert enable_timing, "else it has no time"
        assert blocking, "else the host spins while it waits"

    def record(self, _: object) -> None:
        self.at = max(self.machine.device_is_free_at, self.machine.now)

    def synchronize(self) -> None:
        self.machine.num_waits += self.at > self.machine.now
        self.machine.now = max(self.machine.now, self.at)

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self.at <= self.machine.now, "it has not come yet"
        assert end.at <= self.machine.now, "it has not come yet"
        return (end.at - self.at) * 1000


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(FakeEvent, "machine", machine, raising=False)
    monkeypatch.setattr("torch.cuda.Event", FakeEvent)
    monkeypatch.setattr("torch.cuda.current_stream", lambda _: None)
    monkeypatch.setattr("training.timing.time.perf_counter", lambda: machine.now)
    return machine


def run(
    machine: Machine, batches: Iterable[Batch], *, compute: float, steps: int, per_step: int = 1, device: str = "cuda"
) -> list[StepFigures]:
    """The figures of so many steps, each read when the next one has been given to the device, as the loop does it."""
    timer = StepTimer(torch.device(device))
    source = timer.timed(batches)
    figures: list[StepFigures] = []
    for _ in range(steps):
        for _ in range(per_step):
            next(source)
            (machine.give if device == "cuda" else machine.spend)(compute)
        timer.end_step()
        figures += timer.read(but=1)
    return [*figures, *timer.read()]


def test_data_that_comes_while_the_device_computes_is_not_waited_for(machine: Machine) -> None:
    first, *rest = run(machine, machine.batches(0.3), compute=1.0, steps=6)
    assert (first.wait_seconds, first.compute_seconds) == pytest.approx((0.3, 1.0))
    assert [step.wait_seconds for step in rest] == pytest.approx([0.0] * 5)
    assert [step.compute_seconds for step in rest] == pytest.approx([1.0] * 5)
    assert machine.now == pytest.approx(0.3 + 6 * 1.0)


def test_a_device_that_has_nothing_to_do_waits_for_data(machine: Machine) -> None:
    _, *rest = run(machine, machine.batches(1.5), compute=1.0, steps=6)
    assert [step.wait_seconds for step in rest] == pytest.approx([0.5] * 5)
    assert [step.compute_seconds for step in rest] == pytest.approx([1.0] * 5)


def test_the_first_batch_is_waited_for_in_full(machine: Machine) -> None:
    def slow_start() -> Iterator[Batch]:
        machine.spend(20.0)
        yield from machine.batches(0.1)

    first, second = run(machine, slow_start(), compute=1.0, steps=2)
    assert first.wait_seconds == pytest.approx(20.1)
    assert second.wait_seconds == pytest.approx(0.0)


def test_every_batch_of_a_step_counts(machine: Machine) -> None:
    steps = run(machine, machine.batches(1.5), compute=1.0, steps=3, per_step=4)
    assert [step.wait_seconds for step in steps] == pytest.approx([4 * 0.5 + 1.0, 4 * 0.5, 4 * 0.5])
    assert [step.compute_seconds for step in steps] == pytest.approx([4.0] * 3)
    assert [step.num_valid for step in steps] == [4 * ROWS] * 3
    assert [step.rows_by_host for step in steps] == [{"algo-1": 4 * ROWS}] * 3
    assert [step.preparing_cpu_seconds for step in steps] == pytest.approx([0.4] * 3)


def test_what_the_host_does_between_steps_counts_as_computing_when_the_device_stands_still(machine: Machine) -> None:
    timer = StepTimer(torch.device("cuda"))
    source = timer.timed(machine.batches(0.1))
    for _ in range(2):
        next(source)
        machine.give(1.0)
        timer.end_step()
        (figures,) = timer.read()  # a progress line is due: the device comes to its end
        machine.spend(0.7)
    assert figures.wait_seconds == pytest.approx(0.1)
    assert figures.compute_seconds == pytest.approx(0.7 + 1.0)


@pytest.mark.parametrize("per_step", [1, 5])
def test_the_host_is_never_more_than_one_batch_ahead(machine: Machine, per_step: int) -> None:
    ahead = []

    def source() -> Iterator[Batch]:
        while True:
            ahead.append(machine.device_is_free_at - machine.now)
            yield make_batch()

    run(machine, source(), compute=1.0, steps=6, per_step=per_step)
    assert max(ahead) == pytest.approx(1.0)
    assert machine.num_waits <= 6 * per_step + 1, "and waits once for each batch, which is what holds it"


def test_on_the_cpu_the_figures_mean_the_same(machine: Machine) -> None:
    steps = run(machine, machine.batches(0.5), compute=1.0, steps=4, per_step=2, device="cpu")
    assert [step.wait_seconds for step in steps] == pytest.approx([2 * 0.5] * 4)
    assert [step.compute_seconds for step in steps] == pytest.approx([2 * 1.0] * 4)


def test_the_end_of_the_batches_is_the_end() -> None:
    timer = StepTimer(torch.device("cpu"))
    assert len(list(timer.timed([make_batch()] * 3))) == 3
    timer.end_step()
    assert [step.num_valid for step in timer.read()] == [3 * ROWS]
    assert list(timer.read()) == []


def test_a_moment_on_the_cpu_has_come_when_it_is_made() -> None:
    first = Moment(torch.device("cpu"))
    second = Moment(torch.device("cpu"))
    second.wait()
    assert second.seconds_since(first) >= 0
    assert first.seconds_since(second) == -second.seconds_since(first)
