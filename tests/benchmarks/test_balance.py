"""How much of the sum of what each host reaches alone two hosts reach together, 1 : 4 in CPU share, in turns."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from infra.local import scale_model
from tests.cluster import local_runner

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

ROUNDS = 5
GPU_HOST_STEPS = 8
GPU_HOST_ALONE = [["gpu", "ml.g5.xlarge", 1]]


def measured(job_dir: Path, **training: Any) -> dict[str, Any]:
    groups = training.pop("groups", None)
    outcome, output = local_runner.run(
        job_dir,
        training={**scale_model.TRAINING, **training},
        groups=groups,
        cpu_share=scale_model.CPU_SHARES,
        bind_share_at=scale_model.BIND_SHARES_AT,
    )
    assert outcome["status"] == "Completed", output
    results: dict[str, Any] = json.loads((Path(outcome["output_dir"]) / "data" / "results.json").read_text())
    return results


def test_balance_in_turns(tmp_path: Path) -> None:
    before = measured(tmp_path / "before", steps=GPU_HOST_STEPS, groups=GPU_HOST_ALONE)
    together = measured(tmp_path / "together", steps=4, balance_rounds=ROUNDS)
    after = measured(tmp_path / "after", steps=GPU_HOST_STEPS, groups=GPU_HOST_ALONE)
    turns = together["balance"]
    for figure, of in (("images/s", ""), ("cores at work", "_cores")):
        alone = [rate(results, figure) for results in (before, after)]
        cpu_host, both = turns[f"cpu_hosts{of}"], turns[f"all_hosts{of}"]
        ratios = [one / (other + statistics.mean(alone)) for one, other in zip(both, cpu_host, strict=True)]
        print(f"\n{figure}: gpu host alone, before and after {listed(alone)}; in turns cpu host {listed(cpu_host)},")
        print(f"all hosts {listed(both)}")
        print(f"balance in {figure}: {statistics.median(ratios):.2f} (median of {ROUNDS}, {listed(sorted(ratios))})")


def rate(results: dict[str, Any], figure: str) -> float:
    images_per_second = float(results["images_per_second"])
    return images_per_second if figure == "images/s" else images_per_second * float(results["cpu_seconds_per_row"])


def listed(values: list[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)
