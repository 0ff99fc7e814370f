"""The training loop on one CPU without Ray: what it reports, what it leaves behind, and when it gives up."""

import contextlib
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from tests.unit.one_rank import CLASSES, DESCRIPTION, ROWS, make_batch, make_rank
from training import checkpoints
from training.checkpointer import Checkpointer
from training.contract import TrainingConfig
from training.data.batch import Batch
from training.loop import _run_steps, _score
from training.models import load_model
from training.numerics import build_for_training
from training.rank import SUMMARY_FILE, BadFiles, Rank, TrainJob, check_bad_share
from training.step import Learner, LossNotFinite


def make_learner(rank: Rank, model: nn.Module | None = None) -> Learner:
    torch.manual_seed(0)
    model = model or build_for_training(DESCRIPTION, rank.job.config)
    return Learner(model, rank.numerics, num_classes=CLASSES)


def run_steps(rank: Rank, batches: Iterable[Batch]) -> bool:
    learner = make_learner(rank)
    with contextlib.closing(Checkpointer(rank, learner)) as checkpointer:
        is_stopped = _run_steps(rank, learner, batches, checkpointer)
    rank.finish(learner.model, stopped=is_stopped, accuracy=None, balance=None)
    return is_stopped


def events_of(rank: Rank) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rank.job.events_file.read_text().splitlines()]


def summary_of(rank: Rank) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((rank.job.output_dir / SUMMARY_FILE).read_text())
    return summary


def test_a_run_reports_its_steps_and_leaves_model_and_summary(tmp_path: Path) -> None:
    rank = make_rank(tmp_path, steps=5)
    assert run_steps(rank, [make_batch()] * 5) is False
    events = events_of(rank)
    assert [event["event"] for event in events] == ["first_step", "step", "step", "model_saved"]
    assert [event["step"] for event in events if event["event"] == "step"] == [2, 4]
    for event in events[1:3]:
        assert event["steps"] == 5
        assert event["step_seconds"] == pytest.approx(event["data_wait_seconds"] + event["compute_seconds"], abs=1e-5)
        assert event["images_per_second"] == pytest.approx(ROWS / event["step_seconds"], rel=0.01)
        assert event["loss"] > 0
    summary = summary_of(rank)
    assert (summary["steps"], summary["rows"], summary["stopped"]) == (5, 5 * ROWS, False)
    assert summary["rows_by_host"] == {"algo-1": 4 * ROWS}
    assert summary["images_per_second"] == pytest.approx(ROWS / summary["step_seconds"])
    assert summary["loss"] == pytest.approx(events[2]["loss"], rel=0.5)
    assert load_model(rank.job.model_dir)[1] == DESCRIPTION
    assert sorted(path.name for path in rank.job.output_dir.iterdir()) == [SUMMARY_FILE]


def test_a_step_of_several_batches_counts_all_of_their_rows(tmp_path: Path) -> None:
    rank = make_rank(tmp_path, steps=4, accumulate_batches=3)
    batches = iter([make_batch()] * 13)
    run_steps(rank, batches)
    assert len(list(batches)) == 1
    summary = summary_of(rank)
    assert (summary["steps"], summary["rows"], summary["rows_by_host"]) == (4, 12 * ROWS, {"algo-1": 9 * ROWS})
    assert summary["images_per_second"] == pytest.approx(3 * ROWS / summary["step_seconds"])
    (event,) = (event for event in events_of(rank) if event.get("step") == 2)
    assert event["images_per_second"] == pytest.approx(3 * ROWS / event["step_seconds"], rel=0.01)


def test_epochs_say_how_many_steps_there_are(tmp_path: Path) -> None:
    rank = make_rank(tmp_path, epochs=1, accumulate_batches=2)
    assert rank.num_steps == 9, "100 rows, 12 in a step"
    assert len(list(rank.training_spans())) == 18
    run_steps(rank, [make_batch()] * 18)
    assert summary_of(rank)["steps"] == 9
    assert {event["steps"] for event in events_of(rank) if event["event"] == "step"} == {9}


def test_a_report_of_the_first_step_claims_no_rate(tmp_path: Path) -> None:
    rank = make_rank(tmp_path, steps=1, report_every_steps=1)
    run_steps(rank, [make_batch()])
    (event,) = (event for event in events_of(rank) if event["event"] == "step")
    assert set(event) == {"event", "step", "steps", "loss", "at"}


def test_a_request_to_stop_ends_the_run_after_a_step(tmp_path: Path) -> None:
    rank = make_rank(tmp_path, steps=5)

    def batches() -> Iterable[Batch]:
        for number in range(5):
            if number == 2:
                rank.job.stop_file.touch()
            yield make_batch()

    assert run_steps(rank, batches()) is True
    names = [event["event"] for event in events_of(rank)]
    assert names == ["first_step", "step", "stopped", "model_saved"]
    summary = summary_of(rank)
    assert (summary["stopped"], summary["steps"], summary["rows"]) == (True, 3, 3 * ROWS)
    assert summary["loss"] > 0


def test_a_stop_after_the_last_step_is_too_late_to_count(tmp_path: Path) -> None:
    rank = make_rank(tmp_path, steps=1)
    rank.job.stop_file.touch()
    assert run_steps(rank, [make_batch()]) is False


