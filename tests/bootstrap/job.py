"""A job whose hosts are processes on loopback addresses, with a stand-in for Ray and for the training driver."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from training.contract import instance_type_has_accelerator

ROOT = Path(__file__).resolve().parents[2]
FAKE_RAY = Path(__file__).parent / "fake_ray"
TOKEN = "0123456789abcdef" * 4
END_SECONDS = 60
"""Longest wait for a host; only a hang takes so long."""

_numbers = count(1)


def loopback_address() -> str:
    """An address of this machine that no other test of this or of a concurrent run uses."""
    number = next(_numbers)
    return f"127.{os.getpid() % 199 + 50}.{number // 250}.{number % 250 + 1}"


def two_hosts() -> dict[str, list[str]]:
    """The article's layout: host names by instance type."""
    return {"ml.g5.xlarge": ["algo-1"], "ml.c5.4xlarge": ["algo-2"]}


def resource_config(current: str, layout: dict[str, list[str]]) -> dict[str, Any]:
    """What SageMaker writes for a host of a job; every instance type is a group of its own."""
    groups = [
        {"instance_group_name": f"group{number}", "instance_type": instance_type, "hosts": hosts}
        for number, (instance_type, hosts) in enumerate(layout.items())
    ]
    group = next(group for group in groups if current in group["hosts"])
    return {
        "current_host": current,
        "current_instance_type": group["instance_type"],
        "current_group_name": group["instance_group_name"],
        "hosts": sorted(name for hosts in layout.values() for name in hosts),
        "instance_groups": groups,
        "network_interface_name": "eth0",
    }


def write_inputs(base: Path, resources: dict[str, Any] | str, hyperparameters: dict[str, str] | str = "{}") -> None:
    """Lay out what SageMaker gives a host below `base`; text is written as it is."""
    config = base / "input" / "config"
    for directory in (config, base / "model", base / "output"):
        directory.mkdir(parents=True, exist_ok=True)
    for name, content in {"resourceconfig.json": resources, "hyperparameters.json": hyperparameters}.items():
        (config / name).write_text(content if isinstance(content, str) else json.dumps(content))


def until(is_there: Callable[[], object]) -> None:
    """Return as soon as the condition holds; fail when it does not in time."""
    deadline = time.monotonic() + END_SECONDS
    while not is_there():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


@dataclass
class HostProcess:
    """A running host of a job."""

    name: str
    base: Path
    log_file: Path
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    @property
    def failure(self) -> str | None:
        path = self.base / "output" / "failure"
        return path.read_text() if path.exists() else None

    def end(self) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(END_SECONDS)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait_for(self, text: str, times: int = 1) -> None:
        """Return when the log has the text so many times; fail when the host ends without."""

        def is_there() -> bool:
            has_ended = self.process.poll() is not None
            log = self.log
            assert not has_ended or log.count(text) >= times, f"{self.name} ended without {text!r}:\n{log}"
            return log.count(text) >= times

        until(is_there)


@dataclass
class Job:
    """Starts hosts; everything lies below `directory`. Use it as a context: the end of it kills what is left."""

    directory: Path
    layout: dict[str, list[str]] = field(default_factory=two_hosts)
    hyperparameters: dict[str, str] = field(default_factory=dict)
    hosts: dict[str, HostProcess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = {name: loopback_address() for hosts in self.layout.values() for name in hosts}
        self.head = next(
            (hosts[0] for kind, hosts in self.layout.items() if instance_type_has_accelerator(kind)), "algo-1"
        )
        self.nodes = self.directory / "ray" / "nodes"
        self.nodes.mkdir(parents=True)
        self.token_file = self.directory / "token"
        self.token_file.write_text(TOKEN)
        self.token_file.chmod(0o600)

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            host.process.kill()
            host.process.wait()
        for pid in self.ray_pids():
            os.kill(pid, signal.SIGKILL)

    def start(
        self,
        name: str,
        *,
        driver: str = "succeed",
        ray: str = "ok",
        constants: dict[str, float] | None = None,
        is_broken: bool = False,
        environment: dict[str, str] | None = None,
    ) -> HostProcess:
        """Start one host; `constants` replaces such as `worker.RECONNECT_SECONDS` in it."""
        base = self.directory / name
        write_inputs(base, resource_config(name, self.layout), self.hyperparameters)
        order = {
            "base": str(base),
            "address": self.names[name],
            "names": self.names,
            "driver": driver,
            "broken": is_broken,
            "constants": {"worker.BEAT_SECONDS": 0.05, "head.FAREWELL_SECONDS": 20.0, **(constants or {})},
        }
        log_file = self.directory / f"{name}.log"
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.bootstrap.host_process", json.dumps(order)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={
                    **os.environ,
                    "PYTHONPATH": f"{FAKE_RAY}:{ROOT}",
                    "FAKE_RAY": ray,
                    "FAKE_RAY_NODES": str(self.nodes),
                    "COUNTERPOISE_TOKEN_FILE": str(self.token_file),
                    **(environment or {}),
                },
            )
        self.hosts[name] = HostProcess(name, base, log_file, process)
        return self.hosts[name]

    def ends(self) -> dict[str, int]:
        """The exit codes of all hosts, by name, once all have ended."""
        return {name: host.end() for name, host in self.hosts.items()}

    def go(self) -> None:
        """Let the driver `until_go` end."""
        (self.directory / self.head / "go").touch()

    def ray_pid(self, name: str) -> int:
        """The pid of the daemon that the last start on a host left."""
        return int((self.nodes / self.names[name]).read_text())

    def num_starts(self, name: str) -> int:
        """How often Ray was started on a host."""
        file = self.nodes.parent / f"starts-{self.names[name]}"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def ray_pids(self) -> list[int]:
        """Every process of Ray that still lives: daemons and starts that hang."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    environ = (entry / "environ").read_bytes()
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                except OSError:
                    continue
                is_host = int(entry.name) in {host.process.pid for host in self.hosts.values()}
                if f"FAKE_RAY_NODES={self.nodes}".encode() in environ and state not in "XZ" and not is_host:
                    found.append(int(entry.name))
        return found
