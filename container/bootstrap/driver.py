"""The training driver as a child of the head's process 1: start, forward SIGTERM, read its events, judge its end."""

import asyncio
import json
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from container.bootstrap import log
from container.bootstrap.errors import BAD_INPUT, STOPPED, SUCCESS, TRAINING_FAILED
from container.bootstrap.host import HostContext
from container.bootstrap.outcome import Outcome

MODEL_FILE = "model.safetensors"


class Driver:
    """One run of `python -m training.main`."""

    def __init__(self, context: HostContext) -> None:
        self._context = context
        self._process: asyncio.subprocess.Process | None = None
        self._events = EventFile(context.runtime_dir / "events.jsonl")
        self._failure_file = context.runtime_dir / "failure"
        self._ready_file = context.runtime_dir / "ready"
        self._stop_file = context.runtime_dir / "stop"
        self.telemetry_file = context.runtime_dir / "telemetry.jsonl"

    @property
    def pids(self) -> tuple[int, ...]:
        """The pid whose exit code is awaited."""
        return (self._process.pid,) if self._process else ()

    def command(self) -> list[str]:
        """The exact command line."""
        paths = self._context.paths
        checkpoints = [f"--checkpoint-dir={paths.checkpoint_dir}"] if paths.checkpoint_dir.is_dir() else []
        return [
            sys.executable,
            "-m",
            "training.main",
            f"--hyperparameters={paths.hyperparameters_file}",
            f"--data-dir={paths.data_dir}",
            f"--model-dir={paths.model_dir}",
            f"--output-dir={paths.output_dir}",
            f"--events-file={self._events.path}",
            f"--telemetry-file={self.telemetry_file}",
            f"--failure-file={self._failure_file}",
            f"--ready-file={self._ready_file}",
            f"--stop-file={self._stop_file}",
            *checkpoints,
            f"--head-host={self._context.cluster.head}",
            f"--hosts={json.dumps([asdict(host) for host in self._context.cluster.hosts])}",
        ]

    async def start(self, head_address: str) -> None:
        """Start the driver. It checks the settings and imports what it needs, then waits for `set_ready`."""
        environment = {**self._context.child_environment(), "RAY_ADDRESS": head_address}
        self._events.path.touch()
        if self._context.user is not None:
            self._context.user.take_over(self._events.path)
        self._process = await asyncio.create_subprocess_exec(
            *self.command(),
            stdin=asyncio.subprocess.DEVNULL,
            env=environment,
            **self._context.process_options(),
        )

    def set_ready(self) -> None:
        """Tell the driver that the cluster has formed."""
        self._events.path.touch()
        self._ready_file.touch()

    async def wait(self) -> Outcome:
        """Wait for the driver's end and say what it means for the job."""
        if self._process is None:
            raise RuntimeError("the driver was not started")
        code = await self._process.wait()
        self.print_events()
        return self._judge(code)

    def ask_to_stop(self) -> None:
        """Pass SIGTERM on, as a file: the training workers are Ray's children, and the driver only waits for them."""
        self._stop_file.touch()

    async def kill(self) -> None:
        """End the driver if it still runs."""
        if self._process and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    def print_events(self) -> None:
        """Print what the training has reported since the last call."""
        for fields in self._events.read_new():
            log.event(str(fields.pop("event", "unnamed")), **fields)

    def seconds_since_progress(self) -> float:
        """Seconds since the training last said or touched anything."""
        return time.time() - self._events.path.stat().st_mtime

    def _judge(self, code: int) -> Outcome:
        if code == SUCCESS:
            model = self._context.paths.model_dir / MODEL_FILE
            if model.exists():
                return Outcome(exit_code=SUCCESS, reason="")
            return Outcome(exit_code=TRAINING_FAILED, reason=f"training ended without an error, but {model} is missing")
        reason = self._failure_file.read_text(errors="replace") if self._failure_file.exists() else ""
        if code == STOPPED:
            return Outcome(exit_code=STOPPED, reason=reason or "stopped by SIGTERM")
        return Outcome(
            exit_code=BAD_INPUT if code == BAD_INPUT else TRAINING_FAILED, reason=reason or _unexplained(code)
        )


class EventFile:
    """JSON lines that the training appends and process 1 reads as they come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def read_new(self) -> list[dict[str, Any]]:
        """The complete lines since the last call."""
        with self.path.open("rb") as file:
            file.seek(self._offset)
            complete = file.read().rpartition(b"\n")[0]
        if not complete:
            return []
        self._offset += len(complete) + 1
        return [_fields(line) for line in complete.split(b"\n")]


def _fields(line: bytes) -> dict[str, Any]:
    """The fields of one line; a spoilt one is shown, since no line is worth a job."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    return (
        fields
        if isinstance(fields, dict)
        else {"event": "unreadable_event", "line": line[:200].decode(errors="replace")}
    )


def _unexplained(code: int) -> str:
    if code < 0:
        name = signal.strsignal(-code) if -code not in set(signal.Signals) else signal.Signals(-code).name
        hint = "; the kernel does this when memory runs out" if -code == signal.SIGKILL else ""
        return f"the training process was killed by {name}{hint}"
    return f"the training process ended with exit code {code} and gave no reason; see its log above"
