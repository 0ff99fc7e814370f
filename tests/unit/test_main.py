"""The training driver: its exit codes, the cause in the failure file, and what it refuses before Ray is asked."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray.exceptions
import ray.train
from ray.train.v2._internal.exceptions import UserExceptionWithTraceback, WorkerHealthCheckFailedError

import training.main as driver
from training.contract import ContractError
from training.main import EXIT_BAD_INPUT, EXIT_STOPPED, EXIT_SUCCESS, EXIT_TRAINING_FAILED, parse_arguments, root_cause
from training.trainer import ClusterTooSmall, check_resources

HOSTS = [{"name": "algo-1", "group": "gpu", "instance_type": "ml.g5.xlarge"}]
FILES = (
    "hyperparameters",
    "data-dir",
    "model-dir",
    "output-dir",
    "events-file",
    "telemetry-file",
    "failure-file",
    "ready-file",
    "stop-file",
)


class Job:
    """A folder with the driver's files; `run` plays the driver with stand-ins for the checks and the training."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.calls: list[str] = []
        self.arguments = [f"--{name}={folder / name}" for name in FILES]
        self.arguments += ["--head-host=algo-1", f"--hosts={json.dumps(HOSTS)}"]
        (folder / "ready-file").touch()

    def run(
        self,
        *,
        checking: Exception | None = None,
        training: BaseException | None = None,
        summary: dict[str, Any] | None = None,
    ) -> int:
        def check(*_: object) -> SimpleNamespace:
            self.calls.append("check")
            if checking:
                raise checking
            return SimpleNamespace(num_training_rows=7, num_validation_rows=3, notes=("other pixels",))

        def train(*_: object) -> dict[str, Any]:
            self.calls.append("train")
            if training:
                raise training
            return summary or {"stopped": False}

        self.monkeypatch.setattr("training.preflight.check", check)
        self.monkeypatch.setattr("training.trainer.run", train)
        return driver.main(self.arguments)

    @property
    def failure(self) -> str | None:
        file = self.folder / "failure-file"
        return file.read_text() if file.exists() else None

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "events-file").read_text().splitlines()]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(tmp_path, monkeypatch)


def test_the_command_line_names_every_file(job: Job) -> None:
    files = parse_arguments(job.arguments)
    assert files.hosts == tuple(HOSTS)
    assert (files.head_host, files.model_dir) == ("algo-1", job.folder / "model-dir")
    for missing in range(len(job.arguments)):
        with pytest.raises(SystemExit):
            parse_arguments(job.arguments[:missing] + job.arguments[missing + 1 :])


def test_success(job: Job) -> None:
    assert job.run() == EXIT_SUCCESS
    assert job.failure is None
    event, note, careless = job.events
    assert (event["event"], event["rows"], event["validation_rows"]) == ("settings_checked", 7, 3)
    assert (note["event"], note["text"]) == ("note", "other pixels")
    assert careless["text"] == "no checkpoints are kept: an interrupted run begins again"
    assert event["at"].endswith("+00:00")


def test_a_stopped_run_has_its_own_code(job: Job) -> None:
    assert job.run(summary={"stopped": True}) == EXIT_STOPPED == 143
    assert job.failure is None


def test_bad_settings(job: Job) -> None:
    assert job.run(checking=ContractError(["steps: 0 is out of range", "model: unknown"])) == EXIT_BAD_INPUT == 2
    assert job.failure == "steps: 0 is out of range | model: unknown"
    assert job.calls == ["check"]


def test_hyperparameters_that_the_contract_refuses(job: Job) -> None:
    (job.folder / "hyperparameters").write_text('{"steps": "many"}')
    assert job.run() == EXIT_BAD_INPUT
    assert (job.failure or "").startswith("steps: 'many' is not a whole number")
    assert job.calls == []


def test_a_first_batch_that_the_contract_refuses_on_a_training_worker(job: Job) -> None:
    refusal = UserExceptionWithTraceback(ContractError(["batch images: float64; expected float32"]), "Traceback ...")
    assert job.run(training=ray.train.WorkerGroupError("all failed", {0: refusal})) == EXIT_BAD_INPUT
    assert job.failure == "batch images: float64; expected float32"


