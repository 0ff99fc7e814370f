"""What a peer on the network can do, who the training runs as, and where secrets must not appear."""

import json
import os
import secrets
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.local.plan import NOBODY
from tests.faults.jobs import EndedJob, run

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

WITH_A_STRANGER = [["gpu", "ml.g5.xlarge", 1], ["cpu", "ml.c5.4xlarge", 2]]
STRANGER = "algo-3"
HARMLESS = {"GET /-/healthz", "GET /api/local_raylet_healthz", "GET /metrics"}
"""Health checks and Prometheus text: they tell that something runs, and take nothing."""
ASK_THE_CONTROL_STORE = """
from ray._raylet import GcsClient
try:
    print("NODES", list(GcsClient(address="algo-1:6379").get_all_node_info(timeout=10)))
except Exception as error:
    print("ASKED IN VAIN", error)
"""
WATCH_PROCESSES = """
while sleep 2; do
  for process in /proc/[0-9]*; do
    echo "$(grep ^Uid: $process/status | cut -f2) $(tr '\\0' ' ' <$process/cmdline)"
  done
done >/tmp/processes 2>/dev/null &
"""


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A job of two hosts, and what a third machine of their network, without their token, has found."""
    job_dir = tmp_path_factory.mktemp("job")
    scan = (
        f'if [ "$(uname -n)" = {STRANGER} ]; then\n'
        f"cat >/tmp/ask.py <<'END'{ASK_THE_CONTROL_STORE}END\n"
        f"{sys.executable} -m tests.cluster.port_scan /opt/ml/output/scan.json algo-1 algo-2 &\n"
        "until grep -q 'ASKED IN VAIN RPC\\|NODES' /opt/ml/output/asked 2>/dev/null; do\n"
        f"  RAY_AUTH_MODE=disabled {sys.executable} /tmp/ask.py >>/opt/ml/output/asked 2>&1\n"
        "done\nwait\nexit 0\nfi"
    )
    # The job takes the stranger for a host that does not come, and goes on without it.
    job = run(
        job_dir,
        before=scan,
        groups=WITH_A_STRANGER,
        training={"missing_hosts": "continue", "join_timeout_seconds": 30},
    )
    assert job.exit_codes == {"algo-1": 0, "algo-2": 0, STRANGER: 0}, job.output
    folder = job.job_dir / STRANGER / "ml" / "output"
    return {
        "ports": json.loads((folder / "scan.json").read_text()),
        "asked": (folder / "asked").read_text(),
        "job_dir": job.job_dir,
    }


def test_the_scan_has_found_the_cluster(scanned: dict[str, Any]) -> None:
    ports = scanned["ports"]
    assert {"algo-1:6379", "algo-1:6378"} <= ports.keys(), "control store and control channel"
    assert any(name.startswith("algo-2:") for name in ports)


def test_only_health_checks_and_metrics_answer(scanned: dict[str, Any]) -> None:
    answered = [
        (port, answer["request"], answer["status"], answer["text"][:200])
        for port, answers in scanned["ports"].items()
        for answer in answers
        if answer["status"] < 400 and answer["request"] not in HARMLESS
    ]
    assert answered == []


def test_no_job_can_be_submitted(scanned: dict[str, Any]) -> None:
    for host in ("algo-1", "algo-2"):
        assert not (scanned["job_dir"] / host / "tmp" / "taken-over").exists()


def test_the_control_store_tells_nothing_without_the_token(scanned: dict[str, Any]) -> None:
    assert "ASKED IN VAIN RPC error: InvalidAuthToken" in scanned["asked"], scanned["asked"]
    assert "NODES" not in scanned["asked"]


CANARIES = {"AWS_SECRET_ACCESS_KEY": secrets.token_hex(20), "HF_TOKEN": secrets.token_hex(20)}
TOKEN = secrets.token_hex(32)
AS_ORDINARY_USER = ("--hyperparameters", "container.ray_daemons", "raylet", "gcs_server", "ray::")
"""In the command lines of the driver, of Ray's daemons and of its workers."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("", id="success", marks=pytest.mark.thorough),
        pytest.param("raise 30 0", id="failure"),
    ],
)
def with_canaries(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> EndedJob:
    """A job whose environment holds secrets and whose processes were listed all the time; one ends with an error."""
    before = f'echo "$OWN_TOKEN" >"$COUNTERPOISE_TOKEN_FILE"; unset OWN_TOKEN{WATCH_PROCESSES}'
    environment = {**CANARIES, "OWN_TOKEN": TOKEN}
    job = run(tmp_path_factory.mktemp("job"), before=before, fault=request.param, environment=environment)
    assert set(job.exit_codes.values()) == {1 if request.param else 0}, job.output
    return job


def test_no_secret_is_in_anything_that_a_job_leaves(with_canaries: EndedJob) -> None:
    """Logs, results, failure, what Ray wrote, and the lists of processes, which every user of a host can read."""
    files = [path for path in with_canaries.job_dir.rglob("*") if path.is_file() and not path.is_symlink()]
    assert {"raylet.out", "processes", "algo-1.log"} <= {path.name for path in files}
    found = [
        (name, str(path))
        for name, canary in {**CANARIES, "token": TOKEN}.items()
        for path in files
        if canary.encode() in path.read_bytes()
    ]
    assert found == []
    assert not any(canary in with_canaries.output for canary in (*CANARIES.values(), TOKEN))


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's sandbox has one user only")
def test_only_process_one_is_root(with_canaries: EndedJob) -> None:
    lines = (with_canaries.job_dir / "algo-1" / "tmp" / "processes").read_text().splitlines()
    for program in AS_ORDINARY_USER:
        assert {line.split(" ")[0] for line in lines if program in line} == {str(NOBODY)}, program


def test_isolated_hosts_get_their_token_from_the_head(tmp_path: Path) -> None:
    environment = {"COUNTERPOISE_TOKEN_FILE": "", "COUNTERPOISE_ISOLATED": "1"}
    run(tmp_path, environment=environment).check_completed()
