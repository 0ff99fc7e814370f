"""A job from start to end on one or two hosts: whatever happens, every host ends alike and leaves nothing behind."""

import os
import signal
from pathlib import Path

import pytest

from tests.bootstrap.job import TOKEN, Job, until


def test_success_is_zero_everywhere(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        head, worker = job.start("algo-1"), job.start("algo-2")
        assert job.ends() == {"algo-1": 0, "algo-2": 0}, head.log + worker.log
        assert job.ray_pids() == []
    assert "event=cluster_formed hosts=2 seconds=" in head.log
    assert "event=first_step step=1" in head.log
    assert "event=start host=algo-2 group=group1 type=ml.c5.4xlarge role=worker" in worker.log
    assert (head.failure, worker.failure) == (None, None)
    assert head.log.splitlines()[-1] == worker.log.splitlines()[-1] == 'counterpoise: event=end exit_code=0 reason=""'


def test_no_secret_is_printed_or_handed_on(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        environment = {"AWS_SECRET_ACCESS_KEY": "hunter2"}
        job.start("algo-1", environment=environment)
        job.start("algo-2", environment=environment)
        assert job.ends() == {"algo-1": 0, "algo-2": 0}
        said = "".join(host.log for host in job.hosts.values())
        command_lines = "".join(file.read_text() for file in job.nodes.parent.glob("starts-*"))
    assert "node_ip_address" in command_lines
    for secret in (TOKEN, "hunter2"):
        assert secret not in said + command_lines


def test_a_single_host_needs_neither_others_nor_a_token_file(tmp_path: Path) -> None:
    with Job(tmp_path, layout={"ml.m5.large": ["algo-1"]}) as job:
        job.token_file.unlink()
        host = job.start("algo-1", environment={"COUNTERPOISE_TOKEN_FILE": str(job.token_file)})
        assert host.end() == 2
        assert host.failure == f"COUNTERPOISE_TOKEN_FILE: cannot read {job.token_file} (No such file or directory)"
    with Job(tmp_path / "own", layout={"ml.m5.large": ["algo-1"]}) as job:
        job.token_file.write_text(TOKEN)
        host = job.start("algo-1")
        assert host.end() == 0, host.log
        assert "event=cluster_formed hosts=1" in host.log


@pytest.mark.parametrize(
    ("driver", "exit_code", "reason"),
    [
        ("fail", 1, "ValueError: loss is nan\n\nTraceback: many lines"),
        ("bad_input", 2, "model: 'resnot' is not known"),
        ("no_model", 1, "training ended without an error, but {model} is missing"),
    ],
)
def test_a_failure_reaches_every_host_with_its_cause(tmp_path: Path, driver: str, exit_code: int, reason: str) -> None:
    with Job(tmp_path) as job:
        head, worker = job.start("algo-1", driver=driver), job.start("algo-2")
        assert job.ends() == {"algo-1": exit_code, "algo-2": exit_code}, head.log + worker.log
        assert job.ray_pids() == []
    assert head.failure is not None
    assert head.failure.startswith(reason.format(model=head.base / "model" / "model.safetensors"))
    assert len(head.failure) <= 1024
    assert worker.failure == head.failure


def test_a_defect_of_our_own_is_told_to_everyone(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        head, worker = job.start("algo-1", is_broken=True), job.start("algo-2")
        assert job.ends() == {"algo-1": 1, "algo-2": 1}
        assert job.ray_pids() == []
    assert head.failure == worker.failure == "RuntimeError: two lines of defect"
    assert "Traceback" in head.log


def test_a_head_without_room_for_objects_tells_the_others(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        head, worker = (
            job.start("algo-1", constants={"host.OBJECT_STORE_MINIMUM_BYTES": 2**60}),
            job.start("algo-2"),
        )
        assert job.ends() == {"algo-1": 3, "algo-2": 3}, head.log + worker.log
    assert worker.failure is not None
    assert worker.failure.startswith("object store: /dev/shm has ")
    assert f"needed: {2**60}" in worker.failure


def test_a_worker_that_cannot_join_ends_the_job_with_its_reason(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        head, worker = job.start("algo-1"), job.start("algo-2", ray="fail")
        assert job.ends() == {"algo-1": 3, "algo-2": 3}, head.log + worker.log
        assert (job.num_starts("algo-1"), job.num_starts("algo-2")) == (1, 4)
        assert job.ray_pids() == []
    assert head.failure == worker.failure
    assert head.failure == (
        f"algo-2 could not join: Ray did not start on {job.names['algo-2']}: RuntimeError: the raylet did not like it"
    )


def test_a_worker_without_room_for_objects_says_so_through_the_head(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        head = job.start("algo-1")
        job.start("algo-2", constants={"host.OBJECT_STORE_MINIMUM_BYTES": 2**60})
        assert job.ends() == {"algo-1": 3, "algo-2": 3}
    assert head.failure is not None
    assert head.failure.startswith("algo-2 could not join: object store: /dev/shm has ")


def test_missing_hosts_may_be_done_without(tmp_path: Path) -> None:
    with Job(tmp_path, hyperparameters={"missing_hosts": "continue"}) as job:
        head, worker = job.start("algo-1"), job.start("algo-2", ray="fail")
        assert job.ends() == {"algo-1": 0, "algo-2": 0}, head.log + worker.log
    assert "event=going_on_without_hosts missing=algo-2" in head.log
    assert "event=cluster_formed hosts=1" in head.log


def test_a_host_that_never_comes_is_named_at_the_deadline(tmp_path: Path) -> None:
    with Job(tmp_path, hyperparameters={"join_timeout_seconds": "5"}) as job:
        head = job.start("algo-1", constants={"head.FAREWELL_SECONDS": 0.0, "head.STILL_WAITING_SECONDS": 0.5})
        assert head.end() == 3
        assert job.ray_pids() == []
    assert head.failure == "algo-2 did not join within 5 s (join_timeout_seconds); see the log of that host"
    assert "event=waiting_for_hosts missing=algo-2" in head.log


def test_a_failed_start_of_ray_is_tried_again(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        head, worker = job.start("algo-1", ray="fail,fail,ok"), job.start("algo-2", ray="fail,stubborn")
        assert job.ends() == {"algo-1": 0, "algo-2": 0}, head.log + worker.log
        assert job.ray_pids() == []
    assert head.log.count("event=ray_start_failed") == 2


def test_an_outcome_during_the_start_of_ray_leaves_nothing_behind(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        head, worker = job.start("algo-1", driver="until_go", ray="hang"), job.start("algo-2", ray="hang")
        worker.wait_for("event=start ")
        until(lambda: job.num_starts("algo-1") and job.num_starts("algo-2"))
        head.signal(signal.SIGTERM)
        assert job.ends() == {"algo-1": 143, "algo-2": 143}, head.log + worker.log
        assert job.ray_pids() == []
    assert head.failure == worker.failure == "stopped by SIGTERM before training started"


def test_sigterm_reaches_the_driver_and_its_answer_everyone(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        head, worker = job.start("algo-1", driver="until_stopped"), job.start("algo-2")
        head.wait_for("event=first_step")
        for host in (worker, head):
            host.signal(signal.SIGTERM)
        assert job.ends() == {"algo-1": 143, "algo-2": 143}, head.log + worker.log
        assert job.ray_pids() == []
    assert head.failure == worker.failure == "stopped by SIGTERM"


def test_a_worker_that_is_stopped_alone_takes_the_job_with_it(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        head, worker = job.start("algo-1", driver="until_stopped"), job.start("algo-2")
        head.wait_for("event=first_step")
        worker.signal(signal.SIGTERM)
        assert job.ends() == {"algo-1": 143, "algo-2": 143}, head.log + worker.log
        assert job.ray_pids() == []
    assert head.failure == worker.failure == "stopped by SIGTERM"
    assert head.log.count("event=host_stopping host=algo-2") == 1


def test_a_driver_that_ignores_a_stop_is_ended(tmp_path: Path) -> None:
    with Job(tmp_path, layout={"ml.g5.xlarge": ["algo-1"]}) as job:
        head = job.start("algo-1", driver="for_ever", constants={"head.STOP_SECONDS": 0.3})
        head.wait_for("event=first_step")
        head.signal(signal.SIGTERM)
        assert head.end() == 143
        assert job.ray_pids() == []
    assert head.failure == "stopped by SIGTERM; training did not end within 0 s"


def test_a_worker_that_is_stopped_while_it_looks_for_the_head_ends_at_once(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        worker = job.start("algo-2", constants={"reach.STILL_WAITING_SECONDS": 0.0})
        worker.wait_for("event=joining_head")
        worker.signal(signal.SIGTERM)
        assert worker.end() == 143
    assert worker.failure == "stopped by SIGTERM before training started"


def test_a_worker_that_is_stopped_alone_waits_for_the_head_but_not_for_ever(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        head = job.start("algo-1", driver="until_go")
        worker = job.start("algo-2", constants={"worker.STOP_SECONDS": 0.3})
        head.wait_for("event=first_step")
        worker.signal(signal.SIGTERM)
        assert worker.end() == 143
        head.wait_for("event=host_lost host=algo-2")
        head.signal(signal.SIGKILL)
    assert worker.failure == "stopped by SIGTERM; the head gave no outcome within 0 s"


def test_a_worker_leaves_a_head_that_is_gone(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        head = job.start("algo-1", driver="for_ever")
        worker = job.start("algo-2", constants={"worker.RECONNECT_SECONDS": 0.5})
        head.wait_for("event=first_step")
        raylet = job.ray_pid("algo-2")
        head.signal(signal.SIGKILL)
        assert worker.end() == 4, worker.log
        assert raylet not in job.ray_pids()
    assert worker.failure is not None
    assert worker.failure.startswith("reconnecting the head algo-1 failed for ")


def test_a_dead_raylet_of_a_worker_is_started_again(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        head, worker = job.start("algo-1", driver="until_go"), job.start("algo-2")
        head.wait_for("event=first_step")
        os.kill(job.ray_pid("algo-2"), signal.SIGKILL)
        worker.wait_for("event=joined", times=2)
        job.go()
        assert job.ends() == {"algo-1": 0, "algo-2": 0}, head.log + worker.log
        assert job.ray_pids() == []
    assert "event=ray_died restarts_left=3" in worker.log


def test_a_worker_whose_ray_dies_again_and_again_stays_for_the_outcome(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        head, worker = job.start("algo-1", driver="until_go"), job.start("algo-2", constants={"worker.RAY_RESTARTS": 0})
        head.wait_for("event=first_step")
        os.kill(job.ray_pid("algo-2"), signal.SIGKILL)
        head.wait_for("event=host_failed host=algo-2")
        job.go()
        assert job.ends() == {"algo-1": 0, "algo-2": 0}, head.log + worker.log


def test_a_dead_raylet_of_the_head_ends_the_job(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        head, worker = job.start("algo-1", driver="for_ever"), job.start("algo-2")
        head.wait_for("event=first_step")
        os.kill(job.ray_pid("algo-1"), signal.SIGKILL)
        assert job.ends() == {"algo-1": 1, "algo-2": 1}, head.log + worker.log
    assert worker.failure == "Ray on the head algo-1 died; see the log above"


def test_a_job_without_progress_fails(tmp_path: Path) -> None:
    with Job(tmp_path, layout={"ml.g5.xlarge": ["algo-1"]}, hyperparameters={"stall_timeout_seconds": "10"}) as job:
        head = job.start("algo-1", driver="for_ever")
        head.wait_for("event=first_step")
        # Ten seconds ago, as far as anyone can see.
        events = next(Path(word) for word in driver_words(job) if word.endswith("/events.jsonl"))
        os.utime(events, (0, 0))
        assert head.end() == 5
    assert head.failure == "no progress for 10 s (stall_timeout_seconds); the last events say where"


def test_a_failure_file_that_cannot_be_written_costs_no_exit_code(tmp_path: Path) -> None:
    with Job(tmp_path, layout={"ml.g5.xlarge": ["algo-1"]}) as job:
        (tmp_path / "algo-1" / "output" / "failure").mkdir(parents=True)
        head = job.start("algo-1", driver="bad_input")
        assert head.end() == 2
    assert "output/failure: cannot be written (Is a directory)" in head.log
    assert head.log.splitlines()[-1] == "counterpoise: event=end exit_code=2 reason=\"model: 'resnot' is not known\""


def driver_words(job: Job) -> list[str]:
    """The values on the driver's command line."""
    for pid in job.ray_pids():
        words = Path("/proc", str(pid), "cmdline").read_text().split("\0")
        if "training.main" in words:
            return [word.partition("=")[2] for word in words]
    raise AssertionError("no driver runs")
