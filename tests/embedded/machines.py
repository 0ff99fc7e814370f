"""State machines of the tests: small ones, each for one behaviour of Step Functions."""

import json
from dataclasses import dataclass
from typing import Any

from infra.local.aws.settings import ACCOUNT, REGION
from tests.embedded.clients import Clients, until
from tests.embedded.jobs import trust

State = dict[str, Any]
TASK = "arn:aws:states:::aws-sdk"


def machine(states: dict[str, State], **fields: Any) -> str:
    """A JSONata definition that starts at its first state."""
    return json.dumps({"QueryLanguage": "JSONata", "StartAt": next(iter(states)), "States": states, **fields})


def statement(actions: list[str], resource: str = "*", **fields: Any) -> dict[str, Any]:
    """One statement of a policy."""
    return {"Effect": "Allow", "Action": actions, "Resource": resource, **fields}


@dataclass(frozen=True)
class Machines:
    """Creates machines and follows their executions."""

    clients: Clients
    role_arn: str

    @classmethod
    def prepare(cls, clients: Clients) -> "Machines":
        """Creates the role of the machines, which may make every call that the tests let them make."""
        return cls(clients, cls.create_role(clients, "machine-role", [statement(["*"])]))

    @staticmethod
    def create_role(clients: Clients, name: str, statements: list[dict[str, Any]]) -> str:
        """A role for Step Functions with one inline policy."""
        role = clients.iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust("states.amazonaws.com"))
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        clients.iam.put_role_policy(RoleName=name, PolicyName="calls", PolicyDocument=policy)
        return str(role["Role"]["Arn"])

    def create(self, name: str, definition: str, role_arn: str | None = None) -> str:
        """The ARN of a new machine."""
        created = self.clients.sfn.create_state_machine(
            name=name, definition=definition, roleArn=role_arn or self.role_arn
        )
        return str(created["stateMachineArn"])

    def start(self, name: str, states: dict[str, State], execution_input: Any = None, **fields: Any) -> str:
        """Creates a machine, starts its execution `first`, and returns the execution's ARN."""
        arn = self.create(name, machine(states, **fields))
        text = json.dumps({} if execution_input is None else execution_input)
        return str(self.clients.sfn.start_execution(stateMachineArn=arn, name="first", input=text)["executionArn"])

    def run(self, name: str, states: dict[str, State], execution_input: Any = None, **fields: Any) -> dict[str, Any]:
        """The description of such an execution after its end."""
        return self.ended(self.start(name, states, execution_input, **fields))

    def ended(self, execution_arn: str) -> dict[str, Any]:
        """The description of an execution after its end."""
        return until(lambda: self._unless_running(execution_arn), f"the end of {execution_arn}")

    def history(self, execution_arn: str) -> list[dict[str, Any]]:
        """All events."""
        pages = self.clients.sfn.get_paginator("get_execution_history").paginate(executionArn=execution_arn)
        return [event for page in pages for event in page["events"]]

    def kinds(self, execution_arn: str) -> list[str]:
        """The types of all events."""
        return [event["type"] for event in self.history(execution_arn)]

    def entered(self, execution_arn: str, state: str) -> None:
        """Waits until an execution is in a state."""
        until(lambda: state in self.states(execution_arn), f"{execution_arn} in {state}")

    def states(self, execution_arn: str) -> list[str]:
        """The names of the states in the order in which they were entered."""
        return [
            event["stateEnteredEventDetails"]["name"]
            for event in self.history(execution_arn)
            if "stateEnteredEventDetails" in event
        ]

    def _unless_running(self, execution_arn: str) -> dict[str, Any] | None:
        description: dict[str, Any] = self.clients.sfn.describe_execution(executionArn=execution_arn)
        return None if description["status"] == "RUNNING" else description


def execution_arn(machine_name: str, execution: str = "first") -> str:
    """The ARN of an execution."""
    return f"arn:aws:states:{REGION}:{ACCOUNT}:execution:{machine_name}:{execution}"
