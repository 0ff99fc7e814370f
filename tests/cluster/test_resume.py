"""A training that was interrupted and goes on in a new job: as if nothing had happened, on several ranks."""

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from tests.cluster import local_runner
from training import checkpoints

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

STEPS, EVERY = 200, 20
TRAINING = {
    "model": "test_vit",
    "model_arguments": {"patch_size": 16, "depth": 1, "embed_dim": 32, "num_heads": 1, "proj_drop_rate": 0.2},
    "image_size": 32,
    "transform": "normalize",
    "batch_size": 4,
    "steps": STEPS,
    "num_records": 100,
    "learning_rate": 0.1,
    "checkpoint_every_steps": EVERY,
    "report_every_steps": 1,
    "join_timeout_seconds": 120,
}
TRAINERS = [["gpu", "ml.g5.xlarge", 2]]


def run(folder: Path, kept: Path, **order: Any) -> dict[str, Any]:
    folder.mkdir()
    outcome, output = local_runner.run(folder, training=TRAINING, groups=TRAINERS, checkpoints=str(kept), **order)
    return {**outcome, "output": output, "kept": folder / "job0" / "algo-1" / "ml" / "checkpoints"}


def fields_of(job: dict[str, Any], name: str) -> list[dict[str, str]]:
    return [event["fields"] for event in job["events"] if event["name"] == name]


def weights_of(job: dict[str, Any]) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(Path(job["model_dir"]) / "model.safetensors")


def last_step(job: dict[str, Any]) -> int:
    return max(int(fields["step"]) for fields in fields_of(job, "step"))


@pytest.fixture(scope="module")
def through(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same training without an interruption."""
    folder = tmp_path_factory.mktemp("through")
    nothing = folder / "nothing"
    nothing.mkdir()
    return run(folder / "job", nothing)


def test_a_new_job_goes_on_where_the_stopped_one_ended(tmp_path: Path, through: dict[str, Any]) -> None:
    assert through["status"] == "Completed", through["output"]
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    interrupted = run(tmp_path / "first", nothing, stop_at=("checkpoint", 2, 120.0))
    assert interrupted["status"] == "Stopped", interrupted["output"]
    reached = last_step(interrupted)
    assert reached < STEPS
    found = checkpoints.find(interrupted["kept"])
    assert found.newest is not None
    assert reached == found.newest.step, "a job that is stopped loses nothing"

    resumed = run(tmp_path / "second", interrupted["kept"])
    assert resumed["status"] == "Completed", resumed["output"]
    (told,) = fields_of(resumed, "resumed")
    assert int(told["step"]) == found.newest.step
    assert int(told["rows"]) == found.newest.step * 2 * 4
    results = json.loads((Path(resumed["output_dir"]) / "data" / "results.json").read_text())
    assert results["resumed_from_step"] == found.newest.step
    assert results["rows"] == (STEPS - found.newest.step) * 2 * 4, "no row twice, none left out"
    torch.testing.assert_close(weights_of(resumed), weights_of(through), rtol=0, atol=1e-6)
    own = {path.name for path in checkpoints.files(resumed["kept"])}
    others = {path.name for path in checkpoints.files(resumed["kept"].parents[2] / "algo-2" / "ml" / "checkpoints")}
    assert others == {path.name for path in checkpoints.files(interrupted["kept"])}, "one host writes"
    assert own != others
