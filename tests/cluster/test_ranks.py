"""Several training hosts: as many steps on each rank (case C14), and one model, the same as one host would make."""

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from infra.local.network import INTERFACE
from tests.cluster import local_runner

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

TINY = {
    "model": "test_vit",
    "model_arguments": {"patch_size": 16, "depth": 1, "embed_dim": 32, "num_heads": 1},
    "image_size": 32,
    "transform": "normalize",
    "batch_size": 4,
    "steps": 5,
    "report_every_steps": 1,
    "join_timeout_seconds": 120,
}
TRAINERS = [["gpu", "ml.g5.xlarge", 2]]


def test_ten_rows_on_two_ranks_make_the_same_steps_on_both(tmp_path: Path) -> None:
    outcome, output = local_runner.run(tmp_path, training={**TINY, "num_records": 11}, groups=TRAINERS)
    assert outcome["status"] == "Completed", output
    results = json.loads((Path(outcome["output_dir"]) / "data" / "results.json").read_text())
    assert results["steps_per_rank"] == [5, 5]
    assert results["rows"] == 5 * 2 * 4
    assert (Path(outcome["model_dir"]) / "model.safetensors").exists()


def run(folder: Path, groups: list[list[Any]], **settings: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The outcome of a job that ends well, and its results."""
    outcome, output = local_runner.run(
        folder, training={**TINY, "num_records": 36, "learning_rate": 0.1, **settings}, groups=groups
    )
    assert outcome["status"] == "Completed", output
    return outcome, json.loads((Path(outcome["output_dir"]) / "data" / "results.json").read_text())


@pytest.mark.timeout(600)  # two jobs
def test_two_ranks_with_two_batches_a_step_learn_what_one_rank_learns_from_one_large_batch(tmp_path: Path) -> None:
    parallel, results = run(tmp_path / "two", TRAINERS, steps=None, epochs=2, batch_size=4, accumulate_batches=2)
    alone, expected = run(tmp_path / "one", [["gpu", "ml.g5.xlarge", 1]], steps=5, batch_size=16)
    assert results["steps_per_rank"] == [5, 5], "72 rows, 16 in a step"
    assert results["rows"] == expected["rows"] == 5 * 16
    assert results["loss"] == pytest.approx(expected["loss"], rel=1e-6)
    weights, expected_weights = (
        safetensors.torch.load_file(Path(job["model_dir"]) / "model.safetensors") for job in (parallel, alone)
    )
    torch.testing.assert_close(weights, expected_weights, rtol=1e-5, atol=1e-6)
    (started,) = (event for event in parallel["events"] if event["name"] == "training_started")
    assert (started["fields"]["backend"], started["fields"]["interface"]) == ("gloo", INTERFACE)


def test_fewer_rows_than_ranks_is_refused_before_training(tmp_path: Path) -> None:
    outcome, output = local_runner.run(tmp_path, training={**TINY, "num_records": 1}, groups=TRAINERS)
    assert outcome["exit_codes"] == {"algo-1": 2, "algo-2": 2}, output
    assert outcome["failure"].startswith("too few rows: 1 row for 2 training workers")
    assert not [event for event in outcome["events"] if event["name"] == "training_started"]
