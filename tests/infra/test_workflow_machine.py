"""Every way through the workflow, with scripted answers of AWS: how it ends, what it says, which jobs it asked for."""

from typing import Any

import pytest

from infra.workflow.arms import MAX_WAITS
from tests.infra.fake_aws import (
    CAPACITY,
    IMAGE,
    INTERNAL,
    QUOTA,
    REFUSED,
    THROTTLED,
    FakeAws,
    Job,
    groups_of,
)
from tests.infra.machine import Aborted, Clock, Machine, ServiceError
from tests.infra.workflow_inputs import G4DN, definition, execute

STEM = "counterpoise-run-1-7eea87ba06"
ARTICLE = ["ml.g5.xlarge", "ml.c5.4xlarge"]
NO_CAPACITY = Job(status="Failed", reason=CAPACITY, billable_seconds=0)
LOGS = "https://us-east-1.console.aws.amazon.com/cloudwatch/home?region=us-east-1#logsV2:log-groups/log-group/"


def suffixes(aws: FakeAws) -> list[str]:
    return [name.removeprefix(STEM) for name in aws.job_names]


def test_ok() -> None:
    ended, aws = execute({}, Job(metrics={"images_per_second": 47.223847583, "loss": 1e-05}, billable_seconds=812))
    assert ended.status == "SUCCEEDED"
    assert suffixes(aws) == ["-t1"]
    assert groups_of(aws.requests) == [ARTICLE]
    assert list(ended.output) == ["mode", "arms", "report"]
    arm = ended.output["arms"]["train"]
    assert ended.output["mode"] == "train"
    assert arm["job_name"] == f"{STEM}-t1"
    assert arm["model"] == f"s3://b-1/jobs/{STEM}-t1/output/model.tar.gz"
    assert arm["metrics"] == {"images_per_second": 47.223847583, "loss": 1e-05}
    assert arm["billable_seconds"] == 812
    assert arm["price_usd_per_hour"] == 1.408 + 0.816
    assert arm["cost_usd"] == (1.408 + 0.816) * 812 / 3600
    assert arm["logs"].startswith(LOGS)
    assert arm["logs"].endswith(f"{STEM}-t1")
    assert [group["name"] for group in arm["instance_groups"]] == ["gpu", "cpu"]
    assert "note" not in arm


@pytest.mark.parametrize(("num_interruptions", "billed", "saved"), [(0, 300, 0.7), (2, 400, 0.6)])
def test_a_spot_run_tells_what_it_saved_and_how_often_it_was_interrupted(
    num_interruptions: int, billed: int, saved: float
) -> None:
    job = Job(training_seconds=1000, billable_seconds=billed, num_interruptions=num_interruptions)
    ended, _ = execute({"spot": True, "max_wait_seconds": 7200}, job)
    arm = ended.output["arms"]["train"]
    assert arm["spot"] == {"interruptions": num_interruptions, "savings_share": pytest.approx(saved)}
    assert "spot" not in execute({}, job)[0].output["arms"]["train"]


def test_the_report_in_s3_is_the_output() -> None:
    ended, aws = execute({})
    assert aws.reports == {f"reports/{STEM}.json": ended.output}
    assert ended.output["report"] == f"s3://b-1/reports/{STEM}.json"


def test_results_are_not_lost_with_the_report() -> None:
    denied = ServiceError("S3.S3Exception", "Access Denied (Service: S3, Status Code: 403)")
    ended, _ = execute({}, errors={"s3:putObject": [denied] * 9})
    assert ended.status == "SUCCEEDED"
    assert ended.output["report"] is None
    assert "Access Denied" in ended.output["note"]
    assert ended.output["arms"]["train"]["billable_seconds"] == 60


def test_compare_runs_the_gpu_groups_alone_and_then_all() -> None:
    metrics = [{"images_per_second": 10.0}, {"images_per_second": 19.4}]
    ended, aws = execute({"mode": "compare"}, *(Job(metrics=one) for one in metrics))
    assert suffixes(aws) == ["-b1", "-h1"]
    assert groups_of(aws.requests) == [ARTICLE[:1], ARTICLE]
    assert list(ended.output) == ["mode", "arms", "results", "report"]
    assert list(ended.output["arms"]) == ["baseline", "heterogeneous"]
    speedup = 19.4 / 10.0
    assert ended.output["results"] == {
        "speedup": speedup,
        "price_performance": speedup * 1.408 / (1.408 + 0.816),
    }
    first, second = (request["HyperParameters"] for request in aws.requests)
    assert first == second


