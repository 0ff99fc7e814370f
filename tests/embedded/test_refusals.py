"""The emulated SageMaker refuses what SageMaker refuses, before a job exists."""

import json
import urllib.error
import urllib.request
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra.local.aws.settings import ACCOUNT
from tests.embedded.clients import Clients
from tests.embedded.jobs import Jobs, channel, job_arn, trust

GPU = {"InstanceGroupName": "gpu", "InstanceType": "ml.g5.xlarge", "InstanceCount": 1}
ECR = f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com"
SECRET = "AKIA" + "ABCDEFGHIJKLMNOP"

SHAPES: dict[str, tuple[dict[str, Any], str]] = {
    "name with an underscore": ({"TrainingJobName": "a_b"}, "regular expression pattern"),
    "name of 64 characters": ({"TrainingJobName": "a" * 64}, "length less than or equal to 63"),
    "unknown instance type": ({"ResourceConfig.InstanceGroups.0.InstanceType": "ml.g5.tiny"}, "enum value set"),
    "six groups": (
        {"ResourceConfig.InstanceGroups": [{**GPU, "InstanceGroupName": str(number)} for number in range(6)]},
        "'resourceConfig.instanceGroups' failed to satisfy constraint: Member must have length less than or equal to 5",
    ),
    "long group name": ({"ResourceConfig.InstanceGroups.0.InstanceGroupName": "g" * 65}, "equal to 64"),
    "hyperparameter of 2,501 characters": ({"HyperParameters": {"key": "v" * 2501}}, "equal to 2500"),
    "hyperparameter key of 257": ({"HyperParameters": {"k" * 257: ""}}, "equal to 256"),
    "101 hyperparameters": ({"HyperParameters": {str(n): "" for n in range(101)}}, "equal to 100"),
    "environment value of 513": ({"Environment": {"KEY": "v" * 513}}, "equal to 512"),
    "environment name": ({"Environment": {"1KEY": ""}}, "regular expression pattern"),
    "51 tags": ({"Tags": [{"Key": str(n), "Value": ""} for n in range(51)]}, "equal to 50"),
    "tag with a semicolon": ({"Tags": [{"Key": "a;b", "Value": ""}]}, "regular expression pattern"),
    "21 channels": ({"InputDataConfig": [channel(f"c{n}", "x") for n in range(21)]}, "equal to 20"),
    "41 metrics": (
        {"AlgorithmSpecification.MetricDefinitions": [{"Name": str(n), "Regex": "(.)"} for n in range(41)]},
        "equal to 40",
    ),
    "metric regex of 501": (
        {"AlgorithmSpecification.MetricDefinitions": [{"Name": "m", "Regex": "r" * 501}]},
        "equal to 500",
    ),
    "keep-alive over 6 hours": ({"ResourceConfig.KeepAlivePeriodInSeconds": 21_601}, "equal to 21600"),
    "31 retries": ({"RetryStrategy": {"MaximumRetryAttempts": 31}}, "value less than or equal to 30"),
    "output that is no S3 URI": ({"OutputDataConfig.S3OutputPath": "bucket/jobs"}, "regular expression pattern"),
    "role that is no ARN": ({"RoleArn": "role/of-a-training-job"}, "regular expression pattern"),
}

