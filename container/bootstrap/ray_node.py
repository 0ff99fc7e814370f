"""This host's Ray processes: start with retries, watch the raylet, stop by pid.

`ray stop` kills every Ray process of the machine, so process 1 ends what descends from it instead.
"""

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from container.bootstrap import log
from container.bootstrap.errors import CLUSTER_NOT_FORMED, HostError
from container.bootstrap.processes import descendants, end_all
from container.bootstrap.worker_output import WorkerOutput

GCS_PORT = 6379
LOGS_AT = "logs of Ray: "
START_ATTEMPTS = 4
"""On a busy machine 2 of 14 starts died with a time-out of Ray's; four in a row are not chance."""
TRAINER_RESOURCE = "trainer"
"""One unit per training worker that a host may run: pins workers to hosts, with or without accelerators."""


@dataclass(frozen=True, kw_only=True)
class RayNodeSettings:
    """Everything Ray is told on this host. `object_store_bytes` fits into `plasma_directory`."""

    is_head: bool
    address: str
    head_address: str
    num_cpus: int
    num_accelerators: int
    num_trainers: int
    labels: Mapping[str, str]
    object_store_bytes: int
    plasma_directory: str
    environment: Mapping[str, str]
    process_options: Mapping[str, Any] = field(default_factory=dict)
    """More for subprocess.Popen: who the daemons run as."""

    def command(self) -> list[str]:
        """The exact command line."""
        place = {"gcs_server_port": GCS_PORT} if self.is_head else {"gcs_address": f"{self.head_address}:{GCS_PORT}"}
        settings = {
            "is_head": self.is_head,
            **place,
            "node_ip_address": self.address,
            "node_name": self.address,
            "num_cpus": self.num_cpus,
            "num_gpus": self.num_accelerators,
            "resources": {TRAINER_RESOURCE: self.num_trainers} if self.num_trainers else {},
            "labels": dict(self.labels),
            "object_store_memory": self.object_store_bytes,
            "plasma_directory": self.plasma_directory,
        }
        return [sys.executable, "-m", "container.ray_daemons", json.dumps(settings)]


class RayNode:
    """Ray on this host."""

    def __init__(self, settings: RayNodeSettings, *, spared: Callable[[], Collection[int]] = tuple) -> None:
        """`spared` gives the pids of this host's processes that are not Ray's."""
        self._settings = settings
        self._spared = spared
        self._raylet: psutil.Process | None = None
        self._output: WorkerOutput | None = None
        self.awaited_pids: set[int] = set()

    @property
    def is_alive(self) -> bool:
        """Whether the raylet that the last start brought up still runs."""
        with suppress(psutil.NoSuchProcess):
            return (
                self._raylet is not None and self._raylet.is_running() and self._raylet.status() != psutil.STATUS_ZOMBIE
            )
        return False

    async def start(self, *, deadline: float) -> None:
        """Start Ray; a failed attempt is cleaned up and tried again until `deadline` (loop time), 4 times at most.

        Raises:
            HostError: Ray did not start; the text ends with the last line it printed.
        """
        loop = asyncio.get_running_loop()
        reason = "no attempt was possible before the deadline"
        for attempt in range(1, START_ATTEMPTS + 1):
            remaining_seconds = deadline - loop.time()
            if remaining_seconds <= 0:
                break
            started_at = time.time()
            code, output = await self._attempt(remaining_seconds)
            self._raylet = _find_raylet()
            if code == 0 and self.is_alive:
                self._output = WorkerOutput(_logs_dir(output), since=started_at)
                return
            reason = _cause(output) or f"exit code {code}"
            log.event("ray_start_failed", attempt=attempt, reason=reason)
            await self.stop()
        raise HostError(CLUSTER_NOT_FORMED, f"Ray did not start on {self._settings.address}: {reason}")

    async def stop(self) -> None:
        """End every Ray process of this host; what does not end in 2 s is killed."""
        await end_all(self._processes, grace_seconds=2.0, awaited=self.awaited_pids)
        self._raylet = None
        self.print_output(is_last=True)
        self._output = None

    def _processes(self) -> list[psutil.Process]:
        """What descends from this process and not from a spared one: Ray's daemons and their workers."""
        found, pids = descendants(), self._spared()
        spared: set[psutil.Process] = set()
        for process in found:
            if process.pid in pids:
                with suppress(psutil.NoSuchProcess):
                    spared |= {process, *process.children(recursive=True)}
        return [process for process in found if process not in spared]

    def print_output(self, *, is_last: bool = False) -> None:
        """Print what workers of this host have printed since the last call."""
        for line in self._output.read_new(is_last=is_last) if self._output else ():
            log.line(line)

    async def _attempt(self, timeout_seconds: float) -> tuple[int | None, str]:
        if self._settings.is_head and _is_taken(self._settings.address, GCS_PORT):
            # Ray would find out after 40 s, and not say so.
            return None, f"port {GCS_PORT} is taken on {self._settings.address} by another process"
        # A file, not a pipe: the daemons inherit it, so a pipe would have no end.
        with tempfile.TemporaryFile() as output:
            process = await asyncio.create_subprocess_exec(
                *self._settings.command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(self._settings.environment),
                **self._settings.process_options,
            )
            self.awaited_pids.add(process.pid)
            try:
                async with asyncio.timeout(timeout_seconds):
                    code: int | None = await process.wait()
            except TimeoutError:
                return None, f"its start did not end within {timeout_seconds:.0f} s"
            finally:
                if process.returncode is None:  # it takes too long, or nobody wants it any more
                    with suppress(ProcessLookupError):
                        process.kill()
                    await process.wait()
                self.awaited_pids.discard(process.pid)
            output.seek(0)
            return code, output.read().decode(errors="replace")


def _logs_dir(output: str) -> Path:
    """Where the daemons write, by the last line of what started them."""
    return Path(output.rpartition(LOGS_AT)[2].strip())


def _cause(output: str) -> str:
    """The line of Ray's output that names the fault, or its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    named = [line for line in lines if "Error" in line or "error" in line or "Failed" in line or "timed out" in line]
    return (named or lines or [""])[-1][:300]


def _is_taken(address: str, port: int) -> bool:
    try:
        with socket.create_server((address, port)):
            return False
    except OSError:
        return True


def _find_raylet() -> psutil.Process | None:
    for process in descendants():
        with suppress(psutil.NoSuchProcess):
            if process.name() == "raylet":
                return process
    return None
