"""How long the workflow waits: between two looks at a job, and before a call that was throttled is repeated."""

from infra.workflow.jsonata import Code

AGE_SHARE = 20
"""A young job is looked at again after a twentieth of its age, so that its end is known 5 % late at most."""

STEADY_SECONDS = 300
"""From 100 minutes on, every five minutes."""

OLD_AGE_SHARE = 200
"""Later, after half a percent of its age: at 5 days every 36 minutes. One look takes nine of the 25,000 events that an
execution may have; this makes it 658 looks in 5 days, and 1,004 in the 28 days that a job can take at most, so that
even two such jobs in one execution stay below the limit."""

MAX_RETRY_WAIT_SECONDS = 300


def poll_seconds(first_seconds: int, age_seconds: str) -> Code:
    """The wait before the next look at a job, in whole seconds, of an expression for its age in seconds."""
    growing = f"$min([{age_seconds} / {AGE_SHARE}, {STEADY_SECONDS}])"
    return Code(f"$floor($max([{first_seconds}, {growing}, {age_seconds} / {OLD_AGE_SHARE}]))")


def retry_seconds(first_seconds: int, num_waits: str) -> Code:
    """The wait before a call is repeated: any time up to a limit that doubles with every wait.

    Any time, so that executions that were throttled together do not come back together.
    """
    limit = f"$min([{MAX_RETRY_WAIT_SECONDS}, {first_seconds} * $power(2, {num_waits})])"
    return Code(f"$ceil($random() * {limit})")


def retry(first_seconds: int, *errors: str, max_attempts: int) -> list[dict[str, object]]:
    """The Retry field of a task for errors that mean throttling."""
    return [
        {
            "ErrorEquals": list(errors),
            "IntervalSeconds": first_seconds,
            "BackoffRate": 2,
            "MaxDelaySeconds": MAX_RETRY_WAIT_SECONDS,
            "MaxAttempts": max_attempts,
            "JitterStrategy": "FULL",
        }
    ]