def test_an_exception_puts_its_cause_first(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    assert job.run(training=RuntimeError("the disk is full")) == EXIT_TRAINING_FAILED == 1
    assert (job.failure or "").startswith("RuntimeError: the disk is full\n\nTraceback")
    assert capsys.readouterr().err.startswith("RuntimeError: the disk is full\nTraceback")


def test_an_exception_of_the_training_loop_puts_its_cause_first(job: Job) -> None:
    error = UserExceptionWithTraceback(KeyError("loss"), "Traceback of the training worker")
    assert job.run(training=ray.train.WorkerGroupError("all failed", {0: error})) == EXIT_TRAINING_FAILED
    assert (job.failure or "").startswith("KeyError: 'loss'\n")


def test_an_import_that_fails_has_a_cause_too(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "training.trainer", None)
    assert driver.main(job.arguments) == EXIT_TRAINING_FAILED
    assert (job.failure or "").startswith("ModuleNotFoundError: ")


class Clock:
    """Stands in for the module `time`: sleeping takes no time, and something may happen during the second sleep."""

    def __init__(self, during_sleep: dict[int, Path] | None = None) -> None:
        self.now = 0.0
        self.sleeps = 0
        self._during_sleep = during_sleep or {}

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.sleeps += 1
        if self.sleeps in self._during_sleep:
            self._during_sleep[self.sleeps].touch()


def test_training_waits_until_the_cluster_is_ready(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    (job.folder / "ready-file").unlink()
    clock = Clock({7: job.folder / "ready-file"})
    monkeypatch.setattr(driver, "time", clock)
    assert job.run() == EXIT_SUCCESS
    assert (job.calls, clock.sleeps) == (["check", "train"], 7)


def test_the_wait_for_the_cluster_has_an_end(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    (job.folder / "ready-file").unlink()
    (job.folder / "hyperparameters").write_text('{"join_timeout_seconds": "30"}')
    clock = Clock()
    monkeypatch.setattr(driver, "time", clock)
    assert job.run() == EXIT_TRAINING_FAILED
    assert (job.failure or "").startswith("TimeoutError: the cluster was not ready within 150 s\n")
    assert job.calls == ["check"]
    assert clock.now == pytest.approx(150, abs=1)


# Causes


def task_error(cause: Exception, *, is_raised: bool = False) -> Exception:
    """What a data task's exception becomes, and what `ray.get` raises for it."""
    task_error_type: Any = ray.exceptions.RayTaskError
    stored = task_error_type("prepare_chunk", "Traceback ...", cause, proctitle="ray", pid=1, ip="10.0.0.1")
    error: Exception = stored.as_instanceof_cause() if is_raised else stored
    return error


VALUE_ERROR = ValueError("three is no number")


@pytest.mark.parametrize(
    "error",
    [
        VALUE_ERROR,
        UserExceptionWithTraceback(VALUE_ERROR, "Traceback ..."),
        task_error(VALUE_ERROR),
        task_error(VALUE_ERROR, is_raised=True),
        ray.train.ControllerError(VALUE_ERROR),
        ray.train.ControllerError(task_error(VALUE_ERROR)),
        ray.train.WorkerGroupError("", {0: UserExceptionWithTraceback(VALUE_ERROR, "")}),
        ray.train.WorkerGroupError("", {3: UserExceptionWithTraceback(task_error(VALUE_ERROR), "")}),
        ray.train.WorkerGroupError("", {0: WorkerHealthCheckFailedError("unwell", VALUE_ERROR)}),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_cause_is_found_below_what_ray_wraps_around_it(error: Exception) -> None:
    assert root_cause(error) is VALUE_ERROR


def test_of_several_ranks_the_one_that_did_not_just_lose_its_partner_has_the_cause() -> None:
    lost = UserExceptionWithTraceback(RuntimeError("[pair.cc:534] Connection closed by peer [10.0.0.2]:4711"), "")
    failures: dict[int, Exception] = {0: lost, 1: UserExceptionWithTraceback(VALUE_ERROR, ""), 2: lost}
    assert root_cause(ray.train.WorkerGroupError("", failures)) is VALUE_ERROR
    assert root_cause(ray.train.WorkerGroupError("", {0: lost})) is lost._base_exc


def test_a_worker_that_died_is_its_own_cause() -> None:
    died = ray.exceptions.ActorDiedError()
    assert root_cause(ray.train.WorkerGroupError("", {0: WorkerHealthCheckFailedError("unwell", died)})) is died
    assert root_cause(ray.train.WorkerGroupError("nobody knows", {})).args[0].endswith("nobody knows")


# Resources


def test_a_cluster_with_a_place_and_a_cpu_will_do() -> None:
    check_resources({"CPU": 1.0, "trainer": 1.0})


def test_without_a_cpu_for_data_the_run_is_refused_with_the_sum() -> None:
    with pytest.raises(ClusterTooSmall, match=r"no CPU is left for preprocessing: all hosts together offer 0; add"):
        check_resources({"trainer": 1.0})
    with pytest.raises(ClusterTooSmall, match=r"all hosts together offer 0.5"):
        check_resources({"CPU": 0.5, "trainer": 1.0})


def test_without_a_place_to_train_the_run_is_refused() -> None:
    with pytest.raises(ClusterTooSmall, match=r"no host offers a place to train: trainer = 0"):
        check_resources({"CPU": 8.0})
