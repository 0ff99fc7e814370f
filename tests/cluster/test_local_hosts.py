"""Local hosts look like SageMaker's: own name, address, files, memory, CPU share and processes, one network."""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import local_runner

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="local hosts need Linux namespaces"),
]

MIB = 1 << 20

LOOK_AROUND = """
import json, os, pathlib, socket, sys, time
name = socket.gethostname()
other = "algo-2" if name == "algo-1" else "algo-1"
server = socket.create_server(("", 7000))
deadline = time.monotonic() + 30
while True:
    try:
        client = socket.create_connection((other, 7000), timeout=5)
        break
    except OSError:
        assert time.monotonic() < deadline, "the other host never listened"
        time.sleep(0.05)
client.sendall(name.encode())
peer, address = server.accept()
heard = peer.recv(16).decode()
def read(path):
    return pathlib.Path(path).read_text()
def refuses_to_write(path):
    try:
        pathlib.Path(path).write_text("x")
    except OSError:
        return True
    return False
pathlib.Path("/tmp/seen-by").write_text(name)
pathlib.Path("/dev/shm/seen-by").write_text(name)
shm = os.statvfs("/dev/shm")
token_file = pathlib.Path(os.environ["COUNTERPOISE_TOKEN_FILE"])
facts = dict(
    name=name, heard=heard, heard_from=address[0], address=socket.gethostbyname(name), pid=os.getpid(),
    pids=[entry for entry in os.listdir("/proc") if entry.isdecimal()],
    routes=[line.split()[1] for line in read("/proc/net/route").splitlines()[1:]],
    interfaces=sorted(n for _, n in socket.if_nameindex()),
    tmp=sorted(os.listdir("/tmp")), shm=os.listdir("/dev/shm"), shm_bytes=shm.f_blocks * shm.f_frsize,
    ml=sorted(os.listdir("/opt/ml")), cwd=os.getcwd(), environment=dict(os.environ),
    descriptors=sorted(os.listdir("/proc/self/fd")), stdin=os.readlink("/proc/self/fd/0"),
    token=token_file.read_text(), token_mode=token_file.stat().st_mode & 0o777,
    channel=read("/opt/ml/input/data/training/row.txt"),
    is_channel_read_only=refuses_to_write("/opt/ml/input/data/training/row.txt"),
    cgroup=read("/proc/self/cgroup"),
    quota=next((read(p) for p in ("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
                if os.path.exists(p)), None),
)
pathlib.Path("/opt/ml/output/data/facts.json").write_text(json.dumps(facts))
print("last words of", name, end="")
"""


