"""The recorded cases of inputs, job descriptions and errors, mapped to this project's input."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.infra.fake_aws import Job
from tests.infra.machine import ServiceError
from tests.infra.workflow_inputs import execute

CASES = Path(__file__).resolve().parents[1] / "cases" / "sfn"


def case(name: str) -> Any:
    return json.loads((CASES / f"{name}.json").read_text())


def job(name: str) -> Job:
    description = case(name)
    return Job(
        status=description["TrainingJobStatus"],
        secondary=description["SecondaryStatus"],
        reason=description.get("FailureReason"),
        billable_seconds=description.get("BillableTimeInSeconds", 0),
    )


def test_in01_an_empty_input_runs_with_the_defaults() -> None:
    ended, aws = execute(case("in01_console_empty"))
    assert ended.status == "SUCCEEDED"
    assert len(aws.requests[0]["ResourceConfig"]["InstanceGroups"]) == 2


def test_in02_overrides_in_this_projects_words() -> None:
    old, expected = case("in02_overrides"), case("in02_expect")["create_training_job"]
    groups = [{"name": name, **old[name]} for name in ("gpu", "cpu")]
    training = {"batch_size": int(old["hyperparameters"]["batch_size"])}
    ended, aws = execute({"instance_groups": groups, "training": training})
    assert ended.status == "SUCCEEDED"
    resources = aws.requests[0]["ResourceConfig"]
    assert len(resources["InstanceGroups"]) == expected["ResourceConfig.InstanceGroups"]
    assert all(f"ResourceConfig.{key}" not in expected["absent"] for key in resources)
    assert [group["InstanceCount"] for group in resources["InstanceGroups"]] == [1, 2]
    assert aws.requests[0]["HyperParameters"]["batch_size"] == "32"


@pytest.mark.parametrize("name", ["in02_overrides", "in03_numbers_not_strings"])
def test_keys_of_another_product_are_refused_by_name(name: str) -> None:
    ended, aws = execute(case(name))
    assert (ended.status, ended.error, aws.calls) == ("FAILED", "InvalidInput", [])
    for key in case(name):
        assert f"{key}: unknown setting" in ended.cause


def test_in03_numbers_become_text() -> None:
    batch_size = case("in03_numbers_not_strings")["hyperparameters"]["batch_size"]
    ended, aws = execute({"training": {"batch_size": batch_size, "validation_share": 0.25}})
    assert ended.status == "SUCCEEDED"
    texts = aws.requests[0]["HyperParameters"]
    assert (texts["batch_size"], texts["validation_share"]) == ("32", "0.25")
    assert all(isinstance(text, str) for text in texts.values())


def test_job01_completed() -> None:
    ended, _ = execute({}, job("job01_completed"))
    assert ended.status == case("job01_expect")["execution"]
    assert ended.output["arms"]["train"]["billable_seconds"] == 812


def test_job02_algorithm_error() -> None:
    ended, aws = execute({}, job("job02_algorithm_error"))
    expected = case("job02_expect")
    assert ended.status == expected["execution"]
    assert (len(aws.requests) > 1) is expected["retried"]
    assert expected["cause_contains"] in ended.cause


def test_job03_capacity_error() -> None:
    expected = case("job03_expect")
    ended, aws = execute({}, job("job03_capacity_error"), Job())
    assert (ended.status == "SUCCEEDED") is expected["retried"]
    assert (len(set(aws.job_names)) == len(aws.job_names) == 2) is expected["new_job_name"]
    ended, aws = execute({}, job("job03_capacity_error"))
    assert (ended.status == "FAILED" and len(aws.job_names) <= 4) is expected["limit_on_attempts"]


def test_job03_twice_and_then_completed_gives_three_names() -> None:
    composition = [{"name": "gpu", "instance_type": "ml.g4dn.xlarge"}]
    failed = job("job03_capacity_error")
    ended, aws = execute({"fallback_instance_groups": [composition]}, failed, failed, Job())
    assert ended.status == "SUCCEEDED"
    assert len(set(aws.job_names)) == 3


def test_err01_throttled() -> None:
    error, expected = case("err01_throttled"), case("err01_expect")
    ended, aws = execute({}, ServiceError(error["Error"], error["Cause"]), Job())
    assert (ended.status == "SUCCEEDED" and len(aws.requests) == 2) is expected["retried"]
    assert ("WaitBeforeRetry" in ended.path) is expected["backoff"]
    assert (len(set(aws.job_names)) == 1) is expected["same_name_ok"]


def test_a_validation_error_under_the_same_name_as_throttling_is_not_retried() -> None:
    text = "Could not assume role (Service: AmazonSageMaker; Status Code: 400; Error Code: ValidationException)"
    ended, aws = execute({}, ServiceError(case("err01_throttled")["Error"], text))
    assert (ended.status, len(aws.requests)) == ("FAILED", 1)
