"""The parameter that says which image jobs run, and whether that image is in the repository."""

from infra.client.aws import Aws, Request
from infra.client.aws_errors import DENIED
from infra.client.errors import AwsError, BadInput
from infra.client.stack import Stack

NO_IMAGE = "none"
"""What the stack's parameter holds until an image has been pushed."""


def read_pointer(aws: Aws, stack: Stack) -> str | None:
    """The image that jobs run, <repository>@<digest>; None if there is none yet. Raises AwsError."""
    answer = aws.call("ssm", "GetParameter", Name=stack.image_parameter_name)
    value = str(answer["Parameter"]["Value"])
    return None if value == NO_IMAGE else value


def pointer_request(stack: Stack, image: str) -> Request:
    """What makes an image, <repository>@<digest>, the one that jobs run."""
    parameters = {"Name": stack.image_parameter_name, "Value": image, "Type": "String", "Overwrite": True}
    return Request(service="ssm", operation="PutParameter", parameters=parameters)


def check_image(aws: Aws, stack: Stack) -> str | None:
    """The image that jobs run; None if the caller may not know: the execution looks for itself.

    Raises:
        BadInput: there is no image, or the repository does not have it.
        AwsError: AWS does not say.
    """
    try:
        image = read_pointer(aws, stack)
        if image is None:
            problem = f"image: none has been pushed to the repository {stack.repository_uri}"
        elif is_in_repository(aws, stack, image.partition("@")[2]):
            return image
        else:
            problem = f"image: {image} is not in the repository {stack.repository_uri}"
    except AwsError as error:
        if error.code in DENIED:
            return None
        raise
    raise BadInput(f"{problem}; build and push one with: counterpoise image build && counterpoise image push")


def is_in_repository(aws: Aws, stack: Stack, digest: str) -> bool:
    """Whether the stack's repository holds an image with this digest; raises AwsError."""
    try:
        aws.call("ecr", "DescribeImages", repositoryName=stack.repository_name, imageIds=[{"imageDigest": digest}])
    except AwsError as error:
        if error.code == "ImageNotFoundException":
            return False
        raise
    return True
