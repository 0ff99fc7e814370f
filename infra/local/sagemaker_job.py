"""`python -m infra.local job`: a job as the embedded SageMaker hands it over, on local hosts, told in JSON lines."""

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from infra.local.console import Event, JobConsole
from infra.local.files import head_of
from infra.local.job import JobOutcome, LocalJob, run_job
from infra.local.sandbox import enter_sandbox
from training.contract import ContractError, RunConfig, TrainingConfig

EXIT_BAD_INPUT = 2
HOMOGENEOUS = "homogeneousCluster"
"""SageMaker's name of the one group of a job that names none."""
LIMITS_FILE = "limits.txt"
"""In the job's folder: how CPU shares were enforced. SageMaker has no place for it, so it is not in the protocol."""
_NO_LIMIT_SECONDS = 1e9  # SageMaker watches the time, not the hosts


def add_command(commands: "argparse._SubParsersAction[Any]") -> None:
    """Adds `job` to the commands of `python -m infra.local`."""
    parser = commands.add_parser("job", help="one job from its CreateTrainingJob request, for the embedded AWS")
    parser.add_argument("--request", type=Path, required=True, help="JSON file with the request")
    parser.add_argument("--job-dir", type=Path, required=True, help="folder for the hosts of the job")
    parser.add_argument("--channel", type=_pair, action="append", default=[], metavar="NAME=PATH", help="input data")
    parser.add_argument("--cpu-share", type=_share, action="append", default=[], metavar="EVENT:GROUP=CORES")
    parser.set_defaults(run=_job)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=VALUE")
    return name, value


def _share(text: str) -> tuple[str, str, float]:
    event, _, share = text.partition(":")
    group, _, cores = share.partition("=")
    try:
        return event, group, float(cores)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no EVENT:GROUP=CORES") from None


def _job(options: argparse.Namespace) -> int:
    cpu_share_at: dict[str, dict[str, float]] = {}
    for event, group, cores in options.cpu_share:
        cpu_share_at.setdefault(event, {})[group] = cores
    files = JobFiles(
        request=options.request,
        job_dir=options.job_dir,
        channels={name: Path(path) for name, path in options.channel},
        cpu_share_at=cpu_share_at,
    )
    run_request(files, _take_standard_output())
    return 0


def _take_standard_output() -> TextIO:
    """Standard output for the protocol alone: whatever else is printed from here on goes to standard error."""
    sys.stdout.flush()
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", errors="replace")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return lines


@dataclass(frozen=True, kw_only=True)
class JobFiles:
    """Where a job's request and data lie, and what its hosts may use."""

    request: Path
    job_dir: Path
    """Gets a folder for each host; `checkpoints` in it, if there, is what an earlier job left."""
    channels: Mapping[str, Path] = field(default_factory=dict)
    cpu_share_at: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def run_request(files: JobFiles, lines: TextIO) -> None:
    """Runs the job to its end and tells about it in `lines`, one JSON object each; SIGTERM stops it as SageMaker does.

    - `{"event": "status", "secondary": "Training", "checkpoint_dir": ...}`: the hosts start
    - `{"event": "log", "host": "algo-1", "line": ...}`
    - `{"event": "ended", "status": "Completed" | "Failed" | "Stopped", "failure": str | null, "exit_codes": {...},
      "model_dir": ..., "output_dir": ..., "seconds": ...}`, with exit codes by host
    """
    request = json.loads(files.request.read_text())
    try:
        config = run_config(request)
    except ContractError as error:  # what process 1 of the hosts would say, and as it would end
        tell(lines, event="status", secondary="Training")
        tell(lines, event="ended", status="Failed", failure=str(error), exit_codes={"algo-1": EXIT_BAD_INPUT})
        return
    checkpoints = files.job_dir / "checkpoints"
    job = LocalJob(
        config=config,
        job_dir=files.job_dir,
        channels=files.channels,
        checkpoints=checkpoints if checkpoints.is_dir() else None,
        cpu_share_at=files.cpu_share_at,
        environment={**request.get("Environment", {}), "TRAINING_JOB_NAME": request["TrainingJobName"]},
        max_runtime_seconds=_NO_LIMIT_SECONDS,
    )
    sandbox = enter_sandbox()
    checkpoint_dir = job.ml_dir(head_of(config).name) / "checkpoints"
    tell(lines, event="status", secondary="Training", checkpoint_dir=str(checkpoint_dir))
    outcome = run_job(job, LineConsole(lines), sandbox)
    (files.job_dir / LIMITS_FILE).write_text(outcome.limits + "\n")
    tell(lines, event="ended", **_facts(outcome))


def run_config(request: Mapping[str, Any]) -> RunConfig:
    """The run that a CreateTrainingJob request describes, from its groups and hyperparameters. Raises ContractError."""
    training = TrainingConfig.from_hyperparameters(request.get("HyperParameters", {}))
    resources = request["ResourceConfig"]
    groups = resources.get("InstanceGroups") or [{"InstanceGroupName": HOMOGENEOUS, **resources}]
    names = {"name": "InstanceGroupName", "instance_type": "InstanceType", "instance_count": "InstanceCount"}
    instance_groups = [{field: group[name] for field, name in names.items()} for group in groups]
    return RunConfig.parse({"instance_groups": instance_groups, "training": training.model_dump(mode="json")})


class LineConsole(JobConsole):
    """What hosts print, as events of the protocol."""

    def __init__(self, lines: TextIO) -> None:
        super().__init__(stream=lines)
        self._lines = lines

    def line(self, label: str, text: str) -> None:
        """Tells one line of a host; `label` is its group and name."""
        tell(self._lines, event="log", host=label.rpartition("/")[2], line=text)

    def event(self, event: Event) -> None:
        """Tells nothing: the line of the event has been told."""


def tell(lines: TextIO, **fields: object) -> None:
    """One line of the protocol."""
    print(json.dumps(fields), file=lines, flush=True)


def _facts(outcome: JobOutcome) -> dict[str, Any]:
    return {
        "status": outcome.status,
        "failure": outcome.failure if outcome.status == "Failed" else None,
        "exit_codes": dict(outcome.exit_codes),
        "model_dir": str(outcome.model_dir),
        "output_dir": str(outcome.output_dir),
        "seconds": outcome.seconds,
    }
