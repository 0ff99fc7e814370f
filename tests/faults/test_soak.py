"""Hosts that come and go for half an hour: `make soak`, never part of `make test`."""

import os
import random
import shutil
import statistics
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.faults.jobs import BATCH_SIZE, NUM_ROWS, STEP_SECONDS, during_training, run

MINUTES = float(os.environ.get("COUNTERPOISE_SOAK_MINUTES", "30"))
BETWEEN_KILLS_SECONDS, GONE_SECONDS, QUIET_END_SECONDS = 60, 10, 60
THREE_HOSTS = [["gpu", "ml.g5.xlarge", 1], ["cpu", "ml.c5.4xlarge", 2]]
MOST_GROWTH = 1.1

pytestmark = [pytest.mark.soak, pytest.mark.timeout(MINUTES * 60 * 3)]


def test_hosts_come_and_go(tmp_path: Path) -> None:
    """Every minute a CPU host is killed, and comes back: every row once in each epoch, and memory stays flat."""
    num_epochs = round(MINUTES * 60 / STEP_SECONDS / (NUM_ROWS / BATCH_SIZE))
    seconds = num_epochs * NUM_ROWS / BATCH_SIZE * STEP_SECONDS
    chance, faults = random.Random(11), []
    for number in range(int((seconds - QUIET_END_SECONDS) / BETWEEN_KILLS_SECONDS)):
        host, at = chance.choice(["algo-2", "algo-3"]), float(number * BETWEEN_KILLS_SECONDS)
        faults += [during_training(host, "kill", at), during_training(host, "restart", at + GONE_SECONDS)]
    job = run(
        tmp_path,
        *faults,
        groups=THREE_HOSTS,
        training={"steps": None, "epochs": num_epochs, "checkpoint_every_steps": 500, "report_every_steps": 50},
    )
    assert set(job.exit_codes.values()) == {0}, job.output[-5000:]
    rows, every_row = job.rows(), list(range(NUM_ROWS))
    assert len(rows) == num_epochs * NUM_ROWS
    for epoch in range(num_epochs):
        assert sorted(rows[epoch * NUM_ROWS : (epoch + 1) * NUM_ROWS]) == every_row, f"epoch {epoch}"
    killed = [event for event in job.events("fault") if event["fields"]["action"] == "kill"]
    back = [event for event in job.events("fault") if event["fields"]["action"] == "restart"]
    assert len(killed) == len(back) == len(faults) / 2
    assert len(job.events("joined")) == 2 + len(back)
    times = [event["seconds_since_launch"] for event in job.events("step")]
    memory = [event["usage"]["algo-1"]["memory_bytes"] for event in job.events("step")]
    third = len(memory) // 3
    early, late = statistics.median(memory[third : 2 * third]), statistics.median(memory[2 * third :])
    print(
        f"{len(killed)} kills in {job.seconds / 60:.0f} minutes, {num_epochs} epochs; longest pause "
        f"between two reports {max(after - before for before, after in pairwise(times)):.1f} s of usually "
        f"{statistics.median(after - before for before, after in pairwise(times)):.1f}; "
        f"memory of the head {early / 1e6:.0f} MB in the second third, {late / 1e6:.0f} MB in the last"
    )
    assert late <= MOST_GROWTH * early


NUM_REPEATS, LEAST_LOAD = 20, 4


def test_a_job_on_a_busy_machine_never_fails(tmp_path: Path) -> None:
    """Twenty times the smallest job of two hosts, beside programs that want more CPUs than there are."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(LEAST_LOAD)]
    try:
        for number in range(NUM_REPEATS):
            run(tmp_path / str(number)).check_completed()
            shutil.rmtree(tmp_path / str(number))
    finally:
        for process in busy:
            process.kill()
            process.wait()
