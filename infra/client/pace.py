"""Looking at something again and again: how often, for how long, and over which errors of AWS."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from infra.client.errors import AwsError, TimedOut

T = TypeVar("T")

LONGEST_JOB_SECONDS = 28 * 24 * 3600
"""What SageMaker allows a training job at most: the default time-out of a wait for one."""
PATIENCE_SECONDS = 300
"""How long AWS may be unreachable or throttling before a wait gives up; a home router restarts in three minutes."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How often to look, and how long to wait for what is looked for."""

    poll_seconds: float
    timeout_seconds: float


def looks(look: Callable[[], T], pace: Pace, subject: str) -> Iterator[T]:
    """What `look` returns, again and again; errors of AWS that may pass by themselves are waited out.

    Raises:
        TimedOut: the time is up; `subject` is what was waited for.
        AwsError: one that does not pass.
    """
    started = answered = time.monotonic()
    while True:
        try:
            seen = look()
        except AwsError as error:
            # DescribeExecution may lag behind StartExecution (API reference); what is looked at here is known to exist.
            may_pass = error.is_transient or error.code == "ExecutionDoesNotExist"
            if not may_pass or time.monotonic() - answered > PATIENCE_SECONDS:
                raise
        else:
            answered = time.monotonic()
            yield seen
        left_seconds = pace.timeout_seconds - (time.monotonic() - started)
        if left_seconds <= 0:
            raise TimedOut(f"{subject} after {pace.timeout_seconds:g} s")
        time.sleep(min(pace.poll_seconds, left_seconds))
