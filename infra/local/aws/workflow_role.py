"""What the role of a state machine may do: checked for every call of an execution, which MiniStack leaves out."""

from collections.abc import Iterator
from typing import Any

from ministack.core.responses import get_account_id, get_region

from infra.local.aws.role_policies import decision

Check = tuple[str, str, dict[str, Any]]
"""An action, the resource it is made on and what its conditions can see."""


def refusal(role_arn: str, service: str, action: str, arguments: Any) -> str | None:
    """AWS's sentence for the first right that the role lacks for a call, None if it may make the call."""
    principal = f"arn:aws:sts::{get_account_id()}:assumed-role/{role_arn.rpartition('/')[2]}/execution"
    for needed, resource, context in _checks(service, action[0].upper() + action[1:], arguments or {}):
        if decision(role_arn, principal, needed, resource, context) != "Allow":
            reason = f"because no identity-based policy allows the {needed} action"
            return f"User: {principal} is not authorized to perform: {needed} on resource: {resource} {reason}"
    return None


def _checks(service: str, operation: str, arguments: dict[str, Any]) -> Iterator[Check]:
    where = f"{get_region()}:{get_account_id()}"
    if service == "sagemaker":
        job = f"arn:aws:sagemaker:{where}:training-job/{arguments.get('TrainingJobName', '')}"
        yield f"sagemaker:{operation}", job, _tag_context(arguments)
        if operation == "CreateTrainingJob":
            yield from _checks_of_creation(job, arguments)
    elif service == "s3":
        object_arn = f"arn:aws:s3:::{arguments.get('Bucket', '')}/{arguments.get('Key', '')}"
        yield f"s3:{operation}", object_arn, {}
    elif service == "ssm":
        yield f"ssm:{operation}", f"arn:aws:ssm:{where}:parameter/{arguments.get('Name', '').lstrip('/')}", {}
    elif service == "ecr":
        yield f"ecr:{operation}", f"arn:aws:ecr:{where}:repository/{arguments.get('RepositoryName', '')}", {}
    else:
        yield f"{service}:{operation}", arguments.get("TopicArn", "*"), {}


def _checks_of_creation(job: str, arguments: dict[str, Any]) -> Iterator[Check]:
    yield "iam:PassRole", arguments.get("RoleArn", ""), {"iam:PassedToService": "sagemaker.amazonaws.com"}
    if arguments.get("Tags"):
        yield "sagemaker:AddTags", job, _tag_context(arguments)


def _tag_context(arguments: dict[str, Any]) -> dict[str, Any]:
    tags = {tag["Key"]: tag["Value"] for tag in arguments.get("Tags") or []}
    return {"aws:TagKeys": list(tags) or None, **{f"aws:RequestTag/{key}": value for key, value in tags.items()}}
