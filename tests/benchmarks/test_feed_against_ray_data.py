"""The feed against Ray Data on the same two hosts, 1 : 4 in CPU share, interleaved: images per second as a ratio."""

import json
import statistics
import sys
from pathlib import Path

import pytest

from infra.local import scale_model
from tests.cluster import local_runner

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

NUM_ROUNDS = 3
STEPS = 20
COMMANDS = {
    "feed": [sys.executable, "-m", "container.bootstrap", "train"],
    "ray_data": [sys.executable, "-m", "tests.benchmarks.ray_data_job", "train"],
}


def test_feed_against_ray_data(tmp_path: Path) -> None:
    ratios, ratios_at_equal_speed = [], []
    for number in range(NUM_ROUNDS):
        rate, work = {}, {}
        for name, command in COMMANDS.items():
            outcome, output = local_runner.run(
                tmp_path / f"{name}{number}",
                command=command,
                training={**scale_model.TRAINING, "balance_rounds": 0, "steps": STEPS},
                cpu_share=scale_model.CPU_SHARES,
                bind_share_at=scale_model.BIND_SHARES_AT,
                environment={"COUNTERPOISE_HOSTS": "algo-1,algo-2"},
            )
            assert outcome["status"] == "Completed", output
            results = json.loads((Path(outcome["output_dir"]) / "data" / "results.json").read_text())
            rate[name] = results["images_per_second"]
            work[name] = rate[name] * results["cpu_seconds_per_row"]
            busy = {host["name"]: round(host["cpu_share_used"], 2) for host in results["hosts"]}
            print(f"round {number} {name}: {rate[name]:.1f} images/s, CPU busy {busy}, useful cores {work[name]:.2f}")
        ratios.append(rate["feed"] / rate["ray_data"])
        ratios_at_equal_speed.append(work["feed"] / work["ray_data"])
    medians = statistics.median(ratios), statistics.median(ratios_at_equal_speed)
    print(
        f"\nfeed over Ray Data: {medians[0]:.2f} in images/s, {medians[1]:.2f} at equal CPU cost per image "
        f"(medians of {NUM_ROUNDS}, {STEPS} steps each)"
    )
