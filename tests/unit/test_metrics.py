"""Where the time went: waiting apart from computing, the first step apart from the rest, ranks put together."""

from typing import Any

import pytest

from training.metrics import StepFigures, StepMeter, merge_ranks


def add(meter: StepMeter, *, wait: float, compute: float, rows: dict[str, int] | None = None, valid: int = 4) -> None:
    figures = StepFigures(
        wait_seconds=wait,
        compute_seconds=compute,
        rows_by_host=rows or {"algo-1": 4},
        num_valid=valid,
        preparing_cpu_seconds=0.2,
    )
    meter.add(figures)


def test_the_first_step_is_kept_apart() -> None:
    meter = StepMeter()
    add(meter, wait=30.0, compute=9.0, rows={"algo-1": 4})
    for _ in range(4):
        add(meter, wait=0.1, compute=0.3, rows={"algo-1": 1, "algo-2": 3}, valid=3)
    summary = meter.summary()
    assert (summary["steps"], summary["rows"]) == (5, 16)
    assert merge_ranks([summary], 4)["cpu_seconds_per_row"] == pytest.approx(4 * 0.2 / 16)
    assert (summary["first_batch_wait_seconds"], summary["first_step_compute_seconds"]) == (30.0, 9.0)
    assert summary["step_seconds"] == pytest.approx(0.4)
    assert summary["data_wait_seconds"] == pytest.approx(0.1)
    assert summary["compute_seconds"] == pytest.approx(0.3)
    assert summary["data_wait_share"] == pytest.approx(0.25)
    assert summary["rows_by_host"] == {"algo-1": 4, "algo-2": 12}
    assert 0 < summary["first_step_ended_at"] <= summary["last_step_ended_at"]


def test_a_lap_covers_the_steps_since_the_last_one() -> None:
    meter = StepMeter()
    add(meter, wait=30.0, compute=9.0)
    assert (meter.lap().num_steps, meter.lap().step_seconds) == (0, 0.0)
    for _ in range(2):
        add(meter, wait=1.0, compute=1.0)
    first = meter.lap()
    for _ in range(3):
        add(meter, wait=0.0, compute=4.0)
    second = meter.lap()
    assert (first.num_steps, first.step_seconds, first.data_wait_share) == (2, 2.0, 0.5)
    assert (second.num_steps, second.step_seconds, second.data_wait_share) == (3, 4.0, 0.0)
    assert meter.total().step_seconds == pytest.approx((2 * 2.0 + 3 * 4.0) / 5)


def test_without_a_second_step_there_is_no_rate() -> None:
    meter = StepMeter()
    assert meter.total().num_steps == 0
    add(meter, wait=30.0, compute=9.0)
    assert (meter.total().num_steps, meter.total().step_seconds, meter.total().data_wait_share) == (0, 0.0, 0.0)
    assert merge_ranks([meter.summary()], 4)["images_per_second"] == 0.0


@pytest.mark.parametrize(
    ("wait", "compute", "low", "high"),
    [(0.2, 0.05, 0.4, 1.0), (0.01, 0.2, 0.0, 0.1)],
    ids=["slow data", "slow step"],
)
def test_the_share_of_waiting_tells_slow_data_from_a_slow_step(
    wait: float, compute: float, low: float, high: float
) -> None:
    meter = StepMeter()
    add(meter, wait=60.0, compute=60.0)
    for _ in range(10):
        add(meter, wait=wait, compute=compute)
    assert low < meter.summary()["data_wait_share"] < high


def rank(**values: Any) -> dict[str, Any]:
    meter = StepMeter()
    return {**meter.summary(), "steps": 10, "rows": 40, "step_seconds": 0.5, **values}


def test_ranks_add_up_their_rows() -> None:
    merged = merge_ranks(
        [
            rank(rows=39, rows_by_host={"algo-1": 30, "algo-2": 10}, bad_rows={"3": "3.jpg: empty file"}),
            rank(rows_by_host={"algo-1": 5, "algo-3": 35}, bad_rows={"3": "3.jpg: empty file", "8": "8.jpg: x"}),
        ],
        rows_per_step=4,
    )
    assert (merged["steps"], merged["steps_per_rank"], merged["rows"]) == (10, [10, 10], 79)
    assert merged["rows_by_host"] == {"algo-1": 35, "algo-2": 10, "algo-3": 35}
    assert merged["bad_rows"] == {"3": "3.jpg: empty file", "8": "8.jpg: x"}
    assert merged["images_per_second"] == pytest.approx(2 * 4 / 0.5)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("jitter", [-1e-6, 1e-6])
def test_the_times_are_those_of_the_rank_that_the_others_wait_for(order: tuple[int, int], jitter: float) -> None:
    # The second rank has its data at once and then waits for the first one inside the sum of the gradients.
    ranks = [
        rank(step_seconds=0.6, data_wait_seconds=0.5, compute_seconds=0.1, data_wait_share=5 / 6),
        rank(step_seconds=0.6 + jitter, data_wait_seconds=0.0, compute_seconds=0.6 + jitter, data_wait_share=0.0),
    ]
    merged = merge_ranks([ranks[index] for index in order], rows_per_step=4)
    assert merged["data_wait_share"] == pytest.approx(5 / 6)
    assert merged["compute_seconds"] == 0.1
