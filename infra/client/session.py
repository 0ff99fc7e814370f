"""What every command starts from: the screen, and AWS and the stack as soon as one of them is needed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from infra.client.aws import Aws
from infra.client.screen import Screen
from infra.client.stack import Stack, find_stack


@dataclass(frozen=True, kw_only=True)
class Session:
    """One call of the command; what can be refused without AWS is refused before `aws` is first used."""

    screen: Screen
    stack_name: str
    connect: Callable[[], Aws]

    @cached_property
    def aws(self) -> Aws:
        """AWS, connected once; raises AwsError."""
        return self.connect()

    @cached_property
    def stack(self) -> Stack:
        """The deployed stack, looked up once; raises AwsError."""
        return find_stack(self.aws, self.stack_name)
