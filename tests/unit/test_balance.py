"""Turns that measure how well hosts share the work: who prepares, what is timed, and that nothing is trained."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import training.rank
from tests.unit.one_rank import CLASSES, DESCRIPTION, ROWS, SIZE, make_batch, make_rank
from training.balance import BATCHES_OF_A_TURN, SPARE_BATCHES, measure_balance, preparing_rates
from training.data.batch import Batch, Part
from training.metrics import StepFigures
from training.models import build_model


class EndlessFeed:
    """Stands in for Feed: batches of the same rows; each instance is remembered."""

    made: list["EndlessFeed"]

    endpoint = "nowhere"
    workers: "Workers"

    def __init__(self, spans: Iterator[tuple[int, int]], **_settings: Any) -> None:
        self.spans = list(spans)
        self.num_taken, self.is_closed = 0, False
        self.made.append(self)

    def __iter__(self) -> Iterator[Batch]:
        for number, _ in enumerate(self.spans):
            self.num_taken += 1
            yield make_batch(ended_at=number * 0.5)

    def fail(self, error: BaseException) -> None:
        raise error

    def close(self) -> None:
        self.is_closed = True


class Workers:
    """Stands in for WorkerPool: only remembers whose hosts were asked for."""

    def __init__(self, _recipe: object, endpoints: list[str], *, groups: Any, on_failure: Any) -> None:
        assert endpoints == [EndlessFeed.endpoint]
        assert callable(on_failure)
        self.groups = groups


@pytest.fixture
def feeds(monkeypatch: pytest.MonkeyPatch) -> list[EndlessFeed]:
    monkeypatch.setattr(EndlessFeed, "made", [], raising=False)
    monkeypatch.setattr(training.rank, "Feed", EndlessFeed)
    monkeypatch.setattr(training.rank, "WorkerPool", Workers)
    return EndlessFeed.made


def make_model() -> torch.nn.Module:
    return build_model(DESCRIPTION.name, CLASSES, SIZE, DESCRIPTION.arguments)


def test_cpu_hosts_alone_and_all_hosts_take_turns(tmp_path: Path, feeds: list[EndlessFeed]) -> None:
    rank = make_rank(tmp_path, balance_rounds=2)
    rates = measure_balance(rank, make_model())
    assert [feed.workers.groups for feed in feeds] == [("cpu",), None, ("cpu",), None]
    assert rates is not None
    assert rates == {
        "cpu_hosts": [ROWS / 0.5] * 2,
        "cpu_hosts_cores": pytest.approx([0.1 / 0.5] * 2),
        "all_hosts": [ROWS / 0.5] * 2,
        "all_hosts_cores": pytest.approx([0.1 / 0.5] * 2),
    }
    for feed in feeds:
        assert feed.is_closed
        assert feed.num_taken == BATCHES_OF_A_TURN
        assert feed.spans[-1][1] == (BATCHES_OF_A_TURN + SPARE_BATCHES) * ROWS
    events = [json.loads(line) for line in rank.job.events_file.read_text().splitlines()]
    assert [event["hosts"] for event in events] == ["cpu_hosts", "all_hosts"] * 2


def test_a_turn_of_a_fast_job_is_long_enough_to_be_measured(tmp_path: Path, feeds: list[EndlessFeed]) -> None:
    rank = make_rank(tmp_path, balance_rounds=1)
    for _ in range(3):
        step = StepFigures(
            wait_seconds=0.02, compute_seconds=0.03, rows_by_host={}, num_valid=0, preparing_cpu_seconds=0
        )
        rank.meter.add(step)
    measure_balance(rank, make_model())
    assert [feed.num_taken for feed in feeds] == [100, 100]  # 5 s of 0.05 s each


def test_the_rate_is_the_sum_of_the_hosts_own_whatever_their_batches_waited_for() -> None:
    fast = [Part("fast", 10, 0.4, ended_at) for ended_at in (1.0, 1.5, 2.0, 2.5, 3.0)]
    slow = [Part("slow", 10, 0.4, ended_at) for ended_at in (2.0, 6.0)]
    once = [Part("once", 10, 0.4, 5.0)]
    assert preparing_rates([*slow, *reversed(fast), *once]) == pytest.approx((20.0 + 2.5, 0.8 + 0.1))
    assert preparing_rates([]) == (0.0, 0.0)


def test_turns_train_nothing(tmp_path: Path, feeds: list[EndlessFeed]) -> None:
    model = make_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    measure_balance(make_rank(tmp_path, balance_rounds=1), model)
    assert feeds
    torch.testing.assert_close(dict(model.state_dict()), before)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(("rounds", "cpu_groups"), [(0, ("cpu",)), (3, ())])
def test_nothing_is_measured_unless_asked_for_and_where_all_hosts_are_alike(
    tmp_path: Path, feeds: list[EndlessFeed], rounds: int, cpu_groups: tuple[str, ...]
) -> None:
    rank = make_rank(tmp_path, balance_rounds=rounds)
    object.__setattr__(rank.job, "cpu_groups", cpu_groups)
    assert measure_balance(rank, make_model()) is None
    assert not feeds


def test_a_request_to_stop_ends_the_turns(tmp_path: Path, feeds: list[EndlessFeed]) -> None:
    rank = make_rank(tmp_path, balance_rounds=3)
    rank.job.stop_file.touch()
    assert measure_balance(rank, make_model()) is None
    assert not feeds