@pytest.mark.parametrize("metrics", [{}, {"images_per_second": 0.0}])
def test_a_comparison_without_figures_says_null(metrics: dict[str, float]) -> None:
    ended, _ = execute({"mode": "compare"}, Job(metrics=metrics))
    assert ended.status == "SUCCEEDED"
    assert ended.output["results"] == {"speedup": None, "price_performance": None}


def test_an_unknown_price_is_null_and_said() -> None:
    ended, _ = execute({"mode": "compare", "instance_groups": G4DN})
    arm = ended.output["arms"]["heterogeneous"]
    assert (arm["cost_usd"], arm["price_usd_per_hour"]) == (None, None)
    assert arm["note"] == "no price for ml.g4dn.xlarge, ml.m5.xlarge in us-east-1; prices were read 2026-09-27"
    assert ended.output["results"]["speedup"] == 1
    assert ended.output["results"]["price_performance"] is None


def test_a_region_without_prices_runs() -> None:
    ended, _ = execute({}, changes={"region": "eu-west-1"})
    assert ended.output["arms"]["train"]["cost_usd"] is None


def test_quota_moves_on_at_once_and_capacity_after_a_second_try() -> None:
    ended, aws = execute({"fallback_instance_groups": [G4DN]}, QUOTA, Job())
    assert ended.status == "SUCCEEDED"
    assert suffixes(aws) == ["-t1", "-t2"]
    assert groups_of(aws.requests) == [ARTICLE, ["ml.g4dn.xlarge", "ml.m5.xlarge"]]
    ended, aws = execute({"fallback_instance_groups": [G4DN]}, NO_CAPACITY, NO_CAPACITY, Job())
    assert ended.status == "SUCCEEDED"
    assert suffixes(aws) == ["-t1", "-t2", "-t3"]
    assert groups_of(aws.requests) == [ARTICLE, ARTICLE, ["ml.g4dn.xlarge", "ml.m5.xlarge"]]
    assert ended.output["arms"]["train"]["instance_groups"][0]["instance_type"] == "ml.g4dn.xlarge"


def test_both_arms_use_the_composition_that_the_first_one_found() -> None:
    ended, aws = execute({"mode": "compare", "fallback_instance_groups": [G4DN]}, QUOTA, Job())
    assert ended.status == "SUCCEEDED"
    assert suffixes(aws) == ["-b1", "-b2", "-h1"]
    assert groups_of(aws.requests) == [["ml.g5.xlarge"], ["ml.g4dn.xlarge"], ["ml.g4dn.xlarge", "ml.m5.xlarge"]]


def test_no_quota_names_the_quota_and_where_to_ask() -> None:
    ended, aws = execute({}, QUOTA)
    assert (ended.status, ended.error, len(aws.requests)) == ("FAILED", "QuotaExceeded", 1)
    assert ended.cause == (
        "AWS has no hosts for arm train; tried in this order: (1) 1 x ml.g5.xlarge + 1 x ml.c5.4xlarge: The"
        " account-level service limit 'ml.g5.xlarge for training job usage' is 0 Instances, with current utilization of"
        " 0 Instances and a request delta of 1 Instances; ask for a higher quota of that name at"
        " https://us-east-1.console.aws.amazon.com/servicequotas/home/services/sagemaker/quotas, or name other types in"
        " fallback_instance_groups"
    )


def test_no_capacity_names_what_was_tried_in_order() -> None:
    ended, aws = execute({"fallback_instance_groups": [G4DN]}, NO_CAPACITY)
    assert (ended.status, ended.error) == ("FAILED", "NoCapacity")
    assert suffixes(aws) == ["-t1", "-t2", "-t3", "-t4"]
    order = ["(1) 1 x ml.g5", "(2) 1 x ml.g5", "(3) 1 x ml.g4dn", "(4) 1 x ml.g4dn", "start again later"]
    places = [ended.cause.index(words) for words in order]
    assert places == sorted(places)


def test_many_fallbacks_stay_within_the_names_of_one_run() -> None:
    ended, aws = execute({"fallback_instance_groups": [G4DN] * 5}, NO_CAPACITY)
    assert ended.error == "NoCapacity"
    assert suffixes(aws) == [f"-t{number}" for number in range(1, 13)]


