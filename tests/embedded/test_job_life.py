"""The life of a training job, from Starting to each of its ends, with everything that it leaves behind."""

import io
import json
import tarfile
from datetime import timedelta
from typing import Any

import pytest

from infra.local.aws.server import EmbeddedAws
from tests.embedded.clients import Clients, until
from tests.embedded.jobs import BUCKET, Jobs, channel, job_arn
from tests.embedded.scenarios import Scenarios


def test_completed_job(jobs: Jobs, scenarios: Scenarios) -> None:
    number = 1234.5678901234567
    scenarios.set(
        "completes",
        {
            "lines": [
                f"(TorchTrainer pid=7) images_per_second={number / 2!r}",
                f"images_per_second={number!r} loss=dog",
                {"host": "algo-2", "line": "ready"},
            ],
            "model": {"model.safetensors": "weights", "deep/er.json": "{}"},
            "output": {"data/results.json": "[1]", "failure": ""},
        },
    )
    description = jobs.run("completes")
    transitions = description["SecondaryStatusTransitions"]
    assert [transition["Status"] for transition in transitions] == [
        "Starting",
        "Downloading",
        "Training",
        "Uploading",
        "Completed",
    ]
    assert [t["EndTime"] for t in transitions[:-1]] == [t["StartTime"] for t in transitions[1:]]
    assert all(transition["StatusMessage"] for transition in transitions)
    assert description["TrainingJobStatus"] == description["SecondaryStatus"] == "Completed"
    assert "FailureReason" not in description
    assert description["TrainingStartTime"] == transitions[2]["StartTime"]
    assert description["TrainingEndTime"] == description["LastModifiedTime"] == transitions[-1]["EndTime"]
    assert description["BillableTimeInSeconds"] == description["TrainingTimeInSeconds"] >= 1
    [metric] = description["FinalMetricDataList"]
    assert (metric["MetricName"], metric["Value"]) == ("images_per_second", number)
    assert metric["Timestamp"] - description["TrainingStartTime"] >= timedelta(0)
    assert description["HyperParameters"] == {"steps": "5"}

    uri = description["ModelArtifacts"]["S3ModelArtifacts"]
    assert uri == f"s3://{BUCKET}/jobs/completes/output/model.tar.gz"
    assert archive(jobs.clients, "jobs/completes/output/model.tar.gz") == {
        "model.safetensors": "weights",
        "deep/er.json": "{}",
    }
    assert archive(jobs.clients, "jobs/completes/output/output.tar.gz") == {"results.json": "[1]"}


def test_log_has_one_stream_for_each_host(jobs: Jobs, scenarios: Scenarios) -> None:
    lines = [{"host": f"algo-{1 + n % 2}", "line": f"line {n}"} for n in range(2500)]
    scenarios.set("logs", {"lines": [*lines, ""]})
    description = jobs.run("logs")
    assert "FinalMetricDataList" in description
    streams = list_streams(jobs.clients, "logs/")
    assert [name.rpartition("-")[0] for name in streams] == ["logs/algo-1", "logs/algo-2"]
    assert all(name.rpartition("-")[2].isdecimal() for name in streams)
    messages = [event["message"] for event in all_events(jobs.clients, streams[1])]
    assert messages == [line["line"] for line in lines[1::2]]


def test_log_and_checkpoints_arrive_while_the_job_runs(jobs: Jobs, scenarios: Scenarios) -> None:
    scenarios.set("running", {"lines": ["now"], "checkpoints": {"step-1/state": "one"}, "is_held": True})
    jobs.start("running", {"CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/checkpoints/running"}})
    jobs.entered("running", "Training")
    until(lambda: jobs.log("running") and list(jobs.log("running").values()) == [["now"]], "the line in the log")
    until(lambda: keys(jobs.clients, "checkpoints/running/"), "the checkpoint in S3")
    assert keys(jobs.clients, "checkpoints/running/") == ["checkpoints/running/step-1/state"]
    jobs.clients.sagemaker.stop_training_job(TrainingJobName="running")
    jobs.ended("running")


def test_next_job_finds_checkpoints_and_channels(jobs: Jobs, scenarios: Scenarios) -> None:
    for name in ("train/cats/1.jpg", "train/dogs/2.jpg", "train-other/3.jpg"):
        jobs.clients.s3.put_object(Bucket=BUCKET, Key=name, Body=b"image")
    checkpoint = {"CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/checkpoints/resumed/"}}
    scenarios.set("resume-1", {"checkpoints": {"step-4": "4"}})
    scenarios.set("resume-2", {"shows_input": True, "lines": []})
    jobs.run("resume-1", checkpoint)
    jobs.run("resume-2", {**checkpoint, "InputDataConfig": [channel("training", "train/", "gpu")]})
    [lines] = jobs.log("resume-2").values()
    assert lines == ["training: ['cats/1.jpg', 'dogs/2.jpg']", "checkpoints: ['step-4']"]


