"""Runs local jobs, the real bootstrap or a small command in its place, in a program of its own as a user's would be."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from infra.local.console import Event, JobConsole
from infra.local.faults import Fault
from infra.local.job import JobRun, LocalJob, run_job
from infra.local.sandbox import enter_sandbox
from training.contract import RunConfig

PROJECT_ROOT = Path(__file__).resolve().parents[2]
BOOTSTRAP = (sys.executable, "-m", "container.bootstrap", "train")
GPU_AND_CPU = [["gpu", "ml.g5.xlarge", 1], ["cpu", "ml.c5.4xlarge", 1]]


class StoppingConsole(JobConsole):
    """Stops its job as soon as an event has been printed a number of times."""

    def __init__(self, event_name: str, count: int, grace_seconds: float) -> None:
        super().__init__()
        self.run: JobRun | None = None
        self._event_name, self._num_missing, self._grace_seconds = event_name, count, grace_seconds

    def event(self, event: Event) -> None:
        super().event(event)
        self._num_missing -= event.name == self._event_name
        if self._num_missing == 0 and event.name == self._event_name and self.run is not None:
            self.run.stop(grace_seconds=self._grace_seconds)


def _job(order: dict[str, Any], number: int) -> LocalJob:
    groups = [{"name": name, "instance_type": kind, "instance_count": n} for name, kind, n in order["groups"]]
    channels = {name: Path(path) for name, path in order["channels"].items()}
    command = order["command"] or ((sys.executable, "-c", order["code"]) if order["code"] else BOOTSTRAP)
    return LocalJob(
        config=RunConfig.parse({"instance_groups": groups, "training": order["training"]}),
        job_dir=Path(order["job_dir"]) / f"job{number}",
        channels=channels,
        checkpoints=order["checkpoints"] and Path(order["checkpoints"]),
        command=command,
        faults=[Fault(**fault) for fault in order["faults"]],
        **order["options"],
    )


def main() -> None:
    order = json.loads(sys.argv[1])
    sandbox = enter_sandbox()
    print("inside", flush=True)
    for number in range(order["num_jobs"]):
        job = _job(order, number)
        if order["stop_at"]:
            console = StoppingConsole(*order["stop_at"])
            console.run = JobRun(job, console, sandbox)
            outcome = console.run.run()
        else:
            outcome = run_job(job, JobConsole(), sandbox)
        (job.job_dir / "outcome.json").write_text(json.dumps(asdict(outcome), default=str))


def arguments(
    job_dir: Path,
    code: str = "",
    *,
    command: list[str] | None = None,
    groups: list[list[Any]] | None = None,
    channels: dict[str, str] | None = None,
    checkpoints: str | None = None,
    faults: list[dict[str, Any]] | None = None,
    num_jobs: int = 1,
    training: dict[str, Any] | None = None,
    stop_at: tuple[str, int, float] | None = None,
    launcher: tuple[str, ...] = (),
    **options: Any,
) -> list[str]:
    """The command line of this program.

    Each host runs `command`, or `code`, or without either the bootstrap with the settings `training`. `stop_at` stops
    the job when an event has been printed so many times, with a grace in seconds. `options` are fields of `LocalJob`.
    """
    order = {
        "job_dir": str(job_dir),
        "code": code,
        "command": command,
        "groups": groups or GPU_AND_CPU,
        "channels": channels or {},
        "checkpoints": checkpoints,
        "faults": faults or [],
        "num_jobs": num_jobs,
        "training": training or {},
        "stop_at": stop_at,
        "options": options,
    }
    return [sys.executable, *launcher, str(Path(__file__)), json.dumps(order)]


def environment() -> dict[str, str]:
    """The environment in which this program finds the project."""
    return {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}


def start(job_dir: Path, code: str = "", **order: Any) -> subprocess.Popen[str]:
    """Starts this program with what `arguments` takes."""
    return subprocess.Popen(
        arguments(job_dir, code, **order),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=PROJECT_ROOT,
        env=environment(),
    )


def run(job_dir: Path, code: str = "", **order: Any) -> tuple[dict[str, Any], str]:
    """The outcome and the output of the first job that `start` with these arguments runs to its end."""
    with start(job_dir, code, **order) as process:
        output = process.communicate()[0]
    assert process.returncode == 0, output
    return json.loads((job_dir / "job0" / "outcome.json").read_text()), output


if __name__ == "__main__":
    main()
