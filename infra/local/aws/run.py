"""`make run`: the stack on an embedded AWS, one execution whose jobs really run on this machine, the Results table."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from infra.local import scale_model
from infra.local.aws.deploy import CdkProject
from infra.local.aws.server import LOCAL_RUNNER, EmbeddedAws
from infra.local.aws.settings import PROJECT_ROOT
from infra.local.aws.stand_in_image import client, register_image
from infra.local.sagemaker_job import LIMITS_FILE
from training.advisor.article import load_article
from training.report import BASELINE, HETEROGENEOUS, Arm, Comparison, notes, results_rows, to_markdown

ARMS = (BASELINE, HETEROGENEOUS)
STACK = "counterpoise"
CONTEXT = {"counterpoise:poll_seconds": "2"}
"""The one setting that differs from a deploy on AWS: a look at a job costs nothing here."""
LONGEST_SECONDS = 1800  # for each job; on two slow cores one takes three minutes


class RunFailed(Exception):
    """The execution did not succeed, or its figures do not agree; the text says why, in a line or a few."""


class Run:
    """One `make run`: everything it leaves is in `output_dir`, whose content it replaces."""

    def __init__(self, output_dir: Path, *, steps: int, runner_command: Sequence[str] = ()) -> None:
        self._output_dir = output_dir
        self._runner_command = runner_command or _runner_command()
        self._training = {**scale_model.TRAINING, "steps": steps}
        self._began = time.monotonic()

    def run(self) -> Comparison:
        """Deploy, execute, compare.

        Raises:
            EmulatorError, DeployError: the embedded AWS or the CDK does not do its part.
            RunFailed: the execution does not, or another run is at work in this folder.
        """
        with alone_in(self._output_dir.parent):
            return self._run()

    def _run(self) -> Comparison:
        shutil.rmtree(self._output_dir, ignore_errors=True)
        with EmbeddedAws(runner_command=self._runner_command, work_dir=self._output_dir / "aws") as aws:
            self._say(f"an AWS of this machine's own answers at {aws.endpoint}")
            self._deploy(aws)
            execution = self._execute(aws)
            comparison = self._compare(aws, execution["output"])
        (self._output_dir / "results.json").write_text(json.dumps(comparison.to_json(), indent=1) + "\n")
        (self._output_dir / "results.md").write_text(to_markdown(comparison))
        return comparison

    def _deploy(self, aws: EmbeddedAws) -> None:
        project = CdkProject(aws.environment, self._output_dir / "cdk", CONTEXT)
        project.bootstrap()
        self._say("cdk bootstrap: done")
        outputs = project.deploy()
        self._say(f"cdk deploy: {outputs['StateMachineArn']}")
        self._say(f"stand-in image registered: {register_image(aws.environment, STACK)}")

    def _execute(self, aws: EmbeddedAws) -> dict[str, Any]:
        name = f"run-{datetime.now(UTC):%Y%m%dT%H%M%S}"
        wish = {
            "mode": "compare",
            "instance_groups": [group.model_dump() for group in scale_model.GROUPS],
            "training": self._training,
            "max_runtime_seconds": LONGEST_SECONDS,
        }
        _counterpoise(aws, "start", "--name", name, "--input", json.dumps(wish))
        self._say(f"counterpoise start --name {name}: started, mode compare")
        _counterpoise(aws, "logs", name, "--follow", is_shown=True)
        self._say(f"execution {name} succeeded")
        execution: dict[str, Any] = json.loads(_counterpoise(aws, "status", name, "--json"))
        return execution

    def _compare(self, aws: EmbeddedAws, output: Mapping[str, Any]) -> Comparison:
        arms = {name: self._arm(aws, name, output["arms"][name]) for name in ARMS}
        comparison = Comparison(
            baseline=arms[BASELINE],
            heterogeneous=arms[HETEROGENEOUS],
            article=load_article(),
            conditions=scale_model.conditions(self._training, _limits(aws, output["arms"][HETEROGENEOUS]["job_name"])),
        )
        for name, value in output["results"].items():
            if value != getattr(comparison, name):
                raise RunFailed(
                    f"{name} is {value} in the execution's output, {getattr(comparison, name)} in the table"
                )
        return comparison

    def _arm(self, aws: EmbeddedAws, name: str, told: Mapping[str, Any]) -> Arm:
        """One arm from what its job left in S3, after the output of the execution was held against it."""
        job = client(aws.environment, "sagemaker").describe_training_job(TrainingJobName=told["job_name"])
        results = self._results(aws, name, told)
        check_metrics(name, told["metrics"], job["FinalMetricDataList"], results["headline"])
        training = next(t for t in job["SecondaryStatusTransitions"] if t["Status"] == "Training")
        return Arm(
            name=name,
            results=results,
            price_usd_per_hour=told["price_usd_per_hour"],
            first_step_seconds=results["first_step_ended_at"] - training["StartTime"].timestamp(),
            teardown_seconds=training["EndTime"].timestamp() - results["work_ended_at"],
        )

    def _results(self, aws: EmbeddedAws, name: str, told: Mapping[str, Any]) -> dict[str, Any]:
        """The job's results.json, out of the archive of its output, which stays in a folder of the arm."""
        folder = self._output_dir / name
        folder.mkdir()
        bucket, _, key = told["model"].removeprefix("s3://").partition("/")
        for archive in ("model.tar.gz", "output.tar.gz"):
            file = folder / archive
            client(aws.environment, "s3").download_file(bucket, f"{key.rpartition('/')[0]}/{archive}", str(file))
            with tarfile.open(file) as tar:
                tar.extractall(folder, filter="data")
            file.unlink()
        results: dict[str, Any] = json.loads((folder / "results.json").read_text())
        return results

    def _say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._began:5.1f} s] {text}", flush=True)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keeps a second run out of a folder until this one ends, however it ends; raises RunFailed in a second one."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunFailed(f"{folder}: another `make run` is at work here; wait until it has ended") from None
        yield
    finally:
        os.close(descriptor)


