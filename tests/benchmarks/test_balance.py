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
    gpu_host = statistics.mean(results["images_per_second"] for results in (before, after))
    turns = together["balance"]
    ratios = [both / (cpu + gpu_host) for both, cpu in zip(turns["all_hosts"], turns["cpu_hosts"], strict=True)]
    print(
        f"gpu host alone, before and after: {before['images_per_second']:.1f}, {after['images_per_second']:.1f} images/s"
    )
    for name, rates in turns.items():
        print(f"{name}: {', '.join(f'{rate:.1f}' for rate in rates)} images/s")
    print(f"\nbalance: {statistics.median(ratios):.2f} (median of {ROUNDS}, {min(ratios):.2f} to {max(ratios):.2f})")
