"""Watching an execution: status, wait, list and stop, and what Ctrl-C does while the command waits."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from infra.client.listing import list_executions
from infra.client.pace import Pace
from infra.client.status import status
from infra.client.stop import stop
from infra.client.waiting import wait
from tests.client.conftest import Ended
from tests.client.deployed import Deployed, FakeExecution, execution_arn
from tests.client.fake_aws import FakeAws, Fault

Call = Callable[..., Ended]
FAST = Pace(poll_seconds=0.01, timeout_seconds=30)
FAILED = {"status": "FAILED", "error": "JobFailed", "cause": "training job x failed: no space; logs: https://x"}
OUTPUT = {
    "mode": "train",
    "arms": {"train": {"model": "s3://counterpoise-output/jobs/x/output/model.tar.gz"}},
    "report": "s3://counterpoise-output/reports/x.json",
}


def test_status_shows_the_latest_execution_with_its_jobs(call: Call, deployed: Deployed) -> None:
    deployed.add(FakeExecution("old"))
    job = deployed.add_job("counterpoise-new-0123456789-t1", "InProgress", BillableTimeInSeconds=12)
    latest = deployed.add(FakeExecution("new", looks_left=100, jobs=[job]))
    latest.started_at = latest.started_at.replace(hour=13)
    ended = call(status, None, as_json=True)
    shown = json.loads(ended.stdout)
    assert (ended.exit_code, shown["name"], shown["status"]) == (0, "new", "RUNNING")
    assert shown["jobs"] == [
        {
            "name": job,
            "arm": "train",
            "attempt": 1,
            "status": "InProgress",
            "secondary_status": "Training",
            "failure_reason": None,
            "created_at": "2026-11-30T12:00:00+00:00",
            "billable_seconds": 12,
            "instance_groups": [{"name": "gpu", "instance_type": "ml.g5.xlarge", "instance_count": 1}],
            "model": None,
        }
    ]
    assert job in ended.stderr, "people read the same on stderr"


@pytest.mark.parametrize("reference", ["one", execution_arn("one")])
def test_an_execution_is_found_by_name_and_by_arn(call: Call, deployed: Deployed, reference: str) -> None:
    deployed.add(FakeExecution("one"))
    deployed.add(FakeExecution("two"))
    ended = call(status, reference)
    assert ended.exit_code == 0
    assert ended.stdout.startswith("one: SUCCEEDED, 0:01:30\n")


def test_an_unknown_execution_is_one_line(call: Call, deployed: Deployed) -> None:
    ended = call(status, "no such", as_json=False)
    assert ended.exit_code == 2
    assert ended.stderr == ("stack counterpoise has no execution 'no such'; those there are: `counterpoise list`\n")
    ended = call(status, None)
    assert ended.stderr == "stack counterpoise has no execution yet; start one: `counterpoise start`\n"
    assert deployed.executions == {}


def test_jobs_are_found_however_often_they_are_described(call: Call, deployed: Deployed) -> None:
    names = [deployed.add_job(f"counterpoise-x-0123456789-{end}") for end in ("b1", "b2", "h1")]
    deployed.add(FakeExecution("x", jobs=[*names, names[-1]]))
    jobs = json.loads(call(status, "x", as_json=True).stdout)["jobs"]
    assert [(job["arm"], job["attempt"]) for job in jobs] == [("baseline", 1), ("baseline", 2), ("heterogeneous", 1)]


def test_wait_ends_as_the_execution_did(call: Call, deployed: Deployed) -> None:
    deployed.add(FakeExecution("good", end={"status": "SUCCEEDED", "output": json.dumps(OUTPUT)}, looks_left=3))
    ended = call(wait, "good", FAST)
    assert ended.exit_code == 0
    assert "model (train): s3://counterpoise-output/jobs/x/output/model.tar.gz" in ended.stdout
    deployed.add(FakeExecution("bad", end=FAILED, looks_left=3))
    ended = call(wait, "bad", FAST, as_json=True)
    assert ended.exit_code == 1
    assert ended.stderr.splitlines()[-1] == f"execution bad failed: {FAILED['cause']}"
    assert json.loads(ended.stdout)["cause"] == FAILED["cause"]


@pytest.mark.parametrize("end", [FAILED, {"status": "TIMED_OUT"}, {"status": "ABORTED", "cause": "by hand"}])
def test_no_end_but_success_is_a_success(call: Call, deployed: Deployed, end: dict[str, str]) -> None:
    deployed.add(FakeExecution("x", end=end))
    assert call(wait, "x", FAST).exit_code == 1
    assert call(status, "x").exit_code == 1


def test_wait_says_each_state_once_where_there_is_no_terminal(call: Call, deployed: Deployed) -> None:
    job = deployed.add_job("counterpoise-x-0123456789-t1", "InProgress")
    deployed.add(FakeExecution("x", looks_left=5, jobs=[job]))
    said = call(wait, "x", FAST).stderr.splitlines()
    assert said.count(f"x: RUNNING, {job}: Training") == 1


def test_wait_outlives_what_passes(call: Call, deployed: Deployed, fake: FakeAws) -> None:
    deployed.add(FakeExecution("x", looks_left=3))
    history, describe = fake.answers["GetExecutionHistory"], fake.answers["DescribeExecution"]
    faults = [Fault("ThrottlingException", "Rate exceeded"), Fault("InternalFailure", "oops", 500)]

    def sometimes(asked: object) -> object:
        if faults and fake.called("GetExecutionHistory"):
            raise faults.pop()
        assert callable(describe)
        return describe(asked)  # type: ignore[arg-type]

    fake.answers |= {"GetExecutionHistory": history, "DescribeExecution": sometimes}  # type: ignore[dict-item]
    assert call(wait, "x", FAST).exit_code == 0
    assert faults == []


def test_a_time_out_leaves_the_job_alone(call: Call, deployed: Deployed, fake: FakeAws) -> None:
    deployed.add(FakeExecution("x", looks_left=10_000))
    ended = call(wait, "x", Pace(poll_seconds=0.01, timeout_seconds=0.1), as_json=True)
    assert ended.exit_code == 124
    assert json.loads(ended.stdout)["error"]["exit_code"] == 124
    assert ended.stderr.splitlines()[-1] == "execution x still runs, and goes on, after 0.1 s"
    assert fake.called("StopExecution") == []


def test_list_shows_the_latest_first_and_no_more_than_asked(call: Call, deployed: Deployed) -> None:
    assert "no execution yet" in call(list_executions, 20).stderr
    for name in ("a", "b", "c"):
        deployed.add(FakeExecution(name))
    listed = json.loads(call(list_executions, 2, as_json=True).stdout)
    assert [(execution["name"], execution["status"]) for execution in listed] == [
        ("c", "SUCCEEDED"),
        ("b", "SUCCEEDED"),
    ]


def test_stop_ends_the_execution_and_waits_for_its_jobs(call: Call, deployed: Deployed, fake: FakeAws) -> None:
    job = deployed.add_job("counterpoise-x-0123456789-t1", "InProgress")
    deployed.add(FakeExecution("x", looks_left=100, jobs=[job]))
    looks = iter(["InProgress", "InProgress", "Stopping"])
    fake.answers["DescribeTrainingJob"] = lambda _: deployed.jobs[job] | {"TrainingJobStatus": next(looks)}
    ended = call(stop, "x", FAST, is_dry_run=False, as_json=True)
    assert ended.exit_code == 0
    shown = json.loads(ended.stdout)
    assert (shown["status"], shown["jobs"][0]["status"]) == ("ABORTED", "Stopping")
    dry = call(stop, "x", FAST, is_dry_run=True)
    assert json.loads(dry.stdout)["parameters"] == fake.called("StopExecution")[0]
    assert len(fake.called("StopExecution")) == 1


def test_stop_names_a_job_that_nobody_stopped(call: Call, deployed: Deployed) -> None:
    job = deployed.add_job("counterpoise-x-0123456789-t1", "InProgress")
    deployed.add(FakeExecution("x", looks_left=100, jobs=[job]))
    ended = call(stop, "x", Pace(poll_seconds=0.01, timeout_seconds=0.05), is_dry_run=False)
    assert ended.exit_code == 124
    assert ended.stderr == (
        "SageMaker has not stopped the job of execution x after 0.05 s; stop it:"
        f" `aws sagemaker stop-training-job --training-job-name {job}`\n"
    )


def test_stop_of_what_has_ended_sends_nothing(call: Call, deployed: Deployed, fake: FakeAws) -> None:
    deployed.add(FakeExecution("x"))
    ended = call(stop, "x", FAST, is_dry_run=False)
    assert (ended.exit_code, ended.stderr) == (0, "x had ended before: SUCCEEDED\n")
    assert fake.called("StopExecution") == []


# Ctrl-C, in a process of its own

WAIT = [sys.executable, "-W", "error", "-m", "infra.client", "wait", "x", "--poll", "0.1"]


def heed_interrupts() -> None:
    """As in a terminal: a shell starts what runs in its background deaf to SIGINT, and tests may be run there."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def read_until(terminal: int, text: str) -> str:
    seen = ""
    while text not in seen:
        seen += os.read(terminal, 4096).decode()
    return seen


