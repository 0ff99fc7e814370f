"""However a local run ends, nothing of it is left: no process, no namespace, no mount, no link, no control group."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from infra.local.cgroups import Owner
from tests.cluster import local_runner

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(60),
    pytest.mark.skipif(sys.platform != "linux", reason="local hosts need Linux namespaces"),
]

# A daemon that left its parent and its session, as Ray's do, and a process 1 that ends when asked, or not.
CODE = """
import os, signal, subprocess, sys, time
subprocess.Popen(["setsid", "--fork", "sleep", "1000"]).wait()
signal.signal(signal.SIGTERM, lambda *_: print("asked to end", flush=True) or (%(ends)s and sys.exit(0)))
print("in", os.readlink("/proc/self/ns/net"))
print("host is up", flush=True)
while %(waits)s:
    time.sleep(1000)
"""
OBEYS = CODE % {"ends": True, "waits": True}
IGNORES = CODE % {"ends": False, "waits": True}
ENDS = CODE % {"ends": True, "waits": False}


class Machine:
    """What this machine holds that a run could leave behind."""

    def __init__(self) -> None:
        self.mounts = sorted(Path("/proc/self/mountinfo").read_text().splitlines())
        self.links = sorted(entry.name for entry in Path("/sys/class/net").iterdir())
        self.opt = sorted(entry.name for entry in Path("/opt").iterdir())
        named = Path("/run/netns")
        self.named_namespaces = sorted(entry.name for entry in named.iterdir()) if named.is_dir() else []


def _namespaces(pids: list[int]) -> set[str]:
    """The network namespaces of processes; a namespace without a name ends with its last process."""
    found = set()
    for pid in pids:
        try:
            found.add(str(Path(f"/proc/{pid}/ns/net").readlink()))
        except OSError:
            continue
    return found


def _marked(mark: str) -> list[int]:
    """Processes of this machine with the mark in their arguments or their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            texts = [*process.cmdline(), *process.environ().values()]
        except psutil.Error:
            continue
        if any(mark in text for text in texts):
            found.append(process.pid)
    return found


def _groups_of(pid_and_start: str) -> list[Path]:
    return list(Path("/sys/fs/cgroup").glob(f"**/{pid_and_start}"))