RULES: dict[str, tuple[dict[str, Any], str]] = {
    "groups and a type": ({"ResourceConfig.InstanceType": "ml.g5.xlarge"}, "together with InstanceGroups"),
    "groups and a count": ({"ResourceConfig.InstanceCount": 1}, "together with InstanceGroups"),
    "neither groups nor a type": ({"ResourceConfig.InstanceGroups": None}, "either InstanceGroups or both"),
    "two groups of one name": ({"ResourceConfig.InstanceGroups": [GPU, GPU]}, "gpu is used more than once"),
    "no instance": ({"ResourceConfig.InstanceGroups.0.InstanceCount": 0}, "InstanceCount must be at least 1"),
    "no volume": ({"ResourceConfig.VolumeSizeInGB": None}, "VolumeSizeInGB"),
    "warm pool": ({"ResourceConfig.KeepAlivePeriodInSeconds": 60}, "Warm pools are not supported"),
    "instance preferences": (
        {"ResourceConfig.InstancePreferences": [{"InstanceType": "ml.g5.xlarge"}]},
        "InstancePreferences can't be specified",
    ),
    "key for an NVMe type": ({"ResourceConfig.VolumeKmsKeyId": "key"}, "not supported for ml.g5.xlarge"),
    "two channels of one name": (
        {"InputDataConfig": [channel("a", "x"), channel("a", "y")]},
        "a is used more than once",
    ),
    "groups for some channels": (
        {"InputDataConfig": [channel("with", "x", "gpu"), channel("without", "x")]},
        "Some channels have assigned instance groups while others have not: without",
    ),
    "channel for an unknown group": ({"InputDataConfig": [channel("a", "x", "tpu")]}, "instance group tpu"),
    "spot without a wait": ({"EnableManagedSpotTraining": True}, "must be present and be greater than or equal"),
    "spot with a short wait": (
        {"EnableManagedSpotTraining": True, "StoppingCondition.MaxWaitTimeInSeconds": 599},
        "must be present and be greater than or equal",
    ),
    "wait without spot": (
        {"StoppingCondition.MaxWaitTimeInSeconds": 600},
        "only supported when EnableManagedSpotTraining",
    ),
    "29 days": ({"StoppingCondition.MaxRuntimeInSeconds": 29 * 86_400}, "at most 2419200"),
    "secret in a hyperparameter": ({"HyperParameters": {"notes": f"use {SECRET}"}}, "check the value of notes"),
    "secret in the environment": ({"Environment": {"AWS_SECRET_ACCESS_KEY": "x"}}, "AWS_SECRET_ACCESS_KEY"),
    "two tags of one key": ({"Tags": [{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]}, "Duplicate tag key: a"),
    "tag of AWS": ({"Tags": [{"Key": "aws:x", "Value": ""}]}, "must not begin with aws:"),
    "image and algorithm": ({"AlgorithmSpecification.AlgorithmName": "x"}, "exactly one of"),
    "metric regex that is none": (
        {"AlgorithmSpecification.MetricDefinitions": [{"Name": "m", "Regex": "(.*"}]},
        "Invalid regular expression",
    ),
}

RESOURCES: dict[str, tuple[dict[str, Any], str]] = {
    "no such tag": (
        {"AlgorithmSpecification.TrainingImage": f"{ECR}/job-images:v2"},
        "Cannot find the requested image",
    ),
    "no such digest": (
        {"AlgorithmSpecification.TrainingImage": f"{ECR}/job-images@sha256:{'f' * 64}"},
        "Cannot find the requested image",
    ),
    "no such repository": (
        {"AlgorithmSpecification.TrainingImage": f"{ECR}/other:v1"},
        "Cannot find repository: other",
    ),
    "image from elsewhere": ({"AlgorithmSpecification.TrainingImage": "docker.io/x:1"}, "Invalid training image"),
    "no such role": ({"RoleArn": f"arn:aws:iam::{ACCOUNT}:role/nobody"}, "Please ensure that the role exists"),
    "no such output bucket": ({"OutputDataConfig.S3OutputPath": "s3://no-bucket/x"}, "no-bucket does not exist"),
    "no such checkpoint bucket": ({"CheckpointConfig.S3Uri": "s3://no-bucket/x"}, "no-bucket does not exist"),
}
REFUSED = {**SHAPES, **RULES, **RESOURCES}


@pytest.mark.parametrize("case", REFUSED)
def test_request_is_refused(case: str, jobs: Jobs) -> None:
    changes, sentence = REFUSED[case]
    request = jobs.changed({"TrainingJobName": "refused", **changes})
    with pytest.raises(ClientError) as caught:
        jobs.clients.sagemaker.create_training_job(**request)
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    assert sentence in caught.value.response["Error"]["Message"]
    assert jobs.clients.sagemaker.list_training_jobs(NameContains="refused")["TrainingJobSummaries"] == []


def test_every_broken_constraint_is_told(jobs: Jobs) -> None:
    request = jobs.changed({"TrainingJobName": "a_b", "HyperParameters": {"key": "v" * 2501}})
    with pytest.raises(
        ClientError, match=r"2 validation errors detected: .*trainingJobName.*hyperParameters\.key\.value"
    ):
        jobs.clients.sagemaker.create_training_job(**request)


def test_number_is_no_text(jobs: Jobs, clients: Clients) -> None:
    """What a client of another language, or a state machine, may send, while boto3 refuses it by itself."""
    answer = raw_call(clients, "CreateTrainingJob", jobs.changed({"HyperParameters": {"batch_size": 32}}))
    assert answer["__type"] == "SerializationException"
    assert "batch_size" in answer["message"]


def test_required_and_unknown_members_are_named(jobs: Jobs, clients: Clients) -> None:
    answer = raw_call(clients, "CreateTrainingJob", jobs.changed({"RoleArn": None}))
    assert "'roleArn' failed to satisfy constraint: Member must not be null" in answer["message"]
    answer = raw_call(clients, "CreateTrainingJob", jobs.changed({"ResourceConfig.VolumeSizeInGb": 5}))
    assert "VolumeSizeInGb" in answer["message"]


def test_role_must_trust_sagemaker_for_this_job(jobs: Jobs, clients: Clients) -> None:
    condition = {"ArnLike": {"aws:SourceArn": job_arn("trusted-*")}}
    roles = {
        "of-lambda": trust("lambda.amazonaws.com"),
        "of-some-jobs": trust("sagemaker.amazonaws.com", Condition=condition),
    }
    arns = {
        name: clients.iam.create_role(RoleName=name, AssumeRolePolicyDocument=policy)["Role"]["Arn"]
        for name, policy in roles.items()
    }
    for role in arns.values():
        with pytest.raises(ClientError, match=r"allows principal 'sagemaker\.amazonaws\.com' to assume the role"):
            jobs.start("untrusted", {"RoleArn": role})
    jobs.start("trusted-1", {"RoleArn": arns["of-some-jobs"]})
    jobs.ended("trusted-1")


def test_name_is_never_free_again(jobs: Jobs) -> None:
    jobs.run("only-once")
    with pytest.raises(ClientError) as caught:
        jobs.start("only-once")
    assert caught.value.response["Error"]["Code"] == "ResourceInUse"
    assert job_arn("only-once") in caught.value.response["Error"]["Message"]


def test_subnets_need_security_groups(jobs: Jobs, clients: Clients) -> None:
    answer = raw_call(clients, "CreateTrainingJob", jobs.changed({"VpcConfig": {"Subnets": ["subnet-1"]}}))
    assert "'vpcConfig.securityGroupIds' failed to satisfy constraint: Member must not be null" in answer["message"]


@pytest.mark.parametrize("call", ["describe_training_job", "stop_training_job"])
def test_unknown_job(call: str, clients: Clients) -> None:
    with pytest.raises(ClientError) as caught:
        getattr(clients.sagemaker, call)(TrainingJobName="nobody")
    assert caught.value.response["Error"] == {
        "Code": "ValidationException",
        "Message": "Requested resource not found.",
    }


def test_ended_job_cannot_be_stopped(jobs: Jobs) -> None:
    jobs.run("ended-before-stop")
    with pytest.raises(ClientError, match="rejected because the training job is in status Completed"):
        jobs.clients.sagemaker.stop_training_job(TrainingJobName="ended-before-stop")


def raw_call(clients: Clients, operation: str, request: dict[str, Any]) -> dict[str, Any]:
    """The JSON answer to a request that boto3 would not send."""
    headers = {
        "X-Amz-Target": f"SageMaker.{operation}",
        "Content-Type": "application/x-amz-json-1.1",
        "Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/sagemaker/aws4_request",
    }
    call = urllib.request.Request(clients.endpoint, json.dumps(request).encode(), headers)
    try:
        with urllib.request.urlopen(call, timeout=10) as response:
            answer = response.read()
    except urllib.error.HTTPError as error:
        answer = error.read()
        error.close()
    result: dict[str, Any] = json.loads(answer)
    return result
