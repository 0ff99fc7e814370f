"""The life of a training job: data in, runner, logs and checkpoints while it runs, results out, and how it ended."""

import json
import queue
import threading
import time
from pathlib import Path

from infra.local.aws.control import START_OF_JOB, Control
from infra.local.aws.job_logs import JobLogs
from infra.local.aws.job_runner import END_OF_OUTPUT, Event, JobRunner
from infra.local.aws.job_storage import JobStorage, StorageError
from infra.local.aws.role_session import assume, client
from infra.local.aws.settings import EmulatorSettings
from infra.local.aws.training_job import TrainingJob

TICK_SECONDS = 0.2  # how late a stop, the end of the time or a line of the log may come
CHECKPOINT_SECONDS = 1.0
KILL_AFTER_SECONDS = 150.0  # the runner itself leaves its hosts 120 s
DEFAULT_MAX_RUNTIME_SECONDS = 86_400  # SageMaker's


class JobLife(threading.Thread):
    """The thread of one job; `job` tells how far it is."""

    def __init__(self, job: TrainingJob, settings: EmulatorSettings, control: Control) -> None:
        super().__init__(name=f"job {job.name}", daemon=True)
        self.job = job
        self._settings, self._control = settings, control
        self._job_dir = settings.jobs_dir / job.name
        self._runner: JobRunner | None = None
        self._checkpoint_dir: Path | None = None
        self._next_sync = 0.0
        self._deadline: float | None = None
        self._kill_at: float | None = None
        self._is_over_time = False

    def run(self) -> None:
        """Lives from Starting to the last state; every fault ends in Failed with its reason."""
        try:
            self._live()
        except StorageError as error:
            self.job.end("Failed", "Failed", str(error))
        except Exception as error:  # noqa: BLE001 - a fault of the emulator is told where a user looks
            self.job.end("Failed", "Failed", f"InternalServerError: the embedded AWS failed: {error!r}")
        finally:
            if self._runner is not None:
                self._runner.kill()
                self._runner.close()

    def end_runner(self, grace_seconds: float) -> None:
        """SIGTERM now, SIGKILL after the grace; for the end of the emulator."""
        runner = self._runner
        if runner is not None:
            runner.stop()
            if not runner.wait(grace_seconds):
                runner.kill()

    def _live(self) -> None:
        fault = self._control.take_fault(START_OF_JOB, self.job.name)
        if fault is not None:
            self.job.end("Failed", "Failed", fault.message)
            return
        credentials = assume(self.job.request["RoleArn"], self.job.name)
        storage = JobStorage(self.job, client(self._settings, "s3", credentials))
        logs = JobLogs(self.job, client(self._settings, "logs", credentials))
        self.job.enter("Downloading")
        channels = storage.download_channels(self._job_dir / "channels")
        storage.restore_checkpoints(self._job_dir / "checkpoints")
        if self.job.stop_requested.is_set():
            self.job.end("Stopped", "Stopped")
            return
        (self._job_dir / "request.json").write_text(json.dumps(self.job.request))
        self._runner = JobRunner(self._settings.runner_command, self._job_dir, channels)
        outcome = self._follow(self._runner, storage, logs)
        self.job.set_metrics(logs.final_metrics())
        self._settle(outcome, storage)

    def _follow(self, runner: JobRunner, storage: JobStorage, logs: JobLogs) -> Event:
        """The runner's last words, after all its events; empty if it ended without any."""
        outcome: Event = {}
        while True:
            event = _next(runner)
            if event is END_OF_OUTPUT:
                break
            if event.get("event") == "log":
                logs.add(event["host"], event["line"])
            elif event.get("event") == "status":
                self._begin(event)
            elif event.get("event") == "ended":
                outcome = event
            self._tick(runner, storage, logs)
        logs.flush()
        if self._checkpoint_dir is not None:
            storage.sync_checkpoints(self._checkpoint_dir)
        code = runner.close()
        return outcome or {"status": "Lost", "failure": f"exit code {code}: {runner.last_words()}"}

    def _begin(self, event: Event) -> None:
        """The hosts run: from here on time counts."""
        self.job.enter(event["secondary"])
        condition = self.job.request.get("StoppingCondition", {})
        self._deadline = time.monotonic() + condition.get("MaxRuntimeInSeconds", DEFAULT_MAX_RUNTIME_SECONDS)
        if "checkpoint_dir" in event:
            self._checkpoint_dir = Path(event["checkpoint_dir"])

    def _tick(self, runner: JobRunner, storage: JobStorage, logs: JobLogs) -> None:
        now = time.monotonic()
        if self._deadline is not None and now > self._deadline and not self._is_over_time:
            self._is_over_time = self.job.request_stop()
            self._deadline = None
        if self.job.stop_requested.is_set() and self._kill_at is None:
            self._kill_at = now + KILL_AFTER_SECONDS
            runner.stop()
        if self._kill_at is not None and now > self._kill_at:
            runner.kill()
        if runner.events.empty():
            logs.flush()
        if self._checkpoint_dir is not None and now > self._next_sync:
            storage.sync_checkpoints(self._checkpoint_dir)
            self._next_sync = now + CHECKPOINT_SECONDS

    def _settle(self, outcome: Event, storage: JobStorage) -> None:
        """Uploads what there is to keep and ends the job as its runner and SageMaker's rules say."""
        is_stopped = self.job.stop_requested.is_set()
        if not is_stopped and outcome["status"] != "Completed":
            self.job.end("Failed", "Failed", _failure_reason(outcome))
            return
        self.job.enter("Uploading")
        if "model_dir" in outcome:
            storage.upload_results(Path(outcome["model_dir"]), Path(outcome["output_dir"]))
        if is_stopped:
            self.job.end("Stopped", "MaxRuntimeExceeded" if self._is_over_time else "Stopped")
        else:
            self.job.end("Completed", "Completed")


def _failure_reason(outcome: Event) -> str:
    if outcome["status"] == "Failed":
        code = next((code for code in outcome["exit_codes"].values() if code), 1)
        return f"AlgorithmError: {outcome['failure'] or ''}, exit code: {code}"
    return f"InternalServerError: the local runner ended: {outcome['failure']}"


def _next(runner: JobRunner) -> Event:
    """The next event, or an empty one when it is time to look at the clock."""
    try:
        return runner.events.get(timeout=TICK_SECONDS)
    except queue.Empty:
        return {}
