"""Twenty starts with a host that comes late: how many began to train with a host missing, and how long forming took."""

import random
from pathlib import Path

import pytest

from tests.cluster import local_runner

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

NUM_RUNS = 20
SETTINGS = {"model": "test_vit", "image_size": 160, "steps": 1, "join_timeout_seconds": 120}


def test_twenty_random_joins(tmp_path: Path) -> None:
    generator = random.Random(0)
    num_early, seconds_after_last = 0, []
    for number in range(NUM_RUNS):
        late_host, delay_seconds = generator.choice(["algo-1", "algo-2"]), generator.uniform(0, 20)
        outcome, output = local_runner.run(
            tmp_path / str(number),
            training=SETTINGS,
            stop_at=("cluster_formed", 1, 0.0),
            start_delay_seconds={late_host: delay_seconds},
        )
        formed = [event for event in outcome["events"] if event["name"] == "cluster_formed"]
        assert len(formed) == 1, output
        is_early = formed[0]["fields"]["hosts"] != "2" or formed[0]["seconds_since_launch"] <= delay_seconds
        num_early += is_early
        seconds_after_last.append(formed[0]["seconds_since_launch"] - delay_seconds)
        print(
            f"run {number}: {late_host} {delay_seconds:.1f} s late, formed {seconds_after_last[-1]:.1f} s after it came"
        )
    print(
        f"\nbarrier: {num_early} of {NUM_RUNS} starts with a host missing; from the last host's start to the formed "
        f"cluster {sorted(seconds_after_last)[NUM_RUNS // 2]:.1f} s (median), {max(seconds_after_last):.1f} s (worst)"
    )
    assert num_early == 0
