"""The process that runs a training job: started with its request, read line by line, stopped with SIGTERM."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infra.local.aws.settings import PROJECT_ROOT

Event = dict[str, Any]
END_OF_OUTPUT: Event = {"event": "end_of_output"}


class JobRunner:
    """A running runner. Its parent, for the kernel, is the thread that made this object: that must outlive it."""

    def __init__(self, command: Sequence[str], job_dir: Path, channels: Mapping[str, Path]) -> None:
        arguments = ["--request", str(job_dir / "request.json"), "--job-dir", str(job_dir)]
        for name, folder in channels.items():
            arguments += ["--channel", f"{name}={folder}"]
        self.events: queue.Queue[Event] = queue.Queue()
        self._log_file = job_dir / "runner.log"
        with self._log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-m", "infra.local.aws.bound", str(os.getpid()), *command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=PROJECT_ROOT,
                env=_environment(),
                start_new_session=True,
            )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # not of the protocol; people find such lines in the runner's own log
            if isinstance(event, dict):
                self.events.put(event)
        self.events.put(END_OF_OUTPUT)

    def stop(self) -> None:
        """SIGTERM: the runner passes it on to the hosts and gives them SageMaker's 120 s."""
        self._process.terminate()

    def kill(self) -> None:
        """SIGKILL, for a runner that does not end."""
        self._process.kill()

    def close(self) -> int:
        """Waits for the end of the process, which is due, and returns its exit code."""
        code = self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code

    def wait(self, seconds: float) -> bool:
        """Whether the process ends in that time."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def last_words(self) -> str:
        """The last line of its standard error."""
        lines = self._log_file.read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"


def _environment() -> dict[str, str]:
    """Nothing of the emulator's own settings and credentials reaches a job."""
    kept = ("PATH", "HOME", "LANG", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE")
    return {name: os.environ[name] for name in kept if name in os.environ}
