"""The deployed stack, found by its name through CloudFormation."""

from dataclasses import dataclass

from infra.client.aws import Aws
from infra.client.errors import AwsError

DEFAULT_STACK = "counterpoise"
USABLE_STATES = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "IMPORT_COMPLETE")


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Where the parts of the stack are: ARNs, names and the address of its repository."""

    name: str
    state_machine_arn: str
    repository_uri: str
    repository_name: str
    bucket_name: str
    image_parameter_name: str
    training_role_arn: str

    @property
    def registry(self) -> str:
        """The host of the repository, which an engine logs in to."""
        return self.repository_uri.partition("/")[0]

    @property
    def account(self) -> str:
        """Number of the account that the stack is in."""
        return self.state_machine_arn.split(":")[4]


_OUTPUTS = {
    "StateMachineArn": "state_machine_arn",
    "RepositoryUri": "repository_uri",
    "RepositoryName": "repository_name",
    "BucketName": "bucket_name",
    "ImageParameterName": "image_parameter_name",
    "TrainingRoleArn": "training_role_arn",
}


def find_stack(aws: Aws, name: str) -> Stack:
    """The stack of this name.

    Raises:
        AwsError: it is not deployed, still being deployed, or none of ours.
    """
    try:
        description = aws.call("cloudformation", "DescribeStacks", StackName=name)["Stacks"][0]
    except AwsError as error:
        # CloudFormation has no code of its own for a stack that does not exist.
        if error.code == "ValidationError" and "does not exist" in str(error):
            raise AwsError(_not_deployed(name, aws.region), "StackDoesNotExist") from error
        raise
    status = description["StackStatus"]
    if status in ("DELETE_COMPLETE", "DELETE_IN_PROGRESS", "REVIEW_IN_PROGRESS"):
        raise AwsError(_not_deployed(name, aws.region), "StackDoesNotExist")
    outputs = {output["OutputKey"]: output["OutputValue"] for output in description.get("Outputs", [])}
    missing = [key for key in _OUTPUTS if key not in outputs]
    if not missing:
        return Stack(name=name, **{attribute: outputs[key] for key, attribute in _OUTPUTS.items()})
    if status in USABLE_STATES:
        raise AwsError(f"stack {name} is none of Counterpoise: it has no output {missing[0]}; name yours: --stack NAME")
    raise AwsError(f"stack {name} is not deployed completely ({status}); deploy it again: `make deploy`")


def _not_deployed(name: str, region: str) -> str:
    return (
        f"stack {name} is not deployed in {region}; deploy it: `make deploy`; another one: --stack NAME, --region NAME"
    )
