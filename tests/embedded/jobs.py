"""Training jobs of the tests: what they need in the account, and requests for them."""

import copy
import json
from dataclasses import dataclass
from typing import Any

from infra.local.aws.settings import ACCOUNT, REGION
from tests.embedded.clients import Clients, until

MANIFEST = {
    "schemaVersion": 2,
    "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
    "config": {
        "mediaType": "application/vnd.docker.container.image.v1+json",
        "size": 2,
        "digest": f"sha256:{'0' * 64}",
    },
    "layers": [],
}
BUCKET, REPOSITORY, ROLE = "job-bucket", "job-images", "job-role"


def trust(service: str, **condition: Any) -> str:
    """A trust policy for one service."""
    statement = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": service}, **condition}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


@dataclass(frozen=True)
class Jobs:
    """Makes jobs that differ from a valid request, and waits for them."""

    clients: Clients
    request: dict[str, Any]

    @classmethod
    def prepare(cls, clients: Clients) -> "Jobs":
        """Creates the bucket, the role and the image that the requests name."""
        clients.s3.create_bucket(Bucket=BUCKET)
        role = clients.iam.create_role(
            RoleName=ROLE,
            AssumeRolePolicyDocument=trust(
                "sagemaker.amazonaws.com", Condition={"StringEquals": {"aws:SourceAccount": ACCOUNT}}
            ),
        )
        repository = clients.ecr.create_repository(repositoryName=REPOSITORY)["repository"]["repositoryUri"]
        image = clients.ecr.put_image(repositoryName=REPOSITORY, imageTag="v1", imageManifest=json.dumps(MANIFEST))
        return cls(clients, _request(role["Role"]["Arn"], f"{repository}@{image['image']['imageId']['imageDigest']}"))

    def changed(self, changes: dict[str, Any]) -> dict[str, Any]:
        """The valid request with values set, or removed by None, at dotted paths such as `ResourceConfig`."""
        request = copy.deepcopy(self.request)
        for path, value in changes.items():
            *parents, name = path.split(".")
            target: Any = request
            for parent in parents:
                target = target[int(parent)] if isinstance(target, list) else target.setdefault(parent, {})
            if value is None:
                del target[name]
            else:
                target[int(name) if isinstance(target, list) else name] = value
        return request

    def start(self, name: str, changes: dict[str, Any] | None = None) -> None:
        """Creates the job of this name."""
        self.clients.sagemaker.create_training_job(**self.changed({"TrainingJobName": name, **(changes or {})}))

    def run(self, name: str, changes: dict[str, Any] | None = None) -> dict[str, Any]:
        """Creates the job and returns its description after its end."""
        self.start(name, changes)
        return self.ended(name)

    def ended(self, name: str) -> dict[str, Any]:
        """The job's description after its end."""
        return until(lambda: self._if_ended(name), f"the end of job {name}")

    def entered(self, name: str, secondary: str) -> dict[str, Any]:
        """The job's description once it is in this state."""
        return until(lambda: self._if(name, "SecondaryStatus", secondary), f"job {name} in {secondary}")

    def log(self, name: str) -> dict[str, list[str]]:
        """The lines of a job by log stream; empty before the first line."""
        logs, group = self.clients.logs, "/aws/sagemaker/TrainingJobs"
        try:
            found = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=f"{name}/")["logStreams"]
        except logs.exceptions.ResourceNotFoundException:
            return {}
        names = [stream["logStreamName"] for stream in found]
        events = {stream: logs.get_log_events(logGroupName=group, logStreamName=stream)["events"] for stream in names}
        return {stream: [event["message"] for event in events[stream]] for stream in names}

    def _if_ended(self, name: str) -> dict[str, Any] | None:
        description: dict[str, Any] = self.clients.sagemaker.describe_training_job(TrainingJobName=name)
        return None if description["TrainingJobStatus"] in ("InProgress", "Stopping") else description

    def _if(self, name: str, key: str, value: str) -> dict[str, Any] | None:
        description: dict[str, Any] = self.clients.sagemaker.describe_training_job(TrainingJobName=name)
        return description if description[key] == value else None


def _request(role_arn: str, image: str) -> dict[str, Any]:
    return {
        "TrainingJobName": "unnamed",
        "RoleArn": role_arn,
        "AlgorithmSpecification": {
            "TrainingImage": image,
            "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": "images_per_second", "Regex": r"images_per_second=([-+.\deE]+)"}],
        },
        "HyperParameters": {"steps": "5"},
        "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/jobs"},
        "ResourceConfig": {
            "VolumeSizeInGB": 50,
            "InstanceGroups": [
                {"InstanceGroupName": "gpu", "InstanceType": "ml.g5.xlarge", "InstanceCount": 1},
                {"InstanceGroupName": "cpu", "InstanceType": "ml.c5.4xlarge", "InstanceCount": 1},
            ],
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
    }


def channel(name: str, prefix: str, *groups: str) -> dict[str, Any]:
    """A channel of the test's bucket."""
    source: dict[str, Any] = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/{prefix}"}
    if groups:
        source["InstanceGroupNames"] = list(groups)
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}}


def job_arn(name: str) -> str:
    """The ARN of a job."""
    return f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/{name}"
