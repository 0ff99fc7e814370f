"""More and smaller hosts: what the same CPUs lose by being cut up, and how long a large cluster takes to form."""

import statistics
from pathlib import Path
from typing import Any

import pytest

from infra.local import scale_model
from tests.benchmarks.accelerator import Accelerator
from tests.benchmarks.harness import Job, Run, in_turns
from tests.benchmarks.results_file import Results
from tests.benchmarks.virtual_cluster import article_cluster

pytestmark = [pytest.mark.bench, pytest.mark.timeout(4 * 3600)]

STEPS, BATCH_SIZE = 40, 32
TRAINING: dict[str, Any] = {
    **scale_model.TRAINING,
    "batch_size": BATCH_SIZE,
    "steps": STEPS,
    "report_every_steps": 20,
    "balance_rounds": 0,
    "join_timeout_seconds": 600,
}
SIZES = (2, 4, 8, 16)
LARGE = 32


def job(num_hosts: int) -> Job:
    cluster = article_cluster(num_cpu_hosts=num_hosts - 1)
    return Job(cluster=cluster, training=TRAINING, accelerator=Accelerator(step_seconds=0.005))


def rate(run: Run) -> dict[str, float]:
    return {"images_per_second": float(run.results()["images_per_second"])}


def test_from_2_to_16_hosts(tmp_path: Path, results: Results) -> None:
    measured = in_turns({str(size): job(size) for size in SIZES}, rate, tmp_path)
    ratio = statistics.median(measured.ratios("images_per_second", str(SIZES[-1]), str(SIZES[0])))
    results.record("scale", measured, {"scale_2_to_16": ratio})


def test_32_hosts_form_a_cluster(tmp_path: Path, results: Results) -> None:
    forming = Job(
        cluster=article_cluster(num_cpu_hosts=LARGE - 1, gpu_cores=2, cpu_cores=2 * (LARGE - 1)),
        training={**TRAINING, "steps": 1},
        options={"stop_at": ("cluster_formed", 1, 0.0), "shm_bytes": 256 << 20},
        expected_status="Stopped",
    )
    measured = in_turns({"32": forming}, lambda run: {"seconds": run.seconds_to("cluster_formed")}, tmp_path)
    results.record(
        "form_32_hosts", measured, {"form_32_hosts_seconds": statistics.median(measured.values("seconds", "32"))}
    )
