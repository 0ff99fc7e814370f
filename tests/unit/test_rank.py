"""One training worker: what it sets up, what it tells, and what it knows of the others."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.one_rank import make_batch, make_rank
from training.rank import Rank


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one rank and a CPU Ray's part is to hand the model back."""
    monkeypatch.setattr("ray.train.torch.prepare_model", lambda model: model)


def events_of(rank: Rank) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rank.job.events_file.read_text().splitlines()]


def test_the_start_is_told_with_what_it_runs_on(tmp_path: Path) -> None:
    rank = make_rank(tmp_path, precision="bf16")
    rank.set_up()
    (event,) = events_of(rank)
    assert event["event"] == "training_started"
    assert (event["ranks"], event["device"], event["precision"]) == (1, "cpu", "bf16")
    assert "interface" not in event, "nothing leaves a host that trains alone"


def test_tf32_on_a_cpu_is_said_to_have_no_effect(tmp_path: Path) -> None:
    rank = make_rank(tmp_path, precision="tf32")
    rank.set_up()
    assert [event["text"] for event in events_of(rank) if event["event"] == "note"] == [
        "precision tf32 has no effect on a CPU; it computes as with fp32"
    ]


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
def test_weights_and_first_loss_follow_the_seed(tmp_path: Path, precision: str) -> None:
    losses = []
    for number, seed in enumerate((1, 1, 2)):
        folder = tmp_path / str(number)
        folder.mkdir()
        rank = make_rank(folder, seed=seed, precision=precision)
        losses.append(float(rank.set_up().step(iter([make_batch()]), rank.rows_of_all)))
    assert losses[0] == losses[1] != losses[2]


def test_a_rank_alone_is_all_ranks(tmp_path: Path) -> None:
    rank = make_rank(tmp_path, accumulate_batches=2, steps=3)
    assert (rank.sum(2.5), rank.gather("figures"), rank.rows_of_all(11)) == (2.5, ["figures"], 11)
    assert not rank.is_stopping
    rank.job.stop_file.touch()
    assert rank.is_asked_to_stop()
    rank.rows_of_all(11)
    assert rank.is_stopping


def test_batches_are_those_of_all_steps(tmp_path: Path) -> None:
    rank = make_rank(tmp_path, accumulate_batches=2, steps=3, batch_size=4)
    assert list(rank.training_spans()) == [(start, start + 4) for start in range(0, 24, 4)]
    assert rank.rows_per_step == 8


@pytest.fixture(autouse=True)
def float32_precision() -> Any:
    backends: Any = torch.backends
    operations = (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn)
    before = [operation.fp32_precision for operation in operations]
    yield
    for operation, value in zip(operations, before, strict=True):
        operation.fp32_precision = value