def test_throttling_repeats_the_same_request() -> None:
    ended, aws = execute({}, THROTTLED, THROTTLED, Job())
    assert ended.status == "SUCCEEDED"
    assert suffixes(aws) == ["-t1"] * 3
    assert len(aws.jobs) == 1


def test_throttling_without_an_end_is_a_failure() -> None:
    ended, aws = execute({}, THROTTLED)
    assert (ended.status, ended.error) == ("FAILED", "JobRefused")
    assert "Rate exceeded" in ended.cause
    assert len(aws.requests) == 1 + MAX_WAITS


NO_ANSWER = [ServiceError("States.Timeout", ""), ServiceError("SageMaker.SdkClientException", "Read timed out")]


@pytest.mark.parametrize("error", [INTERNAL, *NO_ANSWER])
def test_an_answer_that_does_not_come_is_asked_for_again(error: ServiceError) -> None:
    ended, aws = execute({}, error, Job())
    assert ended.status == "SUCCEEDED"
    assert suffixes(aws) == ["-t1"] * 2


def test_a_job_whose_answer_was_lost_is_not_started_twice() -> None:
    ended, aws = execute({}, Job(is_answer_lost=True, seconds=100))
    assert ended.status == "SUCCEEDED"
    assert suffixes(aws) == ["-t1"] * 2
    assert len(aws.jobs) == 1


def test_a_job_of_an_earlier_execution_of_the_same_name_is_left_alone() -> None:
    ended, aws = execute({}, Job(age_seconds=100 * 86_400), Job(age_seconds=100 * 86_400, seconds=1e9), Job())
    assert ended.status == "SUCCEEDED"
    assert suffixes(aws) == ["-t1", "-t2", "-t3"]
    assert ended.output["arms"]["train"]["job_name"].endswith("-t3")


def test_names_that_are_all_taken_are_a_failure() -> None:
    ended, aws = execute({}, Job(age_seconds=100 * 86_400))
    assert (ended.status, ended.error) == ("FAILED", "JobRefused")
    assert "start with another name" in ended.cause
    assert len(aws.requests) == 16


def test_a_refused_request_is_not_repeated() -> None:
    ended, aws = execute({}, REFUSED)
    assert (ended.status, ended.error, len(aws.requests)) == ("FAILED", "JobRefused", 1)
    assert ended.cause.startswith(f"SageMaker did not start training job {STEM}-t1: 1 validation error detected")


def test_algorithm_error_is_told_by_its_first_line() -> None:
    reason = "AlgorithmError: ray head: 1 of 2 hosts did not join within 600 s: algo-2, exit code: 1\nTraceback"
    ended, aws = execute({}, Job(status="Failed", reason=reason))
    assert (ended.status, ended.error, len(aws.requests)) == ("FAILED", "JobFailed", 1)
    first_line = reason.partition("\n")[0]
    assert ended.cause.startswith(f"training job {STEM}-t1 failed: {first_line}; logs: {LOGS}")
    assert "\n" not in ended.cause


def test_internal_error_of_the_job_is_left_to_sagemakers_own_retries() -> None:
    ended, aws = execute({}, Job(status="Failed", reason="InternalServerError: We encountered an internal error."))
    assert (ended.status, ended.error, len(aws.requests)) == ("FAILED", "JobFailed", 1)
    assert aws.requests[0]["RetryStrategy"]["MaximumRetryAttempts"] >= 1


@pytest.mark.parametrize(
    ("secondary", "error", "words"),
    [
        ("MaxRuntimeExceeded", "JobTimedOut", "was stopped after max_runtime_seconds = 3600; raise it"),
        ("MaxWaitTimeExceeded", "JobTimedOut", "was stopped after max_wait_seconds = 7200; raise it"),
        ("Stopped", "JobStopped", "was stopped by a user"),
    ],
)
def test_a_stopped_job_is_no_success(secondary: str, error: str, words: str) -> None:
    ended, aws = execute({"spot": True, "max_wait_seconds": 7200}, Job(status="Stopped", secondary=secondary))
    assert (ended.status, ended.error, len(aws.requests)) == ("FAILED", error, 1)
    assert words in ended.cause


