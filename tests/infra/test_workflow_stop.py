"""The machine that stops jobs: it stops what an ended execution has left, and says what it could not stop."""

from typing import Any

from infra.workflow.naming import ARM_LETTERS, ATTEMPTS_PER_RUN, job_name, job_stem
from infra.workflow.stop import MAX_REDRIVES_LOOKED_BACK, build_stop_definition
from tests.infra.fake_aws import REFUSED, THROTTLED, FakeAws, Job
from tests.infra.machine import EXECUTION_ARN, MAX_EVENTS, Clock, Ended, Machine
from tests.infra.workflow_inputs import SETTINGS

ARN = f"{EXECUTION_ARN}My Run.v2"
STEM = job_stem("counterpoise", ARN)


def stop(aws: FakeAws, num_redrives: int = 0, error: str | None = None) -> Ended:
    detail: dict[str, Any] = {
        "executionArn": ARN,
        "stateMachineArn": "arn:aws:states:us-east-1:123456789012:stateMachine:counterpoise",
        "name": "My Run.v2",
        "status": "ABORTED",
        "input": "{}",
        "output": None,
        "redriveCount": num_redrives,
        "error": error,
    }
    return Machine(build_stop_definition(SETTINGS), aws, aws.clock).run(detail, "stop-1")


def running(*names: str) -> FakeAws:
    aws = FakeAws(Clock())
    aws.jobs = {name: Job(seconds=1e6, created_at=aws.clock.now) for name in names}
    return aws


def test_the_running_job_is_stopped_and_counted() -> None:
    name = job_name(STEM, "heterogeneous", 3)
    aws = running(name, job_name(job_stem("counterpoise", EXECUTION_ARN + "other"), "train", 1))
    aws.jobs[job_name(STEM, "heterogeneous", 2)] = Job(status="Failed")
    ended = stop(aws)
    assert ended.status == "SUCCEEDED"
    assert ended.output == {"stopped": [name], "num_stopped": 1, "not_stopped": []}
    assert aws.stopped == [name]


def test_nothing_to_stop_is_a_success() -> None:
    ended = stop(running())
    assert ended.output == {"stopped": [], "num_stopped": 0, "not_stopped": []}
    assert len(ended.path) > len(ARM_LETTERS) * ATTEMPTS_PER_RUN


def test_nothing_is_asked_of_an_execution_that_had_no_job() -> None:
    aws = running()
    assert stop(aws, error="InvalidInput").output["num_stopped"] == 0
    assert aws.calls == []


def test_any_job_that_the_run_can_have_is_found() -> None:
    for arm in ARM_LETTERS:
        for attempt in (1, ATTEMPTS_PER_RUN):
            aws = running(job_name(STEM, arm, attempt))
            assert stop(aws).output["num_stopped"] == 1


def test_a_job_of_a_later_run_of_the_execution_goes_on() -> None:
    aws = running(job_name(STEM, "train", ATTEMPTS_PER_RUN + 1))
    assert stop(aws).output["num_stopped"] == 0
    assert stop(aws, num_redrives=1).output["num_stopped"] == 1


def test_a_job_that_an_earlier_run_has_left_is_stopped() -> None:
    aws = running(job_name(STEM, "train", 1))
    assert stop(aws, num_redrives=MAX_REDRIVES_LOOKED_BACK).output["num_stopped"] == 1


def test_many_redrives_do_not_fill_the_history() -> None:
    ended = stop(running(), num_redrives=500)
    assert ended.status == "SUCCEEDED"
    assert ended.num_events < MAX_EVENTS / 5


def test_throttling_leaves_no_job_running() -> None:
    aws = running(job_name(STEM, "train", 1))
    aws.errors = {"sagemaker:stopTrainingJob": [THROTTLED] * 5}
    ended = stop(aws)
    assert ended.output["num_stopped"] == 1
    assert sum(ended.waits_seconds) > 0


def test_a_job_that_cannot_be_stopped_is_named() -> None:
    aws = running(job_name(STEM, "train", 1))
    aws.errors = {"sagemaker:stopTrainingJob": [REFUSED]}
    ended = stop(aws)
    assert (ended.status, ended.error) == ("FAILED", "JobsLeft")
    assert job_name(STEM, "train", 1) in ended.cause
