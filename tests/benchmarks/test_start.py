"""From launching two hosts to the first optimizer step, as a ratio to what the parts cost bare, in the same run."""

import json
import statistics
from pathlib import Path

import pytest

from tests.cluster import local_runner

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]

NUM_ROUNDS = 3
SETTINGS = {
    "model": "test_vit",
    "model_arguments": {"patch_size": 32, "depth": 2, "embed_dim": 32, "num_heads": 2},
    "batch_size": 32,
    "steps": 2,
    "num_records": 1000,
}
# `ray start` twice, as a head and as a worker, and one import of torch, one after the other on one host.
BARE = """
import os, socket, subprocess, sys, time
address = socket.gethostbyname(socket.gethostname())
os.environ["RAY_AUTH_MODE"] = "disabled"
ray_start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--node-ip-address=" + address]
ray_start += ["--disable-usage-stats", "--num-cpus=1", "--object-store-memory=200000000"]
def seconds(*command):
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - began
parts = [
    seconds(*ray_start, "--head", "--port=6379", "--include-dashboard=false"),
    seconds(*ray_start, "--address=" + address + ":6379"),
    seconds(sys.executable, "-c", "import torch"),
]
print(f"counterpoise: event=bare seconds={sum(parts)}", flush=True)
"""


def test_start_against_the_bare_cost(tmp_path: Path) -> None:
    ratios = []
    for number in range(NUM_ROUNDS):
        bare_outcome, output = local_runner.run(tmp_path / f"bare{number}", BARE, groups=[["gpu", "ml.g5.xlarge", 1]])
        bare = [event for event in bare_outcome["events"] if event["name"] == "bare"]
        assert bare, output
        outcome, output = local_runner.run(tmp_path / f"job{number}", training=SETTINGS)
        assert outcome["status"] == "Completed", output
        seconds = {event["name"]: event["seconds_since_launch"] for event in reversed(outcome["events"])}
        bare_seconds = float(bare[0]["fields"]["seconds"])
        ratios.append(seconds["first_step"] / bare_seconds)
        figures = {name: round(value, 1) for name, value in seconds.items()}
        print(f"round {number}: bare {bare_seconds:.1f} s, {json.dumps(figures)}, ratio {ratios[-1]:.1f}")
    print(
        f"\nstart: launch to first step is {statistics.median(ratios):.1f} times the bare cost (median of {NUM_ROUNDS})"
    )