def test_failed_job(jobs: Jobs, scenarios: Scenarios) -> None:
    failure = "ray head: 1 of 2 hosts did not join within 600 s: algo-2"
    scenarios.set("fails", {"status": "Failed", "failure": failure, "exit_code": 3, "lines": ["images_per_second=1"]})
    description = jobs.run("fails")
    assert description["TrainingJobStatus"] == description["SecondaryStatus"] == "Failed"
    assert description["FailureReason"] == f"AlgorithmError: {failure}, exit code: 3"
    assert [metric["Value"] for metric in description["FinalMetricDataList"]] == [1.0]
    assert description["BillableTimeInSeconds"] >= 1
    assert keys(jobs.clients, "jobs/fails/") == []


def test_failure_reason_has_at_most_1024_characters(jobs: Jobs, scenarios: Scenarios) -> None:
    scenarios.set("verbose", {"status": "Failed", "failure": "x" * 3000})
    assert len(jobs.run("verbose")["FailureReason"]) == 1024


def test_stopped_job_keeps_its_model(jobs: Jobs, scenarios: Scenarios) -> None:
    scenarios.set("stops", {"is_held": True, "model": {"model.safetensors": "half"}})
    jobs.start("stops")
    jobs.entered("stops", "Training")
    for _ in range(2):  # a second request for the same is no error
        jobs.clients.sagemaker.stop_training_job(TrainingJobName="stops")
    description = jobs.ended("stops")
    assert description["TrainingJobStatus"] == description["SecondaryStatus"] == "Stopped"
    assert [t["Status"] for t in description["SecondaryStatusTransitions"]][-2:] == ["Stopping", "Stopped"]
    assert archive(jobs.clients, "jobs/stops/output/model.tar.gz") == {"model.safetensors": "half"}


def test_job_that_finishes_its_work_in_the_stop_is_stopped(jobs: Jobs, scenarios: Scenarios) -> None:
    scenarios.set("stops-late", {"is_held": True, "status_after_stop": "Completed"})
    jobs.start("stops-late")
    jobs.entered("stops-late", "Training")
    jobs.clients.sagemaker.stop_training_job(TrainingJobName="stops-late")
    assert jobs.ended("stops-late")["TrainingJobStatus"] == "Stopped"


