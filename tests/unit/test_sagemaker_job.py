"""`python -m infra.local job`: what it makes of a CreateTrainingJob request, and the lines that it tells."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from infra.local import sagemaker_job
from infra.local.console import JobConsole
from infra.local.job import JobOutcome, LocalJob
from infra.local.sagemaker_job import JobFiles, run_request
from infra.local.sandbox import Sandbox
from training.contract import TrainingConfig

ROOT = Path(__file__).resolve().parents[2]
REQUEST: dict[str, Any] = {
    "TrainingJobName": "job-1",
    "HyperParameters": TrainingConfig.parse({"steps": 7, "model": "test_vit"}).to_hyperparameters(),
    "Environment": {"KEY": "value"},
    "ResourceConfig": {
        "VolumeSizeInGB": 50,
        "InstanceGroups": [
            {"InstanceGroupName": "cpu", "InstanceType": "ml.c5.4xlarge", "InstanceCount": 2},
            {"InstanceGroupName": "gpu", "InstanceType": "ml.g5.xlarge", "InstanceCount": 1},
        ],
    },
    "StoppingCondition": {"MaxRuntimeInSeconds": 5},
}
Runner = Callable[[LocalJob, JobConsole, Sandbox], JobOutcome]


def outcome(job: LocalJob, **changes: Any) -> JobOutcome:
    facts: dict[str, Any] = {
        "status": "Completed",
        "stop_reason": None,
        "failure": None,
        "exit_codes": {"algo-3": 0, "algo-1": 0, "algo-2": 0},
        "head": "algo-3",
        "model_dir": job.ml_dir("algo-3") / "model",
        "output_dir": job.ml_dir("algo-3") / "output",
        "started_at": datetime.now(UTC),
        "ended_at": datetime.now(UTC),
        "seconds": 12.5,
        "events": (),
        "last_step_to_end_seconds": None,
        "cpu_seconds": {},
        "bytes_received": {},
        "bytes_sent": {},
        "peak_memory_bytes": {},
        "left_processes": {},
        "limits": "none",
    }
    return JobOutcome(**{**facts, **changes})


@pytest.fixture
def jobs_run(monkeypatch: pytest.MonkeyPatch) -> list[LocalJob]:
    """The jobs that were run; no host starts."""
    jobs: list[LocalJob] = []

    def run(job: LocalJob, console: JobConsole, _sandbox: object) -> JobOutcome:
        jobs.append(job)
        console.line("gpu/algo-3", 'counterpoise: event=result loss=1e-05 note="ü"')
        return outcome(job)

    monkeypatch.setattr(sagemaker_job, "run_job", run)
    monkeypatch.setattr(sagemaker_job, "enter_sandbox", lambda: None)
    return jobs


def told(directory: Path, request: dict[str, Any] = REQUEST, **files: Any) -> list[dict[str, Any]]:
    """What a run of the request tells."""
    (directory / "job").mkdir(exist_ok=True)  # the emulator makes it
    file = directory / "request.json"
    file.write_text(json.dumps(request))
    lines = io.StringIO()
    run_request(JobFiles(request=file, job_dir=directory / "job", **files), lines)
    return [json.loads(line) for line in lines.getvalue().splitlines()]


def test_request_becomes_a_local_job(jobs_run: list[LocalJob], tmp_path: Path) -> None:
    shares = {"start": {"gpu": 1.0}, "first_step": {"gpu": 0.5}}
    told(tmp_path, channels={"training": tmp_path}, cpu_share_at=shares)
    [job] = jobs_run
    groups = [(group.name, group.instance_type, group.instance_count) for group in job.config.instance_groups]
    assert groups == [("cpu", "ml.c5.4xlarge", 2), ("gpu", "ml.g5.xlarge", 1)]
    assert job.config.training.to_hyperparameters() == REQUEST["HyperParameters"]
    assert (job.channels, job.cpu_share_at) == ({"training": tmp_path}, shares)
    assert job.environment == {"KEY": "value", "TRAINING_JOB_NAME": "job-1"}
    assert job.max_runtime_seconds > REQUEST["StoppingCondition"]["MaxRuntimeInSeconds"], "SageMaker watches the time"


def test_lines_of_a_job(jobs_run: list[LocalJob], tmp_path: Path) -> None:
    ml = tmp_path / "job" / "algo-3" / "ml"
    assert told(tmp_path) == [
        {"event": "status", "secondary": "Training", "checkpoint_dir": str(ml / "checkpoints")},
        {"event": "log", "host": "algo-3", "line": 'counterpoise: event=result loss=1e-05 note="ü"'},
        {
            "event": "ended",
            "status": "Completed",
            "failure": None,
            "exit_codes": {"algo-3": 0, "algo-1": 0, "algo-2": 0},
            "model_dir": str(ml / "model"),
            "output_dir": str(ml / "output"),
            "seconds": 12.5,
        },
    ]
    assert len(jobs_run) == 1
    assert (tmp_path / "job" / "limits.txt").read_text() == "none\n"


@pytest.mark.parametrize(
    ("changes", "failure"),
    [
        ({"status": "Failed", "failure": "the head died", "exit_codes": {"algo-3": 3}}, "the head died"),
        ({"status": "Stopped", "failure": "stopped: SIGTERM", "exit_codes": {"algo-3": 143}}, None),
    ],
)
def test_other_ends(
    changes: dict[str, Any],
    failure: str | None,
    jobs_run: list[LocalJob],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert jobs_run == []
    monkeypatch.setattr(sagemaker_job, "run_job", lambda job, *_: outcome(job, **changes))
    last = told(tmp_path)[-1]
    assert (last["status"], last["failure"], last["exit_codes"]) == (changes["status"], failure, changes["exit_codes"])


def test_homogeneous_job_has_one_group(jobs_run: list[LocalJob], tmp_path: Path) -> None:
    resources = {"InstanceType": "ml.g5.xlarge", "InstanceCount": 2, "VolumeSizeInGB": 1}
    told(tmp_path, {**REQUEST, "ResourceConfig": resources})
    [group] = jobs_run[0].config.instance_groups
    assert (group.name, group.instance_type, group.instance_count) == ("homogeneousCluster", "ml.g5.xlarge", 2)


def test_checkpoints_are_kept_where_there_is_a_folder_for_them(jobs_run: list[LocalJob], tmp_path: Path) -> None:
    told(tmp_path)
    (tmp_path / "job" / "checkpoints").mkdir(parents=True)
    told(tmp_path)
    assert [job.checkpoints for job in jobs_run] == [None, tmp_path / "job" / "checkpoints"]


def test_bad_hyperparameters_end_as_process_1_would(jobs_run: list[LocalJob], tmp_path: Path) -> None:
    last = told(tmp_path, {**REQUEST, "HyperParameters": {"steps": "many"}})[-1]
    assert (last["status"], last["exit_codes"]) == ("Failed", {"algo-1": 2})
    assert last["failure"].startswith("steps: 'many'")
    assert jobs_run == []


def test_command_keeps_its_standard_output_for_the_protocol(tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    request.write_text(json.dumps({**REQUEST, "HyperParameters": {"step": "1"}}))
    command = [
        sys.executable,
        "-m",
        "infra.local",
        "job",
        "--request",
        str(request),
        "--job-dir",
        str(tmp_path / "job"),
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [json.loads(line)["event"] for line in ended.stdout.splitlines()] == ["status", "ended"]


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--channel", "training", "'training' is no NAME=VALUE"),
        ("--cpu-share", "start:gpu=many", "'start:gpu=many' is no EVENT:GROUP=CORES"),
        ("--cpu-share", "gpu=1", "'gpu=1' is no EVENT:GROUP=CORES"),
    ],
)
def test_bad_option_is_one_line(option: str, value: str, sentence: str, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "infra.local",
        "job",
        f"--request={tmp_path}",
        f"--job-dir={tmp_path}",
        option,
        value,
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert sentence in ended.stderr
    assert ended.stderr.count("\n") == 1