def _facts(directory: Path, host: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((directory / host / "ml/output/data/facts.json").read_text())
    return facts


@pytest.fixture(scope="module")
def two_jobs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    """Directory, outcome and output of a job of two hosts, with a second one after it in the same sandbox."""
    directory = tmp_path_factory.mktemp("jobs")
    channel = directory / "channel"
    channel.mkdir()
    (channel / "row.txt").write_text("a row")
    outcome, output = local_runner.run(
        directory,
        LOOK_AROUND,
        channels={"training": str(channel)},
        num_jobs=2,
        cpu_share_at={"start": {"gpu": 0.5, "cpu": None}},
        shm_bytes=8 * MIB,
        environment={"EXTRA": "1"},
    )
    return directory, outcome, output


@pytest.fixture(params=["job0", "job1"])
def facts(two_jobs: tuple[Path, dict[str, Any], str], request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return [_facts(two_jobs[0] / request.param, host) for host in ("algo-1", "algo-2")]


def test_hosts_reach_each_other_by_name(facts: list[dict[str, Any]]) -> None:
    one, two = facts
    assert (one["name"], two["name"]) == ("algo-1", "algo-2")
    assert (one["heard"], two["heard"]) == ("algo-2", "algo-1")
    assert (one["heard_from"], two["heard_from"]) == (two["address"], one["address"])
    assert one["address"] != two["address"]


def test_nothing_outside_is_reachable(facts: list[dict[str, Any]]) -> None:
    for host in facts:
        assert host["interfaces"] == ["eth0", "lo"]
        assert "00000000" not in host["routes"]


def test_a_host_sees_its_own_processes_only(facts: list[dict[str, Any]]) -> None:
    for host in facts:
        assert host["pid"] == 1
        assert host["pids"] == ["1"]


def test_a_host_has_its_own_files_and_memory(facts: list[dict[str, Any]]) -> None:
    for host in facts:
        assert {"input", "model", "output"} <= set(host["ml"])
        assert "checkpoints" not in host["ml"], "only a job with a checkpoint configuration has them"
        assert host["shm"] == ["seen-by"]
        assert host["shm_bytes"] == 8 * MIB
        assert set(host["tmp"]) <= {".counterpoise", "home", "seen-by", *_first_parts_below_tmp()}


def test_a_private_file_stays_private(two_jobs: tuple[Path, dict[str, Any], str]) -> None:
    for host in ("algo-1", "algo-2"):
        assert (two_jobs[0] / "job0" / host / "tmp/seen-by").read_text() == host


def _first_parts_below_tmp() -> set[str]:
    """Where the checkout or the interpreter lies below /tmp, it is seen there."""
    paths = (local_runner.PROJECT_ROOT, Path(sys.prefix), Path(sys.base_prefix))
    return {path.parts[2] for path in paths if path.is_relative_to("/tmp")}


def test_channels_are_read_only(facts: list[dict[str, Any]]) -> None:
    for host in facts:
        assert host["channel"] == "a row"
        assert host["is_channel_read_only"]


def test_hosts_share_one_secret_token(facts: list[dict[str, Any]]) -> None:
    one, two = facts
    assert one["token"] == two["token"]
    assert len(bytes.fromhex(one["token"])) == 32
    assert one["token_mode"] == 0o600
    assert not one["environment"]["COUNTERPOISE_TOKEN_FILE"].startswith("/opt/ml")


def test_a_host_inherits_nothing_but_what_it_needs(facts: list[dict[str, Any]]) -> None:
    for host in facts:
        assert host["stdin"] == "/dev/null"
        # 0 to 2, two sockets of each side of the conversation, and the listing itself
        assert len(host["descriptors"]) <= 7
        assert host["cwd"] == str(local_runner.PROJECT_ROOT)
        variables = set(host["environment"]) - {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE"}
        assert variables - {"COUNTERPOISE_USER"} == {
            "COUNTERPOISE_TOKEN_FILE",
            "EXTRA",
            "HOME",
            "LANG",
            "LC_CTYPE",
            "PATH",
            "PYTHONPATH",
            "PYTHONUNBUFFERED",
        } - ({"LC_CTYPE"} - set(host["environment"]))
        assert ("COUNTERPOISE_USER" in variables) == (os.geteuid() == 0)


def test_a_host_sees_its_share_where_a_container_would(
    facts: list[dict[str, Any]], two_jobs: tuple[Path, dict[str, Any], str]
) -> None:
    if "affinity" in two_jobs[1]["limits"]:
        pytest.skip("no control group may be written here, so that there is no quota to see")
    one, two = facts
    assert one["quota"].split()[0] == "25000"  # of the 50,000 us period
    assert two["quota"].split()[0] in ("-1", "max")
    assert "counterpoise" not in one["cgroup"]


def test_the_outcome_and_every_line_are_collected(two_jobs: tuple[Path, dict[str, Any], str]) -> None:
    directory, outcome, output = two_jobs
    assert outcome["status"] == "Completed"
    assert outcome["exit_codes"].keys() == {"algo-1", "algo-2"}
    assert outcome["left_processes"] == {"algo-1": 0, "algo-2": 0}
    assert outcome["failure"] is None
    assert output.count("gpu/algo-1 | last words of algo-1\n") == 2
    assert output.count("cpu/algo-2 | last words of algo-2\n") == 2
    assert (directory / "job0" / "algo-1.log").read_text() == "last words of algo-1"


def test_the_secret_is_not_left_on_the_disk(two_jobs: tuple[Path, dict[str, Any], str]) -> None:
    directory = two_jobs[0]
    token = _facts(directory / "job0", "algo-1")["token"]
    (directory / "job0/algo-1/ml/output/data/facts.json").unlink()
    (directory / "job0/algo-2/ml/output/data/facts.json").unlink()
    holding = [path for path in (directory / "job0").rglob("*") if path.is_file() and token in path.read_text()]
    assert holding == []


def test_failures_and_left_processes_are_told(tmp_path: Path) -> None:
    code = """
import pathlib, socket, subprocess, sys, time
if socket.gethostname() == "algo-2":
    pathlib.Path("/opt/ml/output/failure").write_text("disk full\\n" + "x" * 2000)
    sys.exit(3)
subprocess.Popen(["sleep", "1000"], start_new_session=True)
"""
    outcome, _ = local_runner.run(tmp_path, code)
    assert outcome["status"] == "Failed"
    assert outcome["exit_codes"] == {"algo-1": 0, "algo-2": 3}
    assert outcome["failure"].startswith("disk full\n")
    assert len(outcome["failure"]) == 1024
    assert outcome["left_processes"] == {"algo-1": 1, "algo-2": 0}


def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    outcome, output = local_runner.run(tmp_path, command=["/no/such/program"])
    assert outcome["exit_codes"] == {"algo-1": 125, "algo-2": 125}
    assert "gpu/algo-1 | counterpoise: host algo-1 cannot start /no/such/program: " in output
    assert "algo-1 ended with exit code 125" in outcome["failure"]


def test_a_stop_is_a_signal_then_a_kill(tmp_path: Path) -> None:
    code = """
import signal, socket, sys, time
if socket.gethostname() == "algo-1":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
else:
    signal.signal(signal.SIGTERM, lambda *_: print("ignored", flush=True))
print("counterpoise: event=ready", flush=True)
while True:
    time.sleep(1000)
"""
    outcome, output = local_runner.run(tmp_path, code, stop_at=("ready", 2, 0.5))
    assert outcome["status"] == "Stopped"
    assert outcome["exit_codes"] == {"algo-1": 7, "algo-2": 137}
    assert output.count("ignored") == 1


def test_a_stop_keeps_a_late_host_from_starting(tmp_path: Path) -> None:
    code = 'import time; print("counterpoise: event=ready", flush=True); time.sleep(1000)'
    outcome, _ = local_runner.run(tmp_path, code, stop_at=("ready", 1, 0.5), start_delay_seconds={"algo-2": 3600.0})
    assert outcome["exit_codes"] == {"algo-1": 137}


def test_the_longest_runtime_is_a_stop(tmp_path: Path) -> None:
    code = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
time.sleep(1000)
"""
    outcome, _ = local_runner.run(tmp_path, code, groups=[["gpu", "ml.g5.xlarge", 1]], max_runtime_seconds=2.0)
    assert outcome["status"] == "Stopped"
    assert outcome["stop_reason"] == "max_runtime_seconds=2 is over"


def test_a_name_can_come_late(tmp_path: Path) -> None:
    code = """
import os, socket, sys, time
if socket.gethostname() == "algo-1":
    try:
        socket.gethostbyname("algo-2")
        sys.exit("algo-2 resolved before its time")
    except OSError:
        print("late", flush=True)
    deadline = time.monotonic() + 30
    while "algo-2" not in open("/etc/hosts").read():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    print(socket.gethostbyname("algo-2"))
else:
    print(socket.gethostbyname("algo-2"), socket.gethostbyname("algo-1"))
"""
    process = local_runner.start(tmp_path, code, name_delay_seconds={"algo-2": 3600.0})
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if "late" in line:
                table = tmp_path / "job0/algo-1/hosts"
                table.write_text(table.read_text() + "10.117.0.2 algo-2\n")
    outcome = json.loads((tmp_path / "job0/outcome.json").read_text())
    assert outcome["exit_codes"] == {"algo-1": 0, "algo-2": 0}


BURN = """
import time
end = time.monotonic() + 3
while time.monotonic() < end:
    pass
"""


def test_a_share_limits_cpu_time(tmp_path: Path) -> None:
    shares = {"gpu": 0.25, "cpu": 0.5}
    outcome, _ = local_runner.run(tmp_path, BURN, cpu_share_at={"start": shares})
    if "affinity" in outcome["limits"]:
        pytest.skip("no control group may be written here, so that nothing limits less than a core")
    for host, share in (("algo-1", 0.25), ("algo-2", 0.5)):
        assert 0 < outcome["cpu_seconds"][host] <= share * outcome["seconds"] * 1.3


def test_a_share_changes_with_each_event_that_says_so(tmp_path: Path) -> None:
    code = """
import pathlib, time
paths = pathlib.Path("/sys/fs/cgroup/cpu.max"), pathlib.Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
quota = lambda: next(path.read_text().split()[0] for path in paths if path.exists())
deadline = time.monotonic() + 30
for event in ("cluster_formed hosts=1 seconds=0.1", "half_way"):
    before = quota()
    print("counterpoise: event=" + event, flush=True)
    while quota() == before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    print("quota", before, quota())
"""
    groups = [["gpu", "ml.g5.xlarge", 1]]
    shares = {"start": {"gpu": 2.0}, "cluster_formed": {"gpu": 1.5}, "half_way": {"algo-1": 0.75}}
    outcome, output = local_runner.run(tmp_path, code, groups=groups, cpu_share_at=shares)
    if "affinity" in outcome["limits"]:
        pytest.skip("no control group may be written here, so that there is no quota to change")
    assert "quota 100000 75000" in output
    assert "quota 75000 37500" in output
    assert outcome["events"][0]["name"] == "cluster_formed"
    assert outcome["events"][0]["fields"] == {"hosts": "1", "seconds": "0.1"}


def test_memory_is_accounted(tmp_path: Path) -> None:
    code = f"""
import sys, time
block = b"x" * {64 * MIB}
print("counterpoise: event=ready", flush=True)
open("/dev/shm/block", "wb").write(block)
time.sleep(2)  # four samples of the runner
"""
    outcome, _ = local_runner.run(tmp_path, code, groups=[["gpu", "ml.g5.xlarge", 1]])
    if "affinity" in outcome["limits"]:
        pytest.skip("no control group may be written here, so that the kernel does not account memory")
    assert 128 * MIB < outcome["peak_memory_bytes"]["algo-1"] < 256 * MIB


ORDINARY_UID = 65_534

BECOME_ORDINARY = """
import os, sys
from infra.local import kernel
from infra.local.host import reachable_directories
kernel.unshare(kernel.CLONE_NEWNS)
kernel.keep_mounts_private()
for directory in reachable_directories():
    closed = next((parent for parent in reversed(directory.parents) if not parent.stat().st_mode & 0o001), None)
    if closed is not None:  # an interpreter below /root, say: show it without the rest
        source = kernel.open_path(directory)
        kernel.mount_tmpfs(closed, "mode=0755")
        directory.mkdir(parents=True)
        kernel.bind(source, directory)
os.setgroups([])
os.setgid(%(uid)d)
os.setuid(%(uid)d)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that an ordinary user may write, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        if os.geteuid() == 0:
            os.chown(name, ORDINARY_UID, ORDINARY_UID)
        yield Path(name)


def test_an_ordinary_user_can_run_hosts(open_directory: Path) -> None:
    if not _kernel_lets_users_make_namespaces():
        pytest.skip("this kernel refuses user namespaces")
    launcher = ("-c", BECOME_ORDINARY % {"uid": ORDINARY_UID}) if os.geteuid() == 0 else ()
    code = LOOK_AROUND.replace("/opt/ml/input/data/training/row.txt", "/etc/hosts")
    outcome, _ = local_runner.run(
        open_directory, code, launcher=launcher, cpu_share_at={"start": {"gpu": 1.0, "cpu": 1.0}}
    )
    assert outcome["exit_codes"] == {"algo-1": 0, "algo-2": 0}
    one, two = (_facts(open_directory / "job0", host) for host in ("algo-1", "algo-2"))
    assert one["heard"] == "algo-2"
    assert two["heard_from"] == one["address"]
    assert one["pids"] == ["1"]
    assert outcome["left_processes"] == {"algo-1": 0, "algo-2": 0}
    assert (open_directory / "job0/algo-1.log").stat().st_uid == (ORDINARY_UID if os.geteuid() == 0 else os.geteuid())


def _kernel_lets_users_make_namespaces() -> bool:
    limits = [Path("/proc/sys/user/max_user_namespaces"), Path("/proc/sys/kernel/unprivileged_userns_clone")]
    return all(int(limit.read_text()) > 0 for limit in limits if limit.exists())
