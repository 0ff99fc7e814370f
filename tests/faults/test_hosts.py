"""Hosts, their networks and their processes fail while a job trains."""

from pathlib import Path

import pytest

from container.bootstrap.errors import HEAD_LOST, TRAINING_FAILED
from tests.faults.conftest import FaultUnderTest
from tests.faults.jobs import KILLED, during_training, run

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.mark.fault("F4")
def test_a_cpu_host_is_killed(tmp_path: Path, fault: FaultUnderTest) -> None:
    """Case C20."""
    job = run(tmp_path, during_training("algo-2", "kill"))
    job.check_completed(killed="algo-2")
    assert [event["fields"]["host"] for event in job.events("host_lost", "algo-1")] == ["algo-2"]
    fault.took(job.longest_pause())


@pytest.mark.thorough
@pytest.mark.fault("F5")
def test_ray_dies_on_a_cpu_host(tmp_path: Path, fault: FaultUnderTest) -> None:
    job = run(tmp_path, during_training("algo-2", "kill_program:raylet"), training={"num_records": 800, "steps": 200})
    assert set(job.exit_codes.values()) == {0}, job.output
    assert sorted(job.rows()) == list(range(800))
    job.check_left_nothing()
    assert len(job.events("ray_died", "algo-2")) == 1
    assert job.longest_pause() <= 30
    fault.took(job.at("joined", "algo-2", which=1) - job.at("fault"))


@pytest.mark.fault("F6")
def test_a_cpu_host_is_cut_off(tmp_path: Path, fault: FaultUnderTest) -> None:
    job = run(tmp_path, during_training("algo-2", "unplug"))
    job.check_completed(killed="algo-2", code=HEAD_LOST)
    (end,) = job.events("end", "algo-2")
    assert end["fields"]["reason"].startswith("reconnecting the head algo-1 failed")
    assert end["seconds_since_launch"] - job.at("fault") <= 60
    fault.took(job.longest_pause(), end["fields"]["reason"])


@pytest.mark.thorough
@pytest.mark.fault("F7")
def test_a_link_is_down_for_three_seconds(tmp_path: Path, fault: FaultUnderTest) -> None:
    job = run(tmp_path, during_training("algo-2", "unplug"), during_training("algo-2", "plug_in", 3.0))
    job.check_completed()
    assert not job.events("host_lost")
    assert not job.events("ray_died")
    fault.took(job.longest_pause())


@pytest.mark.fault("F8")
def test_the_head_is_killed(tmp_path: Path, fault: FaultUnderTest) -> None:
    """Case C08 (b)."""
    job = run(tmp_path, during_training("algo-1", "kill"))
    assert job.exit_codes == {"algo-1": KILLED, "algo-2": HEAD_LOST}, job.output
    assert job.failure.startswith("reconnecting the head algo-1 failed")
    job.check_left_nothing(killed="algo-1")
    fault.took(job.at("end", "algo-2") - job.at("fault"), job.failure)


@pytest.mark.fault("F12")
@pytest.mark.parametrize("host", [pytest.param("algo-1", marks=pytest.mark.thorough), "algo-2"])
def test_a_data_worker_is_killed_as_when_memory_runs_out(tmp_path: Path, fault: FaultUnderTest, host: str) -> None:
    """Case C19."""
    job = run(tmp_path, during_training(host, "kill_program:ray::serve_feeds"))
    job.check_completed()
    fault.took(job.longest_pause())


@pytest.mark.fault("F12")
def test_the_trainer_is_killed_as_when_memory_runs_out(tmp_path: Path, fault: FaultUnderTest) -> None:
    """Case C19."""
    job = run(tmp_path, during_training("algo-1", "kill_program:ray::RayTrainWorker"))
    job.check_failed(TRAINING_FAILED, "out of memory?")
    assert "10.117.0.1" in job.failure
    fault.took(job.seconds - job.at("fault"), job.failure)


@pytest.mark.fault("F16")
def test_a_clean_end(tmp_path: Path, fault: FaultUnderTest) -> None:
    """Case C08 (a)."""
    job = run(tmp_path)
    job.check_completed()
    fault.took(job.outcome["last_step_to_end_seconds"])