def test_bad_input_is_refused_before_anything_is_looked_up() -> None:
    ended, aws = execute({"bogus": 1})
    assert (ended.status, ended.error, aws.calls) == ("FAILED", "InvalidInput", [])
    assert ended.cause.startswith("bogus: unknown setting")


def test_an_unknown_model_is_refused_before_a_job_exists() -> None:
    ended, aws = execute({"training": {"model": "resnet-50"}})
    assert (ended.error, aws.calls) == ("InvalidInput", [])
    assert ended.cause == "training.model: 'resnet-50' is not a model of timm; nearest: resnet50; name one of them"


def test_limits_of_the_stack_are_told_like_those_of_the_contract() -> None:
    ended, aws = execute({"max_runtime_seconds": 7201}, changes={"max_runtime_limit_seconds": 7200})
    assert (ended.error, aws.calls) == ("InvalidInput", [])
    assert ended.cause == (
        "max_runtime_seconds: 7201 is over the limit of this stack; allowed: at most 7200; lower it, or raise the limit"
        " with counterpoise:max_runtime_limit_seconds"
    )
    tags = {f"k{number}": "v" for number in range(40)}
    ended, aws = execute({"tags": tags}, changes={"tags": {f"d{number}": "v" for number in range(9)}})
    assert (ended.error, aws.calls) == ("InvalidInput", [])
    assert ended.cause == "tags: 51 tags with those of this stack; allowed: 50; remove some"
    ended, _ = execute({"tags": tags}, changes={"tags": {f"k{number}": "v" for number in range(9)}})
    assert ended.status == "SUCCEEDED"


@pytest.mark.parametrize(
    ("training", "problem"),
    [
        ({"dataset": "image_folder", "channel": "a"}, "image_folder reads its files from channel a"),
        ({"dataset": "parquet", "channel": "a"}, "parquet reads its files from channel a"),
        ({"transform": "my.code:crop", "code_channel": "a"}, "Python reads the files of code_channel from channel a"),
    ],
)
def test_files_from_nowhere_are_refused_before_a_job_is_billed(training: dict[str, Any], problem: str) -> None:
    ended, aws = execute({"training": training})
    assert (ended.error, aws.calls) == ("InvalidInput", [])
    assert ended.cause == f'channels: 0 channels; {problem}; add {{"name": "a", "s3_uri": "s3://..."}}'
    assert (
        execute({"training": training, "channels": [{"name": "a", "s3_uri": "s3://bucket"}]})[0].status == "SUCCEEDED"
    )


def test_data_that_hosts_read_themselves_needs_no_channel_but_the_network() -> None:
    training = {"dataset": "parquet", "data_uri": "s3://bucket/rows"}
    run = {"training": training, "instance_groups": [{"name": "gpu", "instance_type": "ml.g5.xlarge"}]}
    assert execute(run)[0].status == "SUCCEEDED"
    ended, aws = execute(run, changes={"is_isolated": True})
    assert (ended.error, aws.calls) == ("InvalidInput", [])
    assert ended.cause == (
        "training.data_uri: s3://bucket/rows cannot be read under network isolation, which keeps hosts from S3;"
        " allowed: null; read a channel, or deploy with counterpoise:network_isolation=false"
    )


def test_isolated_hosts_run_without_the_secret() -> None:
    ended, _ = execute({}, changes={"is_isolated": True})
    assert ended.status == "SUCCEEDED"


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("none", "image: none has been pushed to the repository"),
        (IMAGE[:-1] + "0", f"image: {IMAGE[:-1]}0 is not in the repository"),
    ],
)
def test_a_missing_image_names_the_repository_and_the_push(image: str, words: str) -> None:
    ended, aws = execute({}, image=image)
    assert (ended.status, ended.error, len(aws.requests)) == ("FAILED", "ImageMissing", 0)
    assert ended.cause.startswith(words)
    assert IMAGE.partition("@")[0] in ended.cause
    assert ended.cause.endswith("; build and push one with: counterpoise image build && counterpoise image push")


@pytest.mark.parametrize("call", ["ssm:getParameter", "ecr:describeImages", "sagemaker:describeTrainingJob"])
def test_what_nobody_expects_is_told_with_what_was_being_done(call: str) -> None:
    denied = ServiceError("Some.AccessDeniedException", "User: x is not authorized to perform: y\nmore")
    ended, _ = execute({}, errors={call: [denied]})
    assert (ended.status, ended.error) == ("FAILED", denied.error)
    assert ended.cause.startswith("cannot ")
    assert ended.cause.endswith(": User: x is not authorized to perform: y")