def test_job_that_takes_too_long(jobs: Jobs, scenarios: Scenarios) -> None:
    scenarios.set("too-long", {"is_held": True})
    description = jobs.run("too-long", {"StoppingCondition.MaxRuntimeInSeconds": 1})
    assert (description["TrainingJobStatus"], description["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")
    assert "jobs/too-long/output/model.tar.gz" in keys(jobs.clients, "jobs/too-long/")


def test_job_without_capacity(jobs: Jobs, embedded_aws: EmbeddedAws) -> None:
    reason = "CapacityError: Unable to provision requested ML compute capacity. Please retry using another type."
    embedded_aws.inject(operation="StartOfJob", job_name="no-capacity", message=reason)
    description = jobs.run("no-capacity")
    assert description["FailureReason"] == reason
    assert [t["Status"] for t in description["SecondaryStatusTransitions"]] == ["Starting", "Failed"]
    assert "BillableTimeInSeconds" not in description
    assert jobs.run("no-capacity-2")["TrainingJobStatus"] == "Completed", "the fault was for one job"


def test_channel_without_objects_fails_the_job(jobs: Jobs) -> None:
    description = jobs.run("no-data", {"InputDataConfig": [channel("training", "nothing/here/")]})
    assert description["TrainingJobStatus"] == "Failed"
    assert "No S3 objects found under S3 URL" in description["FailureReason"]
    assert f"s3://{BUCKET}/nothing/here/" in description["FailureReason"]


def test_runner_that_breaks_fails_the_job(jobs: Jobs, scenarios: Scenarios) -> None:
    (scenarios.directory / "runner-breaks.json").write_text("no scenario")
    description = jobs.run("runner-breaks")
    assert description["TrainingJobStatus"] == "Failed"
    assert description["FailureReason"].startswith("InternalServerError: the local runner ended: exit code 1:")


@pytest.mark.parametrize(
    ("error", "is_created"),
    [
        ({"code": "ThrottlingException", "message": "Rate exceeded"}, False),
        ({"code": "ResourceLimitExceeded", "message": "The account-level service limit is 0 Instances"}, False),
        ({"code": "InternalFailure", "http_status": 500, "is_applied": True}, True),
    ],
)
def test_injected_fault(error: dict[str, Any], is_created: bool, jobs: Jobs, embedded_aws: EmbeddedAws) -> None:
    name = f"fault-{error['code'].lower()}"
    embedded_aws.inject(operation="CreateTrainingJob", job_name=name, skip=0, times=1, **error)
    with pytest.raises(jobs.clients.sagemaker.exceptions.ClientError, match=error["code"]):
        jobs.start(name)
    listed = jobs.clients.sagemaker.list_training_jobs(NameContains=name)["TrainingJobSummaries"]
    assert bool(listed) == is_created
    if is_created:
        assert jobs.ended(name)["TrainingJobStatus"] == "Completed"
    else:
        jobs.run(name)
    assert [call["error"] for call in embedded_aws.calls("CreateTrainingJob", name)] == [
        error["code"],
        *([] if is_created else [None]),
    ]


def test_every_change_is_an_event(jobs: Jobs, scenarios: Scenarios, clients: Clients) -> None:
    queue = clients.sqs.create_queue(QueueName="job-events")["QueueUrl"]
    pattern = {"source": ["aws.sagemaker"], "detail": {"TrainingJobName": ["eventful"]}}
    clients.events.put_rule(Name="job-events", EventPattern=json.dumps(pattern))
    queue_arn = clients.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    clients.events.put_targets(Rule="job-events", Targets=[{"Id": "queue", "Arn": queue_arn}])
    scenarios.set("eventful", {"status": "Failed", "failure": "why"})
    jobs.run("eventful")
    events = [json.loads(body) for body in drain(clients, queue)]
    details = {event["detail"]["SecondaryStatus"]: event["detail"] for event in events}
    assert set(details) == {"Starting", "Downloading", "Training", "Failed"}
    assert {event["detail-type"] for event in events} == {"SageMaker Training Job State Change"}
    assert {tuple(event["resources"]) for event in events} == {(job_arn("eventful"),)}
    assert details["Failed"]["FailureReason"] == "AlgorithmError: why, exit code: 1"
    assert details["Failed"]["TrainingJobStatus"] == "Failed"
    assert details["Failed"]["CreationTime"] > 1e12, "milliseconds"


def test_jobs_are_listed_and_tagged(jobs: Jobs) -> None:
    for number in range(3):
        jobs.run(f"listed-{number}", {"Tags": [{"Key": "team", "Value": "vision"}]})
    sagemaker = jobs.clients.sagemaker
    first = sagemaker.list_training_jobs(NameContains="listed-", MaxResults=2, StatusEquals="Completed")
    assert [job["TrainingJobName"] for job in first["TrainingJobSummaries"]] == ["listed-2", "listed-1"]
    rest = sagemaker.list_training_jobs(NameContains="listed-", MaxResults=2, NextToken=first["NextToken"])
    assert [job["TrainingJobName"] for job in rest["TrainingJobSummaries"]] == ["listed-0"]
    assert "NextToken" not in rest
    sagemaker.add_tags(ResourceArn=job_arn("listed-0"), Tags=[{"Key": "team", "Value": "speech"}])
    assert sagemaker.list_tags(ResourceArn=job_arn("listed-0"))["Tags"] == [{"Key": "team", "Value": "speech"}]


def archive(clients: Clients, key: str) -> dict[str, str]:
    """The files of an archive in the bucket."""
    body = clients.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
        files = {member.name: tar.extractfile(member) for member in tar.getmembers()}
        return {name: file.read().decode() for name, file in files.items() if file is not None}


def keys(clients: Clients, prefix: str) -> list[str]:
    return [entry["Key"] for entry in clients.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])]


def list_streams(clients: Clients, prefix: str) -> list[str]:
    group = "/aws/sagemaker/TrainingJobs"
    found = clients.logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=prefix)["logStreams"]
    return [stream["logStreamName"] for stream in found]


def all_events(clients: Clients, stream: str) -> list[dict[str, Any]]:
    pages = clients.logs.get_paginator("filter_log_events").paginate(
        logGroupName="/aws/sagemaker/TrainingJobs", logStreamNames=[stream]
    )
    return [event for page in pages for event in page["events"]]


def drain(clients: Clients, queue: str) -> list[str]:
    bodies: list[str] = []
    while messages := clients.sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages"):
        for message in messages:
            bodies.append(message["Body"])
            clients.sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    return bodies
