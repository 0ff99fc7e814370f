"""A training that goes on: as if nothing had happened, and only where it is the same training."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from tests.unit.one_rank import (
    CLASSES,
    DESCRIPTION,
    ROWS,
    SIZE,
    WITH_DROPOUT,
    batches_of,
    make_rank,
    train,
    wait_for_the_writer,
)
from training import checkpoints
from training.checkpoints import Checkpoint, find
from training.contract import ContractError, TrainingConfig
from training.data.batch import Batch
from training.events import Events
from training.preflight import Plan
from training.rank import Rank
from training.resume import find_resume
from training.trainer import check_steps_left

STEPS = 12


def rank_in(folder: Path, name: str, resumed: Checkpoint | None = None, **settings: Any) -> Rank:
    (folder / name).mkdir()
    kept = folder / "checkpoints"
    kept.mkdir(exist_ok=True)
    return make_rank(folder / name, checkpoint_dir=kept, resumed=resumed, **{"steps": STEPS, **settings})


def events_of(rank: Rank, name: str) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in rank.job.events_file.read_text().splitlines()]
    return [event for event in events if event["event"] == name]


def kept_steps(rank: Rank) -> list[int]:
    assert rank.job.checkpoint_dir is not None
    return [checkpoints.step_of(path) for path in checkpoints.files(rank.job.checkpoint_dir)]


@pytest.mark.parametrize(
    ("precision", "stopped_in"), [*(("fp32", step) for step in range(1, STEPS)), ("fp16", 1), ("fp16", 7)]
)
def test_a_stopped_training_goes_on_as_if_nothing_had_happened(tmp_path: Path, stopped_in: int, precision: str) -> None:
    through, _ = train(rank_in(tmp_path, "through", precision=precision))

    first = rank_in(tmp_path, "first", precision=precision)
    seen: list[tuple[int, int]] = []

    def until_stopped() -> Iterator[Batch]:
        for number, batch in enumerate(batches_of(first), start=1):
            if number == stopped_in:
                first.job.stop_file.touch()
            seen.append(batch.span)
            yield batch

    assert train(first, until_stopped())[1] is True
    assert first.job.checkpoint_dir is not None
    found = find(first.job.checkpoint_dir).newest
    assert found is not None
    assert (found.step, found.rows_taken) == (stopped_in, stopped_in * ROWS)

    second = rank_in(tmp_path, "second", resumed=found, precision=precision)
    seen += list(second.training_spans())
    resumed, stopped = train(second)
    assert stopped is False
    assert seen == [(start, start + ROWS) for start in range(0, STEPS * ROWS, ROWS)], "each row once"
    torch.testing.assert_close(resumed.state(), through.state(), rtol=0, atol=0)
    assert events_of(second, "first_step")
    assert second.finish(resumed.model, stopped=False, accuracy=None, balance=None)["resumed_from_step"] == stopped_in


def test_checkpoints_come_every_so_many_steps_and_the_newest_stay(tmp_path: Path) -> None:
    rank = rank_in(tmp_path, "run", checkpoint_every_steps=3, keep_checkpoints=2)
    train(rank)
    assert [event["step"] for event in events_of(rank, "checkpoint")] == [3, 6, 9]
    assert kept_steps(rank) == [6, 9], "none of the last step, which leaves the model"


def test_a_training_that_goes_on_keeps_what_it_came_from_among_the_newest(tmp_path: Path) -> None:
    first = rank_in(tmp_path, "first", checkpoint_every_steps=4, keep_checkpoints=2)
    train(first)
    folder = first.job.checkpoint_dir
    assert folder is not None
    newest = checkpoints.files(folder)[-1]
    newest.write_bytes(newest.read_bytes()[:-1])
    resumed = find(folder).newest
    assert resumed is not None
    second = rank_in(tmp_path, "second", resumed=resumed, checkpoint_every_steps=2, keep_checkpoints=2)
    train(second)
    # The damaged one of step 8 took nobody's place. The same training made the same file again, under the same name.
    assert kept_steps(second) == [8, 10]
    assert find(folder).damaged == ()


def test_no_folder_no_checkpoints(tmp_path: Path) -> None:
    rank = make_rank(tmp_path, steps=3, checkpoint_every_steps=1)
    train(rank)
    assert events_of(rank, "checkpoint") == []


def test_a_disk_that_takes_no_checkpoint_costs_the_checkpoint(tmp_path: Path) -> None:
    rank = rank_in(tmp_path, "run", checkpoint_every_steps=5)
    assert rank.job.checkpoint_dir is not None
    rank.job.checkpoint_dir.rmdir()
    rank.job.checkpoint_dir.touch()
    assert train(rank)[1] is False
    failed = events_of(rank, "checkpoint_failed")
    assert [event["step"] for event in failed] == [5, 10]
    assert str(rank.job.checkpoint_dir) in failed[0]["reason"]


def test_what_is_due_while_another_is_written_is_saved_right_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = rank_in(tmp_path, "run", checkpoint_every_steps=2, keep_checkpoints=9)
    may_write = threading.Event()
    real_write = checkpoints.write

    def write(folder: Path, checkpoint: Checkpoint) -> Path:
        assert may_write.wait(60)
        return real_write(folder, checkpoint)

    monkeypatch.setattr(checkpoints, "write", write)

    def batches() -> Iterator[Batch]:
        for number, batch in enumerate(batches_of(rank, is_in_a_hurry=True), start=1):
            if number == 7:  # 2 is being written, 4 is due
                may_write.set()
                wait_for_the_writer()
            yield batch

    train(rank, batches())
    assert kept_steps(rank)[0] == 2
    assert kept_steps(rank)[1] in (7, 8), "the first step that begins after the end of the writing"


def found_in(folder: Path, events: Path, model: str = DESCRIPTION.name) -> Checkpoint | None:
    return find_resume(folder, {"training.model": model}, Events(events))


def test_a_run_says_from_where_it_goes_on_and_what_is_damaged(tmp_path: Path) -> None:
    rank = rank_in(tmp_path, "run", checkpoint_every_steps=5)
    train(rank)
    folder = rank.job.checkpoint_dir
    assert folder is not None
    newest = checkpoints.files(folder)[-1]
    newest.write_bytes(b"")
    events = tmp_path / "events"
    resumed = found_in(folder, events)
    assert resumed is not None
    assert resumed.step == 5
    damaged, told = (json.loads(line) for line in events.read_text().splitlines())
    assert (damaged["event"], damaged["file"]) == ("checkpoint_damaged", newest.name)
    assert (told["event"], told["step"], told["rows"]) == ("resumed", 5, 5 * ROWS)


def test_checkpoints_of_another_training_are_refused_in_one_line(tmp_path: Path) -> None:
    rank = rank_in(tmp_path, "run", checkpoint_every_steps=5)
    train(rank)
    assert rank.job.checkpoint_dir is not None
    with pytest.raises(ContractError) as refused:
        found_in(rank.job.checkpoint_dir, tmp_path / "events", model="resnet18")
    (problem,) = refused.value.problems
    assert problem == (
        "training.model: 'resnet18', but 'test_vit' at the checkpoint of step 10; "
        "take other checkpoints, or the settings that they were made with"
    )


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"steps": 10}, "training.steps: 10 is over with the checkpoint of step 10; set more steps"),
        ({"epochs": 1}, "training.epochs: 1 is over with the checkpoint of step 10; set more epochs"),
        ({"steps": 11}, None),
        ({"epochs": 2}, None),
    ],
)
def test_a_training_that_is_over_is_not_gone_on_with(settings: dict[str, Any], problem: str | None) -> None:
    config = TrainingConfig(batch_size=10, **settings)
    plan = cast(Plan, type("APlan", (), {"num_training_rows": 100}))
    checkpoint = Checkpoint(step=10, rows_taken=100, tensors={}, identity={}, figures={})
    if problem is None:
        check_steps_left(config, plan, 1, checkpoint)
        return
    with pytest.raises(ContractError, match=problem):
        check_steps_left(config, plan, 1, checkpoint)


def test_more_ranks_and_another_batch_go_on_at_the_same_row(tmp_path: Path) -> None:
    checkpoint = Checkpoint(step=7, rows_taken=42, tensors={}, identity={}, figures={"bad_rows": {}})
    ranks = []
    for index in range(2):
        rank = make_rank(tmp_path, resumed=checkpoint, epochs=1, batch_size=10)
        rank.index, rank.world_size = index, 2
        ranks.append(rank)
    assert {rank.num_steps for rank in ranks} == {10}, "58 of 100 rows are left, 20 in a step"
    places = sorted(place for rank in ranks for span in rank.training_spans() for place in range(*span))
    assert places == list(range(42, 102))


LOAD_WITH_PLAIN_TIMM = """
import json, sys
import safetensors.torch, timm
name, arguments, file = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
tensors = safetensors.torch.load_file(file)
weights = {name.removeprefix("model."): tensor for name, tensor in tensors.items() if name.startswith("model.")}
timm.create_model(name, **arguments).load_state_dict(weights)
assert "training" not in sys.modules
"""


def test_a_fresh_process_loads_a_checkpoint_with_plain_timm(tmp_path: Path) -> None:
    rank = rank_in(tmp_path, "run", checkpoint_every_steps=5)
    train(rank)
    assert rank.job.checkpoint_dir is not None
    newest = checkpoints.files(rank.job.checkpoint_dir)[-1]
    arguments = {**WITH_DROPOUT.arguments, "num_classes": CLASSES, "img_size": SIZE}
    command = [sys.executable, "-c", LOAD_WITH_PLAIN_TIMM, WITH_DROPOUT.name, json.dumps(arguments), str(newest)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