@pytest.mark.parametrize("call", ["ssm:getParameter", "ecr:describeImages", "s3:putObject"])
def test_reads_survive_throttling(call: str) -> None:
    service = {"ssm": "Ssm", "ecr": "Ecr", "s3": "S3"}[call.partition(":")[0]]
    throttled = ServiceError(f"{service}.{service}Exception", "Rate exceeded (Service: X, Status Code: 400)")
    ended, _ = execute({}, errors={call: [throttled] * 3})
    assert ended.status == "SUCCEEDED"
    assert ended.output["report"]


def test_data_that_the_job_cannot_read_is_told_with_uri_and_role() -> None:
    value = {"channels": [{"name": "training", "s3_uri": "s3://theirs/x"}]}
    reason = "ClientError: Data download failed:AccessDenied (403): Access denied when accessing S3 bucket theirs"
    ended, _ = execute(value, Job(status="Failed", reason=reason))
    for words in (reason, "inputs: s3://theirs/x", "arn:aws:iam::123456789012:role/counterpoise-training"):
        assert words in ended.cause
    refused = ServiceError("SageMaker.SageMakerException", "S3 bucket theirs is in another region (Status Code: 400)")
    ended, _ = execute(value, refused)
    assert "inputs: s3://theirs/x" in ended.cause


class AbortAt:
    """Stops the execution at the n-th call of an API, as StopExecution at that moment does."""

    def __init__(self, aws: FakeAws, call: str, number: int) -> None:
        self.aws, self.call, self.left = aws, call, number

    def __call__(self, resource: str, arguments: dict[str, Any]) -> Any:
        self.left -= resource == self.call
        if resource == self.call and self.left == 0:
            raise Aborted
        return self.aws(resource, arguments)


def test_a_redrive_after_the_stop_of_its_job_starts_a_new_job() -> None:
    clock = Clock()
    aws = FakeAws(clock, Job(seconds=10_000), Job())
    machine = Machine(definition(), AbortAt(aws, "sagemaker:describeTrainingJob", 2), clock)
    aborted = machine.run({})
    assert aborted.status == "ABORTED"
    aws("sagemaker:stopTrainingJob", {"TrainingJobName": aws.job_names[0]})
    ended = machine.run({}, redrive=aborted, num_redrives=1)
    assert ended.status == "SUCCEEDED"
    assert suffixes(aws) == ["-t1", "-t17"]


def test_a_redrive_keeps_what_has_finished() -> None:
    clock = Clock()
    aws = FakeAws(clock, Job(), Job(seconds=10_000), Job())
    machine = Machine(definition(), AbortAt(aws, "sagemaker:describeTrainingJob", 3), clock)
    aborted = machine.run({"mode": "compare"})
    aws("sagemaker:stopTrainingJob", {"TrainingJobName": aws.job_names[1]})
    ended = machine.run({"mode": "compare"}, redrive=aborted, num_redrives=1)
    assert ended.status == "SUCCEEDED"
    assert suffixes(aws) == ["-b1", "-h1", "-h17"]
    assert list(ended.output["arms"]) == ["baseline", "heterogeneous"]


def test_a_redrive_goes_on_with_a_job_that_was_not_stopped() -> None:
    clock = Clock()
    aws = FakeAws(clock, Job(seconds=10_000))
    machine = Machine(definition(), AbortAt(aws, "sagemaker:describeTrainingJob", 2), clock)
    ended = machine.run({}, redrive=machine.run({}), num_redrives=1)
    assert ended.status == "SUCCEEDED"
    assert suffixes(aws) == ["-t1"]


def test_a_redrive_of_an_execution_that_was_stopped_while_it_started_a_job_takes_that_job() -> None:
    clock = Clock()
    aws = FakeAws(clock, Job(seconds=100))
    machine = Machine(definition(), AbortAt(aws, "sagemaker:createTrainingJob", 1), clock)
    aborted = machine.run({})
    assert aborted.position[0] == "StartJob"
    ended = machine.run({}, redrive=aborted, num_redrives=1)
    assert ended.status == "SUCCEEDED"
    assert suffixes(aws) == ["-t1"]