class Running:
    """A run whose hosts are up."""

    def __init__(self, process: subprocess.Popen[str], mark: str, hosts: ExitStack) -> None:
        self.process = process
        self.mark = mark
        self.group_name = Owner.of(process.pid).group_name
        self.seen: list[str] = []
        self.read_until("host is up", 2)
        tree = [process.pid, *(child.pid for child in psutil.Process(process.pid).children(recursive=True))]
        # stand-in, runner, and of each host its parent, process 1 and the daemon
        assert len(tree) == 2 + 2 * 3, tree
        self.namespaces = _namespaces(tree) - _namespaces([os.getpid()])
        assert len(self.namespaces) == 3  # of the sandbox and of each host
        self._ends = [os.pidfd_open(pid) for pid in tree]
        for end in self._ends:
            hosts.callback(os.close, end)

    def read_until(self, text: str, times: int) -> None:
        """Reads what the run prints until `text` came so many times."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.seen.append(line)
            if sum(text in seen for seen in self.seen) >= times:
                return
        pytest.fail(f"the run ended before it printed {text!r}: {self.seen}")

    def wait_for_all(self) -> int:
        """Waits until every process of the run has ended and returns the exit code of the visible one."""
        self.process.communicate()
        for end in self._ends:
            assert select.select([end], [], [], 30)[0], "a process of the run is still there"
        return self.process.returncode


@contextmanager
def _run(tmp_path: Path, code: str) -> Iterator[Running]:
    mark = uuid.uuid4().hex
    with ExitStack() as stack:
        process = local_runner.start(tmp_path, code, environment={"MARK": mark})
        stack.enter_context(process)
        stack.callback(process.kill)
        yield Running(process, mark, stack)


def _assert_nothing_is_left(before: Machine, running: Running) -> None:
    assert _marked(running.mark) == []
    assert _namespaces(psutil.pids()).isdisjoint(running.namespaces)
    assert vars(Machine()) == vars(before)


def _outcome(tmp_path: Path) -> dict[str, Any]:
    outcome: dict[str, Any] = json.loads((tmp_path / "job0/outcome.json").read_text())
    return outcome


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_after_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    before = Machine()
    with _run(tmp_path, OBEYS) as running:
        running.process.send_signal(number)
        assert running.wait_for_all() == 0
    assert _outcome(tmp_path)["status"] == "Stopped"
    assert _outcome(tmp_path)["exit_codes"] == {"algo-1": 0, "algo-2": 0}
    assert _outcome(tmp_path)["stop_reason"] == f"signal {number.name}"
    _assert_nothing_is_left(before, running)
    assert _groups_of(running.group_name) == []


def test_a_second_signal_kills_at_once(tmp_path: Path) -> None:
    before = Machine()
    with _run(tmp_path, IGNORES) as running:
        running.process.send_signal(signal.SIGINT)
        running.read_until("asked to end", 2)
        running.process.send_signal(signal.SIGINT)  # without it, the hosts had two minutes
        assert running.wait_for_all() == 0
    assert _outcome(tmp_path)["exit_codes"] == {"algo-1": 137, "algo-2": 137}
    _assert_nothing_is_left(before, running)
    assert _groups_of(running.group_name) == []


def test_nothing_is_left_after_a_kill_of_the_visible_process(tmp_path: Path) -> None:
    before = Machine()
    with _run(tmp_path / "killed", IGNORES) as running:
        running.process.kill()
        assert running.wait_for_all() == -signal.SIGKILL
    _assert_nothing_is_left(before, running)
    local_runner.run(tmp_path / "next", ENDS)
    assert _groups_of(running.group_name) == []


def test_a_run_does_not_touch_the_groups_of_another(tmp_path: Path) -> None:
    with _run(tmp_path / "first", OBEYS) as running:
        groups = _groups_of(running.group_name)
        local_runner.run(tmp_path / "second", ENDS)
        assert _groups_of(running.group_name) == groups
        running.process.terminate()
        assert running.wait_for_all() == 0


def test_nothing_is_left_after_a_normal_end(tmp_path: Path) -> None:
    before, mark = Machine(), uuid.uuid4().hex
    outcome, output = local_runner.run(tmp_path, ENDS, environment={"MARK": mark})
    namespaces = set(re.findall(r"net:\[\d+\]", output))
    assert outcome["status"] == "Completed"
    assert outcome["left_processes"] == {"algo-1": 1, "algo-2": 1}  # the daemons, gone with their hosts
    assert _marked(mark) == []
    assert len(namespaces) == 2
    assert _namespaces(psutil.pids()).isdisjoint(namespaces)
    assert vars(Machine()) == vars(before)


def test_nothing_is_left_when_the_output_cannot_be_written(tmp_path: Path) -> None:
    before = Machine()
    with _run(tmp_path, OBEYS) as running:
        assert running.process.stdout is not None
        running.process.stdout.close()  # as `| head` does
        running.process.terminate()  # the hosts answer with a line that nobody reads
        assert running.process.wait() != 0
    _assert_nothing_is_left(before, running)
    assert _groups_of(running.group_name) == []


def test_ctrl_c_in_a_terminal_is_one_signal(tmp_path: Path) -> None:
    """The terminal signals a whole group of processes; a run that took it twice would kill its hosts at once."""
    arguments = local_runner.arguments(tmp_path, OBEYS)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(arguments[0], arguments, {**local_runner.environment(), "TERM": "xterm"})
    shown = _read_terminal(terminal, lambda text: text.count(b"host is up") == 2)
    os.write(terminal, b"\x03")
    shown += _read_terminal(terminal, lambda _: False)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, shown
    os.close(terminal)
    assert shown.count(b"asked to end") == 2
    assert _outcome(tmp_path)["exit_codes"] == {"algo-1": 0, "algo-2": 0}


def _read_terminal(terminal: int, is_enough: Callable[[bytes], bool]) -> bytes:
    text = b""
    while not is_enough(text):
        try:
            text += os.read(terminal, 65_536)
        except OSError:  # the other side is closed
            break
    return text
