"""Several training hosts: the same number of steps on every rank, whatever the number of rows (case C14)."""

import json
from pathlib import Path

import pytest

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


def test_fewer_rows_than_ranks_is_refused_before_training(tmp_path: Path) -> None:
    outcome, output = local_runner.run(tmp_path, training={**TINY, "num_records": 1}, groups=TRAINERS)
    assert outcome["exit_codes"] == {"algo-1": 2, "algo-2": 2}, output
    assert outcome["failure"].startswith("too few rows: 1 row for 2 training workers")
    assert not [event for event in outcome["events"] if event["name"] == "training_started"]
