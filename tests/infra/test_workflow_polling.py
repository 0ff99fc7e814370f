"""Waiting: how soon the end of a job is known, and that the history of an execution never gets full."""

import pytest

from infra.workflow.polling import MAX_RETRY_WAIT_SECONDS, poll_seconds, retry_seconds
from tests.infra.fake_aws import THROTTLED, Job
from tests.infra.machine import MAX_EVENTS, evaluate
from tests.infra.workflow_inputs import execute

DAY = 86_400


@pytest.mark.parametrize(
    ("age_seconds", "expected"),
    [(0, 15), (299, 15), (400, 20), (6000, 300), (60_000, 300), (5 * DAY, 2160), (28 * DAY, 12_096)],
)
def test_the_wait_grows_with_the_age_of_the_job(age_seconds: int, expected: int) -> None:
    assert evaluate(poll_seconds(15, "$age").text, {"age": age_seconds}) == expected


def test_a_job_of_five_days_takes_less_than_half_of_the_history() -> None:
    ended, _ = execute({}, Job(seconds=5 * DAY))
    assert ended.status == "SUCCEEDED"
    assert ended.num_events < MAX_EVENTS / 2


def test_two_jobs_of_the_longest_kind_fit_into_one_history() -> None:
    ended, _ = execute({"mode": "compare"}, Job(seconds=28 * DAY), changes={"max_runtime_limit_seconds": 28 * DAY})
    assert ended.status == "SUCCEEDED"
    assert ended.num_events < MAX_EVENTS


@pytest.mark.parametrize("seconds", [1, 60, 3600, DAY, 5 * DAY])
def test_the_end_of_a_job_is_known_soon(seconds: int) -> None:
    ended, aws = execute({}, Job(seconds=seconds))
    late = sum(ended.waits_seconds) - seconds
    assert 0 <= late <= max(15, min(300, seconds * 0.06), seconds * 0.006)
    assert len(aws.requests) == 1


@pytest.mark.parametrize("num_waits", [1, 5, 30])
def test_throttled_calls_come_back_at_any_time_up_to_a_limit(num_waits: int) -> None:
    limit = min(5 * 2**num_waits, MAX_RETRY_WAIT_SECONDS)
    waits = [evaluate(retry_seconds(5, "$n").text, {"n": num_waits}) for _ in range(200)]
    assert all(0 <= wait <= limit for wait in waits)
    assert len(set(waits)) > 5
    assert max(waits) > limit / 2


def test_a_look_at_the_job_survives_an_hour_of_trouble() -> None:
    errors = {"sagemaker:describeTrainingJob": [THROTTLED] * 12}
    ended, _ = execute({}, errors=errors)
    assert ended.status == "SUCCEEDED"
