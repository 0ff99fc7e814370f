"""The training loop on one CPU without Ray: what a step learns from, what it reports, and when it gives up."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from tests.unit.one_rank import CLASSES, DESCRIPTION, ROWS, SIZE, make_batch, make_rank
from training.contract import ContractError, TrainingConfig
from training.data.feed import Batch, Feed
from training.loop import _run_steps, _step
from training.models import build_model, load_model
from training.rank import SUMMARY_FILE, BadFiles, Rank, TrainJob, check_bad_share


def without(batch: Batch) -> Batch:
    """The same batch as if its unreadable rows had never been asked for."""
    keep = batch.valid
    return Batch(
        images=batch.images[torch.from_numpy(keep)],
        labels=batch.labels[torch.from_numpy(keep)],
        rows=batch.rows[keep],
        valid=batch.valid[keep],
        parts=(),
        problems={},
    )


def make_model() -> nn.Module:
    """Small, and with a layer that normalises over the batch."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 5), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(CLASSES))


def one_step(rank: Rank, batch: Batch) -> tuple[float, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Loss, gradients and the state after one step of a model that always starts the same."""
    model = make_model()
    model(torch.zeros(2, 3, SIZE, SIZE))  # gives the lazy layer its shape
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = _step(rank, model, optimizer, batch, is_first=False)
    gradients = {name: cast(torch.Tensor, value.grad).clone() for name, value in model.named_parameters()}
    return float(loss), gradients, {name: value.clone() for name, value in model.state_dict().items()}


def test_unreadable_rows_count_for_nothing(tmp_path: Path) -> None:
    rank = make_rank(tmp_path)
    batch = make_batch([True, False, True, True, False, True])
    loss, gradients, state = one_step(rank, batch)
    expected_loss, expected_gradients, expected_state = one_step(rank, without(batch))
    assert loss == pytest.approx(expected_loss, rel=1e-6)
    assert any(gradient.abs().max() > 0 for gradient in gradients.values())
    torch.testing.assert_close(gradients, expected_gradients)
    torch.testing.assert_close(state, expected_state)


def test_a_batch_without_a_readable_row_changes_no_weight(tmp_path: Path) -> None:
    loss, gradients, state = one_step(make_rank(tmp_path), make_batch([False] * ROWS))
    assert loss == 0.0
    assert all(torch.count_nonzero(gradient) == 0 for gradient in gradients.values())
    assert all(torch.isfinite(value).all() for value in state.values())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_step_makes_the_loss_smaller(tmp_path: Path, precision: str) -> None:
    rank, batch = make_rank(tmp_path, precision=precision), make_batch()
    torch.manual_seed(0)
    model = build_model(DESCRIPTION.name, CLASSES, SIZE, DESCRIPTION.arguments)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = [float(_step(rank, model, optimizer, batch, is_first=index == 0)) for index in range(8)]
    assert losses[-1] < losses[0]


def test_the_first_batch_is_checked(tmp_path: Path) -> None:
    rank, batch = make_rank(tmp_path), make_batch()
    wrong = Batch(**{**vars(batch), "labels": batch.labels + CLASSES})
    model = make_model()
    model(torch.zeros(2, 3, SIZE, SIZE))
    with pytest.raises(ContractError, match=r"batch labels: 3 to 5; expected 0 to 2"):
        _step(rank, model, torch.optim.SGD(model.parameters(), lr=0.1), wrong, is_first=True)


def run_steps(rank: Rank, batches: list[Batch]) -> bool:
    torch.manual_seed(0)
    model = build_model(DESCRIPTION.name, CLASSES, SIZE, DESCRIPTION.arguments)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    is_stopped = _run_steps(rank, model, optimizer, cast(Feed, batches))
    rank.finish(model, stopped=is_stopped, accuracy=None, balance=None)
    return is_stopped


def events_of(rank: Rank) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rank.job.events_file.read_text().splitlines()]


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
    summary = json.loads((rank.job.output_dir / SUMMARY_FILE).read_text())
    assert (summary["steps"], summary["rows"], summary["stopped"]) == (5, 5 * ROWS, False)
    assert summary["rows_by_host"] == {"algo-1": 4 * ROWS}
    assert load_model(rank.job.model_dir)[1] == DESCRIPTION
    assert sorted(path.name for path in rank.job.output_dir.iterdir()) == [SUMMARY_FILE]


def test_a_report_of_the_first_step_claims_no_rate(tmp_path: Path) -> None:
    rank = make_rank(tmp_path, steps=1, report_every_steps=1)
    run_steps(rank, [make_batch()])
    (event,) = (event for event in events_of(rank) if event["event"] == "step")
    assert set(event) == {"event", "step", "steps", "loss", "at"}


def test_a_request_to_stop_ends_the_run_after_a_step(tmp_path: Path) -> None:
    rank = make_rank(tmp_path, steps=5)
    rank.job.stop_file.touch()
    assert run_steps(rank, [make_batch()] * 5) is True
    names = [event["event"] for event in events_of(rank)]
    assert names == ["first_step", "stopped", "model_saved"]
    assert json.loads((rank.job.output_dir / SUMMARY_FILE).read_text())["stopped"] is True


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
    rank = make_rank(tmp_path, steps=3, max_bad_file_share=0.02)
    run_steps(rank, [make_batch([True, False, True, True, False, True])] * 3)
    reasons = [event["reason"] for event in events_of(rank) if event["event"] == "unreadable"]
    assert reasons == ["1.jpg: broken", "4.jpg: broken"]
    summary = json.loads((rank.job.output_dir / SUMMARY_FILE).read_text())
    assert (summary["rows"], summary["bad_rows"]) == (3 * 4, {"1": "1.jpg: broken", "4": "4.jpg: broken"})


def test_too_many_unreadable_files_end_the_run_with_their_names(tmp_path: Path) -> None:
    rank = make_rank(tmp_path, steps=3, max_bad_file_share=0.01)
    with pytest.raises(BadFiles) as failure:
        run_steps(rank, [make_batch([True, False, True, True, False, True])] * 3)
    assert str(failure.value) == (
        "2 of 100 images are unreadable, allowed: 0.01 of all (max_bad_file_share); "
        "first: 1.jpg: broken; 4.jpg: broken; mend or remove them, or raise the limit"
    )
    assert not rank.job.model_dir.exists()


def bad_share_job(share: float, num_rows: int) -> TrainJob:
    config = TrainingConfig(max_bad_file_share=share)
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