def test_a_rank_that_does_not_report_writes_nothing(tmp_path: Path) -> None:
    rank = make_rank(tmp_path, is_reporting=False, steps=2)
    run_steps(rank, [make_batch()] * 2)
    assert [path.name for path in tmp_path.iterdir()] == ["events.jsonl"]
    assert rank.job.events_file.read_text() == ""


def test_unreadable_files_are_named_once_and_left_out_of_the_count(tmp_path: Path) -> None:
    rank = make_rank(tmp_path, steps=3, max_bad_share=0.02)
    run_steps(rank, [make_batch([True, False, True, True, False, True])] * 3)
    reasons = [event["reason"] for event in events_of(rank) if event["event"] == "unreadable"]
    assert reasons == ["1.jpg: broken", "4.jpg: broken"]
    summary = summary_of(rank)
    assert (summary["rows"], summary["bad_rows"]) == (3 * 4, {"1": "1.jpg: broken", "4": "4.jpg: broken"})


def test_too_many_unreadable_files_end_the_run_with_their_names(tmp_path: Path) -> None:
    rank = make_rank(tmp_path, steps=3, max_bad_share=0.01)
    with pytest.raises(BadFiles) as failure:
        run_steps(rank, [make_batch([True, False, True, True, False, True])] * 3)
    assert str(failure.value) == (
        "2 of 100 images are unreadable, allowed: 0.01 of all (max_bad_share); "
        "first: 1.jpg: broken; 4.jpg: broken; mend or remove them, or raise the limit"
    )
    assert not rank.job.model_dir.exists()


def bad_share_job(share: float, num_rows: int) -> TrainJob:
    config = TrainingConfig(max_bad_share=share)
    return cast(TrainJob, SimpleNamespace(config=config, num_training_rows=num_rows - 10, num_validation_rows=10))


@pytest.mark.parametrize(("share", "num_rows", "allowed"), [(0.0, 100, 0), (0.01, 150, 1), (0.29, 100, 29)])
def test_the_share_of_unreadable_files_is_a_limit_to_the_file(share: float, num_rows: int, allowed: int) -> None:
    job = bad_share_job(share, num_rows)
    check_bad_share({row: f"{row}.jpg: empty file" for row in range(allowed)}, job)
    with pytest.raises(BadFiles, match=rf"{allowed + 1} of {num_rows} images are unreadable"):
        check_bad_share({row: f"{row}.jpg: empty file" for row in range(allowed + 1)}, job)


def test_only_the_first_few_unreadable_files_are_named() -> None:
    with pytest.raises(BadFiles) as failure:
        check_bad_share({row: f"{row}.jpg: empty file" for row in range(30)}, bad_share_job(0.0, 100))
    assert "first: 0.jpg: empty file; 1.jpg: empty file; 2.jpg: empty file; mend" in str(failure.value)


class Breaking(nn.Module):
    """A classifier whose scores are no numbers from its fourth batch on."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.num_batches = 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.num_batches += 1
        scores = self.scale * images.flatten(1)[:, :CLASSES]
        return scores * float("nan") if self.num_batches >= 4 else scores


@pytest.mark.parametrize("settings", [{}, {"report_every_steps": 100}, {"report_every_steps": 5}])
def test_a_loss_that_is_no_number_ends_the_run_with_its_step_and_leaves_good_checkpoints(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    kept = tmp_path / "checkpoints"
    kept.mkdir()
    rank = make_rank(tmp_path, steps=20, checkpoint_dir=kept, checkpoint_every_steps=3, **settings)
    learner = make_learner(rank, Breaking())
    with (
        contextlib.closing(Checkpointer(rank, learner)) as checkpointer,
        pytest.raises(LossNotFinite, match="the loss of step 4 is not a finite number"),
    ):
        _run_steps(rank, learner, [make_batch()] * 20, checkpointer)
    newest = checkpoints.find(kept).newest
    assert newest is not None
    assert newest.step == 3


# Validation


class TopLeftPixel(nn.Module):
    """A model that says the class which the first pixel holds, 1 + class, in each of its colors."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))  # an optimizer wants one

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        assert not self.training
        first = torch.round((images[:, 0, 0, 0] + 1) * 127.5).long() - 1  # back to 0..255, from around zero
        return nn.functional.one_hot(first.clamp(min=0), CLASSES).float()


def held_out(answers: list[int], valid: list[bool] | None = None) -> Batch:
    """A batch of which the model of above says these classes; right would be 0, 1, 2, 0, ..."""
    batch = make_batch(valid, rows=len(answers))
    images = batch.images.clone()
    images[:, 0, 0, :] = torch.tensor(answers, dtype=torch.uint8)[:, None] + 1
    images[torch.from_numpy(~batch.valid)] = 0
    return replace(batch, images=images)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_each_readable_row_that_is_held_out_is_scored_once(tmp_path: Path, precision: str) -> None:
    rank = make_rank(tmp_path, precision=precision, max_bad_share=1.0)
    batches = [
        held_out([0, 1, 2, 0, 1, 0]),  # 5 of 6
        held_out([0, 1, 0, 0, 1, 2], [True, False, True, True, False, True]),  # 3 of 4: rows 0, 3 and 5
        held_out([0, 0], [False, False]),
        held_out([0, 0]),  # 1 of 2
    ]
    assert _score(rank, make_learner(rank, TopLeftPixel()), batches) == (9.0, 12.0)
    assert sorted(rank.meter.bad_rows) == [0, 1, 4]
