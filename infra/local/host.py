"""One host of a running job as the runner holds it: its process, its log, its limits and what it told."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from infra.local.console import LineSplitter
from infra.local.files import HostIdentity
from infra.local.host_init import HostSpec
from infra.local.limits import HostLimits

PROJECT_ROOT = Path(__file__).resolve().parents[2]
SEARCH_PATH = f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_READ_BYTES = 65_536


def reachable_directories() -> tuple[Path, ...]:
    """What every host must see of this machine wherever it lies: the checkout and the interpreter with its packages."""
    executables = Path(sys.executable), Path(sys.executable).resolve()
    directories = {PROJECT_ROOT, Path(sys.prefix), Path(sys.base_prefix), *(path.parent for path in executables)}
    return tuple(sorted(path for path in directories if directories.isdisjoint(path.parents)))


class Host:
    """A host from its start to its end; every method returns at once, except `start` (a moment) and `close`."""

    def __init__(self, identity: HostIdentity, spec: HostSpec, limits: HostLimits, log_file: Path) -> None:
        self.identity = identity
        self.limits = limits
        self.log_file = log_file
        self.exit_code: int | None = None
        self.left_processes: int | None = None
        self.peak_memory_bytes: int | None = None
        self.cpu_seconds: float | None = None
        self.bytes_received: int | None = None
        self.bytes_sent: int | None = None
        self._spec = spec
        self._process: subprocess.Popen[bytes] | None = None
        self._process_one: int | None = None
        self._splitters: dict[int, LineSplitter] = {}
        self._log = -1

    @property
    def process_one(self) -> int | None:
        """The host's process 1, by the pid that this process sees; None while there is none."""
        return self._process_one

    @property
    def open_streams(self) -> Collection[int]:
        """Descriptors of a started host that still have to be read; none are left when it is gone."""
        return self._splitters.keys()

    def start(self, plug_in: Callable[[int], None]) -> Collection[int]:
        """Starts the host and returns the descriptors to read from; `plug_in` connects a process to the network.

        Raises OSError.
        """
        self._log, log_end = os.pipe()
        status, status_end = os.pipe()
        self._splitters = {self._log: LineSplitter(), status: LineSplitter()}
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-m", "infra.local.host_init", str(status_end)],
            stdin=subprocess.PIPE,
            stdout=log_end,
            stderr=log_end,
            pass_fds=(status_end,),
            cwd=PROJECT_ROOT,
            env={"PATH": SEARCH_PATH, "PYTHONPATH": str(PROJECT_ROOT)},
        )
        os.close(log_end)
        os.close(status_end)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as specification:
            self.read(status)  # waits until the host has its namespaces, or for its end
            if status in self._splitters:
                plug_in(self._process.pid)
                specification.write(self._spec.to_json().encode())
        return tuple(self._splitters)

    def read(self, stream: int) -> list[str]:
        """Takes what arrived in one of the open streams, which ends with the host; returns lines of its log."""
        data = os.read(stream, _READ_BYTES)
        lines = self._splitters[stream].feed(data)
        if not data:
            lines = self._splitters.pop(stream).flush()
            os.close(stream)
        if stream != self._log:
            for line in lines:
                self._note(json.loads(line))
            return []
        with self.log_file.open("ab") as file:
            file.write(data)
        return lines

    def _note(self, facts: Mapping[str, Any]) -> None:
        self._process_one = facts.get("process_one", self._process_one)
        self.left_processes = facts.get("left_processes", self.left_processes)
        self.cpu_seconds = facts.get("cpu_seconds", self.cpu_seconds)
        self.bytes_received = facts.get("bytes_received", self.bytes_received)
        self.bytes_sent = facts.get("bytes_sent", self.bytes_sent)

    def send_signal(self, number: signal.Signals) -> None:
        """Signals process 1 of the host, as SageMaker does; while there is none yet, the host as a whole."""
        if self._process_one is None and self._process is not None:
            self._process.send_signal(number)
        elif self._process_one is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process_one, number)

    def sample_memory(self) -> None:
        """Updates the peak with what the host uses now."""
        now = self.limits.memory_bytes()
        if now is not None:
            self.peak_memory_bytes = max(now, self.peak_memory_bytes or 0)

    def close(self) -> None:
        """Waits for the end of the host, which is due, and settles its accounts; a second call changes nothing."""
        if self._process is not None:
            code = self._process.wait()
            self.exit_code = code if code >= 0 else 128 - code
        for stream in self.open_streams:
            os.close(stream)
        self._splitters = {}
        accounted = self.limits.cpu_seconds()  # of all its processes, where the kernel kept count
        self.cpu_seconds = self.cpu_seconds if accounted is None else accounted
        self.limits.remove()
