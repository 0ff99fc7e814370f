"""Faults before the first step: hosts that are late, strange or wrong."""

import random
from pathlib import Path

import pytest

from container.bootstrap.errors import BAD_INPUT, CLUSTER_NOT_FORMED
from tests.faults.conftest import FaultUnderTest
from tests.faults.jobs import EndedJob, run

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SHORT_JOIN = {"join_timeout_seconds": 20}
UNTIL_FORMED = ("cluster_formed", 1, 0.0)
ON_THE_CPU_HOST = 'if [ "$(uname -n)" = algo-2 ]; then {}; fi'


def seconds_to_form(job: EndedJob) -> float:
    """From the start of the last host to the formed cluster; it has both hosts."""
    assert [event["fields"]["hosts"] for event in job.events("cluster_formed")] == ["2"], job.output
    return job.at("cluster_formed") - job.at("start", which=-1)


@pytest.mark.fault("F1")
@pytest.mark.parametrize("late_host", ["algo-1", "algo-2", "algo-2 by name"])
def test_training_waits_for_a_host_that_is_late(tmp_path: Path, fault: FaultUnderTest, late_host: str) -> None:
    """Cases C03 and C04: the head or the worker starts late, or its name resolves late."""
    name, _, by_name = late_host.partition(" ")
    delays = {name: random.Random(late_host).uniform(4, 20)}
    job = run(
        tmp_path,
        stop_at=UNTIL_FORMED,
        start_delay_seconds={} if by_name else delays,
        name_delay_seconds=delays if by_name else {},
    )
    assert not job.events("training_started")
    assert by_name or job.at("cluster_formed") > delays[name]
    fault.took(seconds_to_form(job))


@pytest.mark.fault("F2")
def test_a_host_that_never_comes_fails_the_job_by_name(tmp_path: Path, fault: FaultUnderTest) -> None:
    """Case C05; the host comes when the head has given up, and hears why."""
    job = run(tmp_path, training=SHORT_JOIN, start_delay_seconds={"algo-2": 22.0})
    assert not job.events("cluster_formed")
    job.check_failed(CLUSTER_NOT_FORMED, "algo-2 did not join within 20 s (join_timeout_seconds)")
    fault.took(job.at("end", "algo-1") - job.at("start", "algo-1") - 20, job.failure)


@pytest.mark.fault("F3")
def test_a_wrong_token_is_refused(tmp_path: Path, fault: FaultUnderTest) -> None:
    wrong = ON_THE_CPU_HOST.format(f'echo {"f" * 64} >"$COUNTERPOISE_TOKEN_FILE"')
    job = run(tmp_path, training=SHORT_JOIN, before=wrong)
    job.check_failed(CLUSTER_NOT_FORMED, "algo-2 did not join within 20 s")
    assert job.events("connection_refused", "algo-1")[0]["fields"]["reason"] == "wrong token"
    assert "wrong token" in job.events("end", "algo-2")[0]["fields"]["reason"]
    fault.took(job.seconds - job.at("start") - 20, job.failure)


@pytest.mark.fault("F3")
def test_without_a_token_nothing_starts(tmp_path: Path, fault: FaultUnderTest) -> None:
    job = run(tmp_path, environment={"COUNTERPOISE_TOKEN_FILE": ""})
    job.check_failed(BAD_INPUT, "COUNTERPOISE_TOKEN_FILE, COUNTERPOISE_CLUSTER_SECRET_ARN: neither is set")
    fault.took(job.seconds - job.at("end"))


@pytest.mark.fault("F15")
def test_a_start_of_ray_that_fails_is_tried_again(tmp_path: Path, fault: FaultUnderTest) -> None:
    """Something else has the control store's port at first; it is a process of this host, and goes with the try."""
    taken = "import socket, time; server = socket.create_server(('', 6379)); time.sleep(600)"
    on_the_head = f'if [ "$(uname -n)" = algo-1 ]; then python -c "{taken}" & fi'
    job = run(tmp_path, before=on_the_head, stop_at=UNTIL_FORMED)
    (failed,) = job.events("ray_start_failed")
    fault.took(job.at("cluster_formed") - job.at("ray_start_failed"), failed["fields"]["reason"])


@pytest.mark.thorough
@pytest.mark.fault("F19")
def test_a_host_whose_own_name_is_the_loopback(tmp_path: Path, fault: FaultUnderTest) -> None:
    own_name_first = '{ echo "127.0.1.1 $(uname -n)"; cat /etc/hosts; } >/tmp/hosts; cat /tmp/hosts >/etc/hosts'
    job = run(tmp_path, before=own_name_first)
    job.check_completed()
    fault.took(seconds_to_form(job))


@pytest.mark.thorough
@pytest.mark.fault("F20")
def test_a_second_interface_with_a_link_local_address(tmp_path: Path, fault: FaultUnderTest) -> None:
    """And the interface that the platform names does not exist here."""
    second = (
        "ip link add aws0 type veth peer name aws1; ip addr add 169.254.7.1/16 dev aws0; "
        "ip link set aws0 up; ip link set aws1 up; sed -i s/eth0/ens9/ /opt/ml/input/config/resourceconfig.json"
    )
    job = run(tmp_path, before=second)
    job.check_completed()
    assert not [event for event in job.events("start") if event["fields"]["address"].startswith("169.")]
    fault.took(seconds_to_form(job))


@pytest.mark.fault("F21")
def test_another_version_on_one_host(tmp_path: Path, fault: FaultUnderTest) -> None:
    older = (
        "mkdir -p /tmp/older/ray-2.59.0.dist-info; "
        "printf 'Metadata-Version: 2.1\\nName: ray\\nVersion: 2.59.0\\n' >/tmp/older/ray-2.59.0.dist-info/METADATA; "
        'export PYTHONPATH="/tmp/older:$PYTHONPATH"'
    )
    job = run(tmp_path, before=ON_THE_CPU_HOST.format(older))
    job.check_failed(CLUSTER_NOT_FORMED, "algo-2 could not join: runs {'python'")
    assert "2.59.0" in job.failure
    assert "use one image for all hosts" in job.failure
    fault.took(job.seconds - job.at("start", which=-1), job.failure)
