"""Executions of the stack's state machine: what one is, and how to find it by name, by ARN or as the latest."""

import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from infra.client.aws import Aws
from infra.client.errors import AwsError, BadInput
from infra.client.names import possible_names
from infra.client.stack import Stack

_ARN = re.compile(r"arn:[a-z-]+:states:[a-z0-9-]+:\d{12}:execution:[^:]+:[^:]+")
_CONSOLES = {"aws-cn": "console.amazonaws.cn", "aws-us-gov": "console.amazonaws-us-gov.com"}


@dataclass(frozen=True, kw_only=True)
class Execution:
    """One execution as Step Functions describes it; `output` is the decoded one of a success."""

    arn: str
    name: str
    status: str
    started_at: datetime
    input: str
    stopped_at: datetime | None = None
    output: dict[str, Any] | None = None
    error: str | None = None
    cause: str | None = None

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self.status == "RUNNING"

    @property
    def has_succeeded(self) -> bool:
        """Whether it ended well."""
        return self.status == "SUCCEEDED"

    @property
    def failure(self) -> str:
        """How it ended, if not well, and why; a refused input has a line for each problem."""
        reason = self.cause or self.error or "no cause is given"
        return f"execution {self.name} {self.status.lower().replace('_', ' ')}: {reason.strip()}"

    @property
    def console_link(self) -> str:
        """Its page in the AWS console."""
        return console_link(self.arn)


def console_link(execution_arn: str) -> str:
    """The page of an execution in the AWS console."""
    _, partition, _, region, *_ = execution_arn.split(":")
    host = _CONSOLES.get(partition, "console.aws.amazon.com")
    return f"https://{region}.{host}/states/home?region={region}#/v2/executions/details/{execution_arn}"


def execution_arn(stack: Stack, name: str) -> str:
    """The ARN of the execution of this name."""
    return f"{stack.state_machine_arn.replace(':stateMachine:', ':execution:', 1)}:{name}"


def describe(aws: Aws, arn: str) -> Execution:
    """The execution as it is now; raises AwsError."""
    answer = aws.call("stepfunctions", "DescribeExecution", executionArn=arn)
    return Execution(
        arn=arn,
        name=answer["name"],
        status=answer["status"],
        started_at=answer["startDate"],
        stopped_at=answer.get("stopDate"),
        input=answer.get("input") or "{}",
        output=json.loads(answer["output"]) if answer.get("output") else None,
        error=answer.get("error"),
        cause=answer.get("cause"),
    )


def find_execution(aws: Aws, stack: Stack, reference: str | None) -> Execution:
    """The execution that a user means: by name or ARN, or the latest of the stack.

    Raises:
        BadInput: there is none.
        AwsError: AWS does not say.
    """
    if reference is None:
        return describe(aws, _latest(aws, stack))
    names = possible_names(reference)
    arns = [reference] if _ARN.fullmatch(reference) else [execution_arn(stack, name) for name in names]
    for arn in arns:
        try:
            return describe(aws, arn)
        except AwsError as error:
            if error.code not in ("ExecutionDoesNotExist", "InvalidArn"):
                raise
    raise BadInput(f"stack {stack.name} has no execution {reference!r}; those there are: `counterpoise list`")


def _latest(aws: Aws, stack: Stack) -> str:
    answer = aws.call("stepfunctions", "ListExecutions", stateMachineArn=stack.state_machine_arn, maxResults=100)
    if not answer["executions"]:
        raise BadInput(f"stack {stack.name} has no execution yet; start one: `counterpoise start`")
    latest = max(answer["executions"], key=lambda execution: execution["startDate"])
    return str(latest["executionArn"])
