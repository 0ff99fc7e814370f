"""What it costs to bring a row from a data worker to the trainer, and how many bytes that takes."""

import statistics
import sys
from pathlib import Path

import pytest

from tests.benchmarks.harness import Job, Run, in_turns
from tests.benchmarks.results_file import Results
from tests.benchmarks.virtual_cluster import Cluster, HostGroup

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

GPU, CPU = HostGroup(name="gpu", instance_type="ml.g5.xlarge"), HostGroup(name="cpu", instance_type="ml.c5.4xlarge")
PATH_JOB = (sys.executable, "-m", "tests.benchmarks.path_job")
JOBS = {
    "across": Job(cluster=Cluster(groups=(GPU, CPU)), command=PATH_JOB),
    "local": Job(cluster=Cluster(groups=(GPU,)), command=PATH_JOB),
}


def figures(run: Run) -> dict[str, float]:
    phase = run.between("measuring", "measured")
    megabytes = float(run.event("measured")["fields"]["megabytes"])
    return {
        "ms_per_mb": 1e3 * sum(phase.cpu_seconds.values()) / megabytes,
        "receiver_ms_per_mb": 1e3 * phase.cpu_seconds["algo-1"] / megabytes,
        "mb_per_second": megabytes / phase.seconds,
        "wire_ratio": phase.bytes_received["algo-1"] / 1e6 / megabytes,
    }


def test_the_path_alone(tmp_path: Path, results: Results) -> None:
    measured = in_turns(JOBS, figures, tmp_path)
    results.record(
        "path",
        measured,
        {
            "path_ms_per_mb_across": statistics.median(measured.values("ms_per_mb", "across")),
            "path_ms_per_mb_local": statistics.median(measured.values("ms_per_mb", "local")),
            "wire_ratio": statistics.median(measured.values("wire_ratio", "across")),
        },
    )
