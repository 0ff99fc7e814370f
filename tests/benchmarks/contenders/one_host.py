"""Loaders on one host, in turns: `python -m tests.benchmarks.contenders.one_host WORKLOAD...` prints their figures.

A contender is a module of this package with `batches(work)`: an iterator over (images, labels) in the order of the
plan, images in wire form. One more, the product's own feed for instance, is such a module and its name in CONTENDERS.
"""

import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import local_runner

CONTENDERS = ("mock", "feed", "dataloader", "spdl_loader")
ONE_HOST = [["gpu", "ml.g5.xlarge", 1]]
_NUM_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What one contender reached in one run; CPU time is that of all its processes, memory their largest sum."""

    images_per_second: float
    cpu_ms_per_image: float
    cpu_ms_per_mb: float
    peak_memory_bytes: int


def compare(
    job_dir: Path, workload: str, *, contenders: Sequence[str] = CONTENDERS, num_rounds: int = _NUM_ROUNDS
) -> dict[str, list[Figures]]:
    """Run each contender `num_rounds` times, in turns, each time on a new host; figures of every round."""
    figures: dict[str, list[Figures]] = {contender: [] for contender in contenders}
    for number in range(num_rounds):
        for contender in contenders:
            figures[contender].append(measured(job_dir / f"{workload}-{contender}-{number}", contender, workload))
    return figures


def measured(job_dir: Path, contender: str, workload: str) -> Figures:
    """One run."""
    command = [sys.executable, "-m", "tests.benchmarks.contenders.measure", contender, workload]
    outcome, output = local_runner.run(job_dir, command=command, groups=ONE_HOST)
    assert outcome["status"] == "Completed", output
    fields = next(event["fields"] for event in outcome["events"] if event["name"] == "measured")
    (peak_memory_bytes,) = outcome["peak_memory_bytes"].values()
    return Figures(**{name: float(value) for name, value in fields.items()}, peak_memory_bytes=peak_memory_bytes)


def main(workloads: Sequence[str]) -> None:
    """Print medians."""
    with tempfile.TemporaryDirectory() as job_dir:
        for workload in workloads:
            for contender, runs in compare(Path(job_dir), workload).items():
                medians = [
                    f"{statistics.median(getattr(run, name) for run in runs):,.4g} {name}"
                    for name in Figures.__dataclass_fields__
                ]
                print(f"{workload} {contender}: {', '.join(medians)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
