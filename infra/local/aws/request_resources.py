"""Whether what a CreateTrainingJob request names exists: role, image and buckets."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from ministack.services import ecr, s3

from infra.local.aws.errors import ValidationError
from infra.local.aws.role_session import SAGEMAKER, find_role, trusts_sagemaker
from infra.local.aws.settings import ACCOUNT, REGION

_IMAGE = re.compile(
    r"(?P<registry>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com/(?P<repository>[^:@]+)"
    r"(@(?P<digest>sha256:[0-9a-f]{64})|:(?P<tag>[\w.-]+))?"
)
_PULL_RIGHTS = "ecr:BatchCheckLayerAvailability, ecr:BatchGetImage, ecr:GetDownloadUrlForLayer"


def check_resources(request: dict[str, Any], job_arn: str) -> None:
    """Raises ValidationError in SageMaker's words for the first thing that does not exist."""
    role_arn = request["RoleArn"]
    role = find_role(role_arn)
    if role is None or not trusts_sagemaker(role, job_arn):
        advice = f"Please ensure that the role exists and allows principal '{SAGEMAKER}' to assume the role."
        raise ValidationError(f"Could not assume role {role_arn}. {advice}")
    image = request["AlgorithmSpecification"].get("TrainingImage")
    if image is not None:
        _check_image(image, role_arn)
    for uri in _s3_uris(request):
        bucket = urlsplit(uri).netloc
        if s3._buckets.get(bucket) is None:
            raise ValidationError(f"S3 bucket {bucket} does not exist: {uri}")


def _check_image(image: str, role_arn: str) -> None:
    parts = _IMAGE.fullmatch(image)
    if parts is None:
        path = "a valid Amazon Elastic Container Registry path of the Docker image to run"
        raise ValidationError(f"Invalid training image. Please provide {path}.")
    where = f"{parts['repository']} in registry ID: {parts['registry']}"
    advice = f"Please check if your ECR repository and image exist and role {role_arn} has proper pull permissions"
    if (parts["registry"], parts["region"]) != (ACCOUNT, REGION) or parts["repository"] not in ecr._repositories:
        raise ValidationError(f"Cannot find repository: {where} {advice} for SageMaker: {_PULL_RIGHTS}")
    identity = {"imageDigest": parts["digest"]} if parts["digest"] else {"imageTag": parts["tag"] or "latest"}
    if ecr._find_image(parts["repository"], identity) is None:
        raise ValidationError(f"Cannot find the requested image: {image} {advice} for SageMaker: {_PULL_RIGHTS}")


def _s3_uris(request: dict[str, Any]) -> Iterator[str]:
    yield request["OutputDataConfig"]["S3OutputPath"]
    if "CheckpointConfig" in request:
        yield request["CheckpointConfig"]["S3Uri"]
    for channel in request.get("InputDataConfig", []):
        if "S3DataSource" in channel["DataSource"]:
            yield channel["DataSource"]["S3DataSource"]["S3Uri"]
