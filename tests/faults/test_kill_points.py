"""A training that is killed twenty times at random steps ends where it would have ended."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.local_runner import environment
from tests.faults.many_lives import EVERY, NUM_KILLS


def test_twenty_kills_cost_no_more_than_an_interval_each_and_change_nothing(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.faults.many_lives", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    lives = told["lives"]
    assert len(lives) == NUM_KILLS + 1
    lost = [killed["steps"][-1] - 1 - going_on["from"] for killed, going_on in itertools.pairwise(lives)]
    assert all(0 <= steps <= EVERY for steps in lost), lost
    assert len({life["from"] for life in lives}) > NUM_KILLS / 2, "most lives got on"
    assert told["loss"] == pytest.approx(told["loss_through"], abs=1e-6)
