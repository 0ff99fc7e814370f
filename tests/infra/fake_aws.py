"""The AWS calls of the workflow, answered from a script: SageMaker's jobs, the image, the report."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import botocore.session
from botocore.validate import ParamValidator

from tests.infra.machine import Aborted, Clock, ServiceError

DIGEST = "sha256:" + "ab" * 32
IMAGE = f"123456789012.dkr.ecr.us-east-1.amazonaws.com/counterpoise@{DIGEST}"
CREATE_SHAPE = (
    botocore.session.get_session().get_service_model("sagemaker").operation_model("CreateTrainingJob").input_shape
)

CAPACITY = (
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML instance type."
)
QUOTA = ServiceError(
    "SageMaker.ResourceLimitExceededException",
    "The account-level service limit 'ml.g5.xlarge for training job usage' is 0 Instances, with current utilization of"
    " 0 Instances and a request delta of 1 Instances. Please use AWS Service Quotas to request an increase for this"
    " quota. (Service: SageMaker, Status Code: 400, Request ID: 1)",
)
THROTTLED = ServiceError(
    "SageMaker.SageMakerException", "Rate exceeded (Service: SageMaker, Status Code: 400, Request ID: 1)"
)
INTERNAL = ServiceError("SageMaker.SageMakerException", "null (Service: SageMaker, Status Code: 500, Request ID: 1)")
REFUSED = ServiceError(
    "SageMaker.SageMakerException",
    "1 validation error detected: Value 'x' at 'roleArn' (Service: SageMaker, Status Code: 400, Request ID: 1)",
)
NOT_FOUND = ServiceError(
    "SageMaker.SageMakerException",
    "Requested resource not found. (Service: SageMaker, Status Code: 400, Request ID: 1)",
)


@dataclass(kw_only=True)
class Job:
    """What one created job does."""

    status: str = "Completed"
    secondary: str = ""
    reason: str | None = None
    seconds: float = 0
    billable_seconds: int = 60
    training_seconds: int = 60
    num_interruptions: int = 0
    metrics: dict[str, float] = field(default_factory=lambda: {"images_per_second": 100.0})
    is_answer_lost: bool = False
    """The job is created, and the call that did it fails."""
    age_seconds: int = 0
    """It existed before, for so long."""
    request: dict[str, Any] = field(default_factory=dict)
    created_at: int = 0


class FakeAws:
    """The service of a `Machine`; jobs are created as the script says, the last entry for all that follow."""

    def __init__(self, clock: Clock, *script: Job | ServiceError, image: str = IMAGE) -> None:
        self.clock, self.image = clock, image
        self.script: list[Job | ServiceError] = list(script) or [Job()]
        self.jobs: dict[str, Job] = {}
        self.requests: list[dict[str, Any]] = []
        self.calls: list[str] = []
        self.stopped: list[str] = []
        self.reports: dict[str, Any] = {}
        self.errors: dict[str, list[ServiceError]] = {}
        self.abort_at_call: str | None = None

    @property
    def job_names(self) -> list[str]:
        """The names asked for, in order, those that were refused too."""
        return [request["TrainingJobName"] for request in self.requests]

    def __call__(self, resource: str, arguments: dict[str, Any]) -> Any:
        self.calls.append(resource)
        if resource == self.abort_at_call:
            raise Aborted
        if self.errors.get(resource):
            raise self.errors[resource].pop(0)
        return getattr(self, "_" + resource.replace(":", "_"))(arguments)

    def _ssm_getParameter(self, arguments: dict[str, Any]) -> Any:
        return {"Parameter": {"Name": arguments["Name"], "Value": self.image}}

    def _ecr_describeImages(self, arguments: dict[str, Any]) -> Any:
        assert arguments["RepositoryName"] == "counterpoise"
        if arguments["ImageIds"] != [{"ImageDigest": DIGEST}]:
            raise ServiceError("Ecr.ImageNotFoundException", "The image with imageId ... does not exist")
        return {"ImageDetails": [{"ImageDigest": DIGEST}]}

    def _sagemaker_createTrainingJob(self, request: dict[str, Any]) -> Any:
        validate(request)
        name = request["TrainingJobName"]
        self.requests.append(request)
        if name in self.jobs:
            raise ServiceError("SageMaker.ResourceInUseException", f"Training job names must be unique: {name}")
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(step, ServiceError):
            raise step
        created_at = self.clock.now - step.age_seconds * 1000
        self.jobs[name] = Job(**{**vars(step), "request": request, "created_at": created_at})
        if step.is_answer_lost:
            raise INTERNAL
        if step.age_seconds:
            raise ServiceError("SageMaker.ResourceInUseException", f"Training job names must be unique: {name}")
        return {"TrainingJobArn": f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{name}"}

    def _sagemaker_describeTrainingJob(self, arguments: dict[str, Any]) -> Any:
        job = self.jobs.get(arguments["TrainingJobName"])
        if job is None:
            raise NOT_FOUND
        description = {
            "TrainingJobName": arguments["TrainingJobName"],
            "CreationTime": Clock(job.created_at).text,
            "ModelArtifacts": {"S3ModelArtifacts": f"s3://b-1/jobs/{arguments['TrainingJobName']}/output/model.tar.gz"},
        }
        if self.clock.now - job.created_at < job.seconds * 1000:
            return {**description, "TrainingJobStatus": "InProgress", "SecondaryStatus": "Training"}
        metrics = [{"MetricName": name, "Value": value, "Timestamp": "now"} for name, value in job.metrics.items()]
        return {
            **description,
            "TrainingJobStatus": job.status,
            "SecondaryStatus": job.secondary or job.status,
            "BillableTimeInSeconds": job.billable_seconds,
            "TrainingTimeInSeconds": job.training_seconds,
            "SecondaryStatusTransitions": [
                {"Status": status}
                for status in ["Training", *["Interrupted", "Starting", "Training"] * job.num_interruptions, job.status]
            ],
            **({"FailureReason": job.reason} if job.reason else {}),
            **({"FinalMetricDataList": metrics} if metrics else {}),
        }

    def _sagemaker_stopTrainingJob(self, arguments: dict[str, Any]) -> Any:
        name = arguments["TrainingJobName"]
        job = self.jobs.get(name)
        if job is None:
            raise NOT_FOUND
        if self.clock.now - job.created_at >= job.seconds * 1000:
            text = f"The request was rejected because the training job is in status {job.status}."
            raise ServiceError("SageMaker.SageMakerException", f"{text} (Service: SageMaker, Status Code: 400)")
        self.stopped.append(name)
        job.status, job.secondary, job.seconds = "Stopped", "Stopped", 0
        return {}

    def _s3_putObject(self, arguments: dict[str, Any]) -> Any:
        assert arguments["Bucket"] == "b-1"
        self.reports[arguments["Key"]] = arguments["Body"]
        return {"ETag": '"1"'}


def validate(request: dict[str, Any]) -> None:
    """Holds a request against the shape of CreateTrainingJob, in which an unknown field is an error too."""
    report = ParamValidator().validate(request, CREATE_SHAPE)
    assert not report.has_errors(), report.generate_report()
    _no_unknown(request, CREATE_SHAPE, "")


def _no_unknown(value: Any, shape: Any, path: str) -> None:
    if shape.type_name == "structure":
        assert set(value) <= set(shape.members), f"{path}: {set(value) - set(shape.members)}"
        for key, item in value.items():
            _no_unknown(item, shape.members[key], f"{path}.{key}")
    elif shape.type_name == "list":
        for item in value:
            _no_unknown(item, shape.member, path)


def groups_of(requests: Sequence[dict[str, Any]]) -> list[list[str]]:
    """The instance types of each request."""
    return [[group["InstanceType"] for group in one["ResourceConfig"]["InstanceGroups"]] for one in requests]
