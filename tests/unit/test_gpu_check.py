"""The check that waits for a GPU: it refuses where there is none, and its rehearsal runs all of it and says so."""

import json

import pytest
import torch

from tests.benchmarks import gpu_check
from tests.benchmarks.gpu_check import EXIT_REFUSED, REHEARSED, headline
from training.contract import TrainingConfig
from training.metrics import StepTimes

CONTENDERS = {"resident", "blocking", "staged", "feed_ceiling", "feed"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "gpu_check: no CUDA device here; run it on a host with one, or try it with --device cpu --rehearse"),
        (["--rehearse"], "gpu_check: no CUDA device here; run it on a host with one, or "),
        (
            ["--device", "cpu"],
            "gpu_check: a CPU has nothing to measure here; run it on a GPU, or ",
        ),
    ],
)
def test_where_nothing_can_be_measured_it_says_so_in_one_line(
    arguments: list[str], reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert gpu_check.main(arguments) == EXIT_REFUSED
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(reason)
    assert output.err.count("\n") == 1


def test_the_rehearsal_runs_every_contender_and_is_labelled(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--device", "cpu", "--rehearse"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["status"] == REHEARSED == "rehearsal, not measured"
    assert set(printed["turns"]) == CONTENDERS
    for turns in printed["turns"].values():
        assert len(turns) == printed["conditions"]["rounds"] == 3
        assert all(turn["step_seconds"] > 0 and 0 <= turn["data_wait_share"] <= 1 for turn in turns)
    assert printed["figures"]["images_per_second"] > 0
    assert {"device", "cpus", "model", "batch_size", "precision", "versions", "at"} <= set(printed["conditions"])


def times(step_seconds: float, wait_seconds: float = 0.0) -> StepTimes:
    return StepTimes.of(num_steps=1, wait_seconds=wait_seconds, compute_seconds=step_seconds - wait_seconds)


def test_the_figures_tell_a_hidden_copy_from_one_that_is_waited_for() -> None:
    turns = {
        "resident": [times(0.100), times(0.900), times(0.100)],  # the median: one slow turn is no slow device
        "blocking": [times(0.110, 0.008)] * 3,
        "staged": [times(0.101)] * 3,
        "feed_ceiling": [times(0.100)] * 3,
        "feed": [times(0.125, 0.025)] * 3,
    }
    kind = gpu_check.make_kind(TrainingConfig(**gpu_check.TINY), "normalize", torch.device("cpu"))
    figures = headline(turns, {"pageable": 0.01, "pinned": 0.004}, kind)
    assert figures["step_seconds"] == pytest.approx(0.1)
    assert figures["images_per_second"] == pytest.approx(4 / 0.1)
    assert figures["copy_hidden_share"] == pytest.approx(0.75)
    assert figures["exposed_copy_seconds_blocking"] == pytest.approx(0.01)
    assert figures["stall_blocking"] == pytest.approx(0.008 / 0.110)
    assert (figures["stall_staged"], figures["stall_feed"]) == pytest.approx((0.0, 0.2))
    assert figures["feed_over_ceiling"] == pytest.approx(0.8)
