"""What checkpoints cost the loop: laps of one job, with and without one in them, in turns."""

import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.accelerator import Accelerator
from tests.benchmarks.harness import Job, Measured, num_rounds
from tests.benchmarks.results_file import Results
from tests.benchmarks.virtual_cluster import article_cluster
from training.contract import TrainingConfig

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

STEP_SECONDS = 0.2
"""Less than vit_base_patch16_224 takes for 64 images on the article's GPU; a shorter one makes figures worse."""
LAP = 25
DEFAULT_INTERVAL = TrainingConfig().checkpoint_every_steps
TRAINING: dict[str, Any] = {
    "model": "vit_base_patch16_224",
    "transform": "normalize",
    "batch_size": 4,
    "report_every_steps": LAP,
    "checkpoint_every_steps": 2 * LAP,
}


def test_what_a_checkpoint_costs(tmp_path: Path, results: Results) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    job = Job(
        cluster=article_cluster(),
        training={**TRAINING, "steps": LAP * (2 + 2 * num_rounds()) + 1},
        accelerator=Accelerator(step_seconds=STEP_SECONDS),
        options={"checkpoints": str(kept)},
    )
    run = job.run(tmp_path / "job")
    saved = [event for event in run.outcome["events"] if event["name"] == "checkpoint"]
    reports = [event["fields"] for event in run.outcome["events"] if event["name"] == "step"]
    laps = [LAP * float(report["step_seconds"]) for report in reports[2:]]  # the first two live on what was prepared
    assert len(saved) >= num_rounds()
    # A checkpoint of step 50 is taken after the report of step 50, so it falls into the lap that ends with step 75.
    rounds = [
        {"with": {"seconds": with_one}, "without": {"seconds": without}}
        for with_one, without in zip(laps[0::2], laps[1::2], strict=True)
    ]
    conditions = {
        "job": job.describe(),
        "round": f"{LAP} steps with a checkpoint, {LAP} without",
        "checkpoint": f"{saved[0]['fields']['bytes']} bytes, without momentum, as the accelerator is simulated",
    }
    measured = Measured(rounds=rounds, conditions=conditions)
    extra_seconds = statistics.median(
        one - other
        for one, other in zip(measured.values("seconds", "with"), measured.values("seconds", "without"), strict=True)
    )
    results.record(
        "checkpoints",
        measured,
        {
            "checkpoint_overhead": max(0.0, extra_seconds) / (DEFAULT_INTERVAL * STEP_SECONDS),
            "checkpoint_stall_steps": max(0.0, extra_seconds) / STEP_SECONDS,
        },
    )
