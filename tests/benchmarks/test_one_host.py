"""The feed against torch's DataLoader, SPDL and a loader that is always ready, on one host, in turns."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.benchmarks.contenders.one_host import Figures, compare
from tests.benchmarks.contenders.work import BATCH_SIZE, WORKLOADS
from tests.benchmarks.harness import Measured, num_rounds
from tests.benchmarks.results_file import Results

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

HEADLINES = {"heavy": "vs_dataloader_heavy", "light": None, "path": "vs_dataloader_path"}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_one_host(workload: str, tmp_path: Path, results: Results) -> None:
    by_contender = compare(tmp_path, workload, num_rounds=num_rounds())
    measured = in_rounds(by_contender, workload)
    for contender, runs in by_contender.items():
        shown = {name: statistics.median(getattr(run, name) for run in runs) for name in asdict(runs[0])}
        print(f"\n{workload} {contender}: {', '.join(f'{name} {value:.4g}' for name, value in shown.items())}")
    memory = statistics.median(measured.ratios("peak_memory_bytes", "feed", "dataloader"))
    print(f"{workload}: memory of the feed over the DataLoader's: {memory:.2f}")
    headline = HEADLINES[workload]
    ratio = statistics.median(measured.ratios("images_per_second", "feed", "dataloader"))
    results.record(f"one_host_{workload}", measured, {headline: ratio} if headline else {})


def in_rounds(by_contender: Mapping[str, Sequence[Figures]], workload: str) -> Measured:
    rounds = [
        {contender: asdict(runs[number]) for contender, runs in by_contender.items()}
        for number in range(len(next(iter(by_contender.values()))))
    ]
    kind = WORKLOADS[workload]
    conditions = {
        "host": "one, without CPU limit; a data worker per CPU",
        "batches": kind.num_batches,
        "batch_size": BATCH_SIZE,
        "transform": repr(kind.transform),
        "source": type(kind.source).__name__,
    }
    return Measured(rounds=rounds, conditions=conditions)