def test_ctrl_c_without_a_terminal_leaves_the_job_running(
    environment: dict[str, str], deployed: Deployed, fake: FakeAws
) -> None:
    deployed.add(FakeExecution("x", looks_left=10_000))
    with subprocess.Popen(
        WAIT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,  # noqa: PLW1509 no threads here
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "x: RUNNING\n"
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130
    assert said == "interrupted; execution x goes on; stop it: `counterpoise stop x`\n"
    assert fake.called("StopExecution") == []


@pytest.mark.parametrize(("answer", "is_stopped"), [("y\n", True), ("\n", False), ("\x03", False)])
def test_ctrl_c_on_a_terminal_asks_about_the_job(
    environment: dict[str, str], deployed: Deployed, fake: FakeAws, answer: str, is_stopped: bool
) -> None:
    deployed.add(FakeExecution("x", looks_left=10_000))
    user, terminal = pty.openpty()
    with subprocess.Popen(
        ["setsid", "--ctty", *WAIT],
        env=environment,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        preexec_fn=heed_interrupts,  # noqa: PLW1509 no threads here
    ) as process:
        os.close(terminal)
        try:
            read_until(user, "x: RUNNING")
            os.write(user, b"\x03")
            read_until(user, "Stop execution x and its job? [y/N]")
            os.write(user, answer.encode())
            last = "is stopped, and its job with it" if is_stopped else "x goes on; stop it: `counterpoise stop x`"
            read_until(user, last)
            assert process.wait(timeout=30) == 130
        finally:
            process.kill()
            os.close(user)
    assert len(fake.called("StopExecution")) == int(is_stopped)