def check_metrics(
    arm: str, told: Mapping[str, float], described: Sequence[Mapping[str, Any]], headline: Mapping[str, float]
) -> None:
    """Hold the execution's output, the job's description and its results file against each other, to the digit.

    Raises:
        RunFailed: they differ.
    """
    of_job = {metric["MetricName"]: metric["Value"] for metric in described}
    if told != of_job:
        raise RunFailed(f"arm {arm}: the execution's output {told} is not what its job says: {of_job}")
    for name, value in headline.items():
        if of_job.get(name) != value:
            raise RunFailed(f"arm {arm}: {name} is {of_job.get(name)} in the job, {value} in its results.json")


def _limits(aws: EmbeddedAws, job_name: str) -> str:
    return (aws.settings.jobs_dir / job_name / LIMITS_FILE).read_text().strip()


def _runner_command() -> list[str]:
    shares = [(event, *share) for event, shares in scale_model.CPU_SHARE_AT.items() for share in shares.items()]
    return [*LOCAL_RUNNER, *(f"--cpu-share={event}:{group}={cores}" for event, group, cores in shares)]


def _counterpoise(aws: EmbeddedAws, *arguments: str, is_shown: bool = False) -> str:
    """What a `counterpoise` command prints, on this terminal or as a text; raises RunFailed with its last words."""
    bound = [sys.executable, "-S", "-m", "infra.local.aws.bound", str(os.getpid())]  # it ends with us, if we are killed
    ended = subprocess.run(
        [*bound, sys.executable, "-m", "infra.client", *arguments],
        cwd=PROJECT_ROOT,
        env={**os.environ, **aws.environment},
        stdin=subprocess.DEVNULL,
        stdout=None if is_shown else subprocess.PIPE,
        stderr=None if is_shown else subprocess.PIPE,
        text=True,
        check=False,
    )
    if ended.returncode != 0:
        raise RunFailed("the execution did not succeed; why is said above" if is_shown else ended.stderr.strip())
    return ended.stdout or ""


def show(comparison: Comparison) -> None:
    """Print the Results table with its notes."""
    table = Table(title="Results", title_justify="left")
    for heading in ("", *ARMS):
        table.add_column(heading)
    for row in results_rows(comparison):
        table.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    for note in notes(comparison):
        console.print(f"- {note}", highlight=False)
