"""The product, the article's program, and Ray Data behind the product's loop: same hosts, seed and pixels, in turns."""

import statistics
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.local import scale_model
from tests.benchmarks.accelerator import Accelerator
from tests.benchmarks.harness import Job, Run, in_turns
from tests.benchmarks.results_file import Results
from tests.benchmarks.virtual_cluster import article_cluster

pytestmark = [pytest.mark.bench, pytest.mark.timeout(4 * 3600)]

ARTICLE = (sys.executable, "-m", "tests.benchmarks.contenders.article", "train")
RAY_DATA = (sys.executable, "-m", "tests.benchmarks.contenders.ray_data", "train")
ACCELERATOR = Accelerator(step_seconds=0.02)
STEPS, BATCH_SIZE = 100, 32
TRAINING: dict[str, Any] = {
    **scale_model.TRAINING,
    "batch_size": BATCH_SIZE,
    "steps": STEPS,
    "report_every_steps": 20,
    "balance_rounds": 0,
}
FUSED = {**TRAINING, "transform_implementation": "fused"}
LIGHT = {**TRAINING, "transform": "normalize"}
CLUSTER = article_cluster()
STEADY_FROM = 40
"""From this step on to the last a rate is steady: what Ray Data's large blocks had made ahead when the CPU shares came
into force, at the first step, is used up."""
IMAGES = BATCH_SIZE * (STEPS - STEADY_FROM)


def job(training: dict[str, Any], command: tuple[str, ...] | None = None) -> Job:
    return Job(cluster=CLUSTER, training=training, accelerator=ACCELERATOR, command=command)


def figures(run: Run) -> dict[str, float]:
    steady = run.between_steps(STEADY_FROM, STEPS)
    return {
        "steps_per_second": (STEPS - STEADY_FROM) / steady.seconds,
        "images_per_cpu_second": IMAGES / sum(steady.cpu_seconds.values()),
        "bytes_to_trainer_per_image": steady.bytes_received["algo-1"] / IMAGES,
        "launches_per_second": 1 / run.seconds_to("first_step"),
        "runs_per_second": 1 / float(run.outcome["seconds"]),
    }


def test_heavy_transform(tmp_path: Path, results: Results) -> None:
    jobs = {
        "ours": job(TRAINING),
        "article": job(TRAINING, ARTICLE),
        "fused": job(FUSED),
    }
    measured = in_turns(jobs, figures, tmp_path)
    results.record(
        "vs_article_heavy",
        measured,
        {
            "vs_article_steps_heavy": statistics.median(measured.ratios("steps_per_second", "ours", "article")),
            "vs_article_whole_run": statistics.median(measured.ratios("runs_per_second", "ours", "article")),
            "first_step_vs_article": statistics.median(measured.ratios("launches_per_second", "ours", "article")),
            "vs_article_images_per_cpu_second_fused": statistics.median(
                measured.ratios("images_per_cpu_second", "fused", "article")
            ),
        },
    )


def test_light_transform(tmp_path: Path, results: Results) -> None:
    measured = in_turns({"ours": job(LIGHT), "article": job(LIGHT, ARTICLE)}, figures, tmp_path)
    results.record(
        "vs_article_light",
        measured,
        {
            "vs_article_steps_light": statistics.median(measured.ratios("steps_per_second", "ours", "article")),
            "wire_ratio_uint8_vs_article": statistics.median(
                measured.ratios("bytes_to_trainer_per_image", "ours", "article")
            ),
        },
    )


def test_ray_data_behind_the_products_loop(tmp_path: Path, results: Results) -> None:
    """What the data path alone is worth, without a headline: everything else is the product's in both."""
    measured = in_turns({"ours": job(TRAINING), "ray_data": job(TRAINING, RAY_DATA)}, figures, tmp_path)
    ratio = statistics.median(measured.ratios("steps_per_second", "ours", "ray_data"))
    print(f"\nsteps/s over Ray Data's defaults, heavy transform: {ratio:.2f}")
    results.record("vs_ray_data", measured)
