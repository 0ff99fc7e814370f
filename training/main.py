"""The training driver on the head: settings -> source and model, checked -> TorchTrainer.fit -> results."""

import argparse
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training.contract import ContractError, TrainingConfig
from training.events import Events

EXIT_SUCCESS = 0
EXIT_TRAINING_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_STOPPED = 143
READY_POLL_SECONDS = 0.1
_PROCESS_GONE = ("ActorDiedError", "RayActorError", "WorkerCrashedError", "OutOfMemoryError")
"""Ray's errors, by name, for a process that ended without an exception of its own."""
READY_MARGIN_SECONDS = 120.0
"""Process 1 has its own deadline for the cluster; this one only ends a driver whose process 1 is gone."""


@dataclass(frozen=True, kw_only=True)
class JobFiles:
    """The files and folders that connect the driver with process 1 and with SageMaker."""

    hyperparameters: Path
    data_dir: Path
    model_dir: Path
    output_dir: Path
    events_file: Path
    telemetry_file: Path
    failure_file: Path
    ready_file: Path
    stop_file: Path
    checkpoint_dir: Path | None
    """Where checkpoints are kept; None where the platform keeps none."""
    head_host: str
    hosts: tuple[dict[str, str], ...]


def parse_arguments(arguments: Sequence[str]) -> JobFiles:
    """Read the command line that process 1 writes."""
    parser = argparse.ArgumentParser(prog="python -m training.main", description=__doc__)
    for name in (
        "hyperparameters", "data-dir", "model-dir", "output-dir", "events-file",
        "telemetry-file", "failure-file", "ready-file", "stop-file",
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--checkpoint-dir", type=Path, help="where checkpoints are kept; without it, none are made")
    parser.add_argument("--head-host", required=True, help="name of the host that this runs on")
    parser.add_argument("--hosts", type=json.loads, required=True, help="every host: JSON list of name, group, type")
    values = vars(parser.parse_args(arguments))
    return JobFiles(**{**values, "hosts": tuple(values["hosts"])})


def main(arguments: Sequence[str]) -> int:
    """Train as the files say; returns the exit code, and leaves the reason of a failure in the failure file."""
    files = parse_arguments(arguments)
    try:
        return _drive(files)
    except Exception as error:  # noqa: BLE001 the reason must reach the failure file, whatever it is, cause first
        cause = root_cause(error)
        if isinstance(cause, ContractError):
            files.failure_file.write_text(" | ".join(cause.problems))
            return EXIT_BAD_INPUT
        text = _told(cause)
        files.failure_file.write_text(f"{text}\n\n{traceback.format_exc()}")
        print(f"{text}\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        return EXIT_TRAINING_FAILED


def root_cause(error: BaseException) -> BaseException:
    """The exception that a user's code or ours raised, below what Ray and Ray Train wrap around it."""
    # By attribute, without an import of Ray: a driver whose imports fail has a cause to report as well.
    failures = getattr(error, "worker_failures", None)
    if failures:
        causes = [root_cause(failures[rank]) for rank in sorted(failures)]
        return next((cause for cause in causes if not _is_echo(cause)), causes[0])
    for name in ("controller_failure", "health_check_failure", "_base_exc", "cause"):
        inner = getattr(error, name, None)
        if isinstance(inner, BaseException):
            return root_cause(inner)
    return error


def _told(cause: BaseException) -> str:
    """The cause in the words of a failure's first line; what Ray says of a process that vanished comes behind ours."""
    name, told = type(cause).__name__, str(cause)
    if name not in _PROCESS_GONE:
        return f"{name}: {told}"
    address = re.search(r"\b(\d+\.){3}\d+\b", told)
    where = f" on the host {address[0]}" if address else ""
    return (
        f"out of memory? A training worker{where} was killed, and the kernel does this when memory runs out; take "
        f"hosts with more memory, or a smaller batch_size ({name}: {' '.join(told.split())})"
    )


def _is_echo(error: BaseException) -> bool:
    """Whether a training worker only noticed that another one had gone: the lost partner of a collective operation."""
    return type(error).__module__.startswith("torch.distributed") or "Connection closed by peer" in str(error)


def _drive(files: JobFiles) -> int:
    events = Events(files.events_file)
    # Slow imports and every check that needs no cluster run while the hosts still find each other.
    from training.preflight import check, read_hyperparameters
    from training.resume import find_resume
    from training.trainer import run

    config = TrainingConfig.from_hyperparameters(read_hyperparameters(files.hyperparameters))
    plan = check(config, files.data_dir)
    events.emit("settings_checked", rows=plan.num_training_rows, validation_rows=plan.num_validation_rows)
    for note in plan.notes:
        events.emit("note", text=note)
    resumed = find_resume(files.checkpoint_dir, plan.identity, events) if files.checkpoint_dir else None
    if files.checkpoint_dir is None:
        events.emit("note", text="no checkpoints are kept: an interrupted run begins again")
    _wait_until(files.ready_file, timeout_seconds=config.join_timeout_seconds + READY_MARGIN_SECONDS)
    summary = run(config, plan, files, resumed)
    return EXIT_STOPPED if summary["stopped"] else EXIT_SUCCESS


def _wait_until(path: Path, *, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the cluster was not ready within {timeout_seconds:.0f} s")
        time.sleep(READY_POLL_SECONDS)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is on disk. Ray's exit handlers would only take time, and process 1 ends what is left.
    os._exit(code)
