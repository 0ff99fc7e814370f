"""Names of training jobs: valid, readable, and never the same twice, in Python and in JSONata alike."""

import hashlib
import re

from infra.workflow.jsonata import block, literal

ARM_LETTERS = {"train": "t", "baseline": "b", "heterogeneous": "h"}
"""What an arm is called in the names of its jobs."""

ATTEMPTS_PER_RUN = 16
"""Six compositions, each tried twice, and four names that somebody else had already. A redrive counts on from the next
multiple, so that whoever stops the jobs of a run that has ended never stops one of the run that follows."""

MAX_NAME_CHARACTERS = 63  # SageMaker's limit
MAX_PREFIX_CHARACTERS = 16
_HASH_CHARACTERS = 10
# Four digits of attempts: an execution's history is full before its 600th redrive.
_FIXED_CHARACTERS = len("-") + len("-") + _HASH_CHARACTERS + len("-t9999")


def job_stem(prefix: str, execution_arn: str) -> str:
    """What the names of all jobs of an execution begin with: prefix, the execution's name as far as it goes, a hash.

    All in lower case, since SageMaker's ARNs are. `prefix` has 1 to 16 lower-case letters and digits.
    """
    name = execution_arn.rsplit(":", 1)[-1]
    digest = hashlib.sha256(execution_arn.encode()).hexdigest()[:_HASH_CHARACTERS]
    words = re.sub(r"[^a-zA-Z0-9]+", "-", name).strip("-").lower()
    readable = words[: _readable_characters(prefix)].rstrip("-")
    return "-".join(part for part in (prefix, readable, digest) if part)


def job_name(stem: str, arm: str, attempt: int) -> str:
    """The name of one job; raises KeyError for an arm that no mode has."""
    return f"{stem}-{ARM_LETTERS[arm]}{attempt}"


def stem_expression(prefix: str, *, name: str, arn: str) -> str:
    """`job_stem` in JSONata, of two expressions: an execution's name and its ARN."""
    return block(
        words=rf'$lowercase($replace($replace({name}, /[^a-zA-Z0-9]+/, "-"), /^-|-$/, ""))',
        readable=f'$replace($substring($words, 0, {_readable_characters(prefix)}), /-$/, "")',
        digest=f'$substring($hash({arn}, "SHA-256"), 0, {_HASH_CHARACTERS})',
        result=f'{literal(prefix)} & ($readable = "" ? "" : "-" & $readable) & "-" & $digest',
    )


def name_expression(stem: str, letter: str, attempt: str) -> str:
    """`job_name` in JSONata, of three expressions; the second is the arm's letter."""
    return f'{stem} & "-" & {letter} & $string({attempt})'


def _readable_characters(prefix: str) -> int:
    return MAX_NAME_CHARACTERS - len(prefix) - _FIXED_CHARACTERS
