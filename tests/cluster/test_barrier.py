"""Training never starts with a host missing, whichever host comes late."""

import random
from pathlib import Path

import pytest

from tests.cluster import local_runner

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

JOINABLE = {"model": "test_vit", "image_size": 160, "steps": 1, "join_timeout_seconds": 120}


@pytest.mark.parametrize("late_host", ["algo-1", "algo-2", "algo-2 by name"])
def test_waits_for_a_host_that_is_late(tmp_path: Path, late_host: str) -> None:
    """Cases C03 and C04: the head or the worker starts late, or its name resolves late."""
    name, _, by_name = late_host.partition(" ")
    delay_seconds = random.Random(late_host).uniform(4, 20)
    delays = {name: delay_seconds}
    outcome, output = local_runner.run(
        tmp_path,
        training=JOINABLE,
        stop_at=("cluster_formed", 1, 0.0),
        start_delay_seconds={} if by_name else delays,
        name_delay_seconds=delays if by_name else {},
    )
    seconds = {event["name"]: event["seconds_since_launch"] for event in outcome["events"]}
    formed = [event["fields"] for event in outcome["events"] if event["name"] == "cluster_formed"]
    assert [fields["hosts"] for fields in formed] == ["2"], output
    assert "training_started" not in seconds
    if not by_name:
        assert seconds["cluster_formed"] > delay_seconds


def test_a_host_that_never_comes_fails_the_job_by_name(tmp_path: Path) -> None:
    """Case C05; the host comes when the head has given up, and hears why."""
    outcome, output = local_runner.run(
        tmp_path, training={**JOINABLE, "join_timeout_seconds": 20}, start_delay_seconds={"algo-2": 22.0}
    )
    assert outcome["status"] == "Failed", output
    assert outcome["exit_codes"]["algo-1"] == 3
    assert "algo-2" in outcome["failure"][:200]
    assert not [event for event in outcome["events"] if event["name"] == "cluster_formed"]
