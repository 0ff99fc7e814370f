"""Which jobs an execution runs: the arms of its mode, and for each arm compositions and attempts, in JSONata.

`$job` is the current job: arm and letter, composition (0 is instance_groups, then the fallbacks) and its groups,
attempt, the redrive it was planned in, num_tries of this composition and num_waits before its creation.
"""

from infra.workflow.jsonata import Code, Value, block, literal, merged
from infra.workflow.naming import ARM_LETTERS, ATTEMPTS_PER_RUN
from training.contract.instance_types import ACCELERATED_TYPE_PATTERN

MAX_TRIES = 2
"""How often a composition is tried that AWS has no capacity for."""

CAPACITY_WAITS = 5
"""Capacity changes within minutes: the wait before the second try is as long as the fifth one of a throttled call."""

MAX_WAITS = 10
"""How often the creation of one job is repeated after throttling: with waits of up to five minutes, half an hour."""

HAS_ACCELERATOR = f"/{ACCELERATED_TYPE_PATTERN}/"
REDRIVE = "$max([0, $states.context.Execution.RedriveCount])"
NUM_COMPOSITIONS = "(1 + $count($run.fallback_instance_groups))"


def arms() -> str:
    """The arms of the run's mode, in order."""
    single, first, second = ({"name": name, "letter": letter} for name, letter in ARM_LETTERS.items())
    return f'$run.mode = "compare" ? {literal([first, second])} : {literal([single])}'


def is_arm_left() -> str:
    """Whether an arm of this execution has not finished yet."""
    return "$count($keys($finished)) < $count($arms)"


def first_job() -> Value:
    """The first job of the next arm, with the composition that the arm before it ended with: both compare alike."""
    job: dict[str, Value] = {
        "arm": Code("$arm.name"),
        "letter": Code("$arm.letter"),
        **_planned("$job.composition", "$arm.name"),
        "attempt": Code(f"{REDRIVE} * {ATTEMPTS_PER_RUN} + 1"),
    }
    return Code(block(arm="$arms[$count($keys($finished))]", result=literal(job)))


def next_job(composition: str = "$job.composition") -> Value:
    """The current arm again under a new name, with the first try of a composition."""
    job: dict[str, Value] = {**_planned(composition, "$job.arm"), "attempt": Code(_next_attempt())}
    return Code(merged("$job", literal(job)))


def same_composition_again() -> Value:
    """The current composition once more under a new name, after a wait."""
    changes: dict[str, Value] = {
        "attempt": Code(_next_attempt()),
        "redrive": Code(REDRIVE),
        "num_tries": Code("$job.num_tries + 1"),
        "num_waits": Code(f"$max([$job.num_waits + 1, {CAPACITY_WAITS}])"),
        "is_name_taken": False,
        "planned_at": Code("$millis()"),
    }
    return Code(merged("$job", literal(changes)))


def is_attempt_left() -> str:
    """Whether the arm may have another job before its names run into those of the next redrive."""
    return f"{_next_attempt()} <= ({REDRIVE} + 1) * {ATTEMPTS_PER_RUN}"


def is_redriven() -> str:
    """Whether the execution was redriven since the current job was planned: then its stop was not a user's."""
    return f"{REDRIVE} > $job.redrive"


def _next_attempt() -> str:
    return f"$max([$job.attempt, {REDRIVE} * {ATTEMPTS_PER_RUN}]) + 1"


def _planned(composition: str, arm: str) -> dict[str, Value]:
    return {
        "composition": Code(composition),
        "groups": Code(_groups(composition, arm)),
        "redrive": Code(REDRIVE),
        "num_tries": 1,
        "num_waits": 0,
        "is_name_taken": False,
        "planned_at": Code("$millis()"),
    }


def _groups(composition: str, arm: str) -> str:
    """The groups of an arm: those with accelerators for the baseline, else all of the composition."""
    return block(
        fallbacks="$run.fallback_instance_groups",
        chosen=f"{composition} = 0 ? $run.instance_groups : $fallbacks[{composition} - 1]",
        result=f'[{arm} = "baseline" ? $chosen[$contains(instance_type, {HAS_ACCELERATOR})] : $chosen]',
    )
