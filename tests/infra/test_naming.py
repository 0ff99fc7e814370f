"""Names of training jobs: valid and different for every execution, arm and attempt, the same in Python and JSONata."""

import json
import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.workflow.naming import ARM_LETTERS, ATTEMPTS_PER_RUN, job_name, job_stem, name_expression, stem_expression
from tests.infra.machine import EXECUTION_ARN, evaluate

CASES = Path(__file__).resolve().parents[1] / "cases" / "names" / "job_names.jsonl"
VALID = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
LONGEST_PREFIX = "counterpoise1234"
# What StartExecution takes besides letters and digits; it refuses blanks, brackets, wildcards and "#%\^|~`$&,;:/.
CHARACTERS = "abcXYZ019._-+=@!'()éñüÅßİıК日本語🚀"
EXAMPLES = settings(derandomize=True, deadline=None, max_examples=300, database=None)

execution_names = st.text(st.sampled_from(CHARACTERS), min_size=1, max_size=80)


def generated_names(count: int) -> list[str]:
    """Different execution names of up to 80 characters, many of which begin alike."""
    generator = random.Random(1)
    names = set[str]()
    while len(names) < count:
        length = generator.choice([1, 8, 40, 80])
        name = "".join(generator.choices(CHARACTERS, k=length))
        names.add(name)
        names.add(("basic-pipeline-step-train-vit-on-gpu-" * 3)[: 80 - 5] + f"{generator.randrange(99_999):05}")
    return sorted(names)[:count]


@pytest.mark.parametrize("prefix", ["a", "counterpoise", LONGEST_PREFIX])
def test_ten_thousand_executions_give_valid_names_that_never_repeat(prefix: str) -> None:
    seen = set[str]()
    for name in generated_names(10_000):
        stem = job_stem(prefix, EXECUTION_ARN + name)
        job_names = [job_name(stem, arm, attempt) for arm in ARM_LETTERS for attempt in (1, ATTEMPTS_PER_RUN, 9999)]
        assert all(VALID.fullmatch(job) and job.startswith(f"{prefix}-") for job in job_names), name
        assert seen.isdisjoint(job_names)
        seen.update(job_names)
    assert len(seen) == 10_000 * 9
    assert len({job.lower() for job in seen}) == len(seen)


@EXAMPLES
@given(execution_names, st.sampled_from(["a", "counterpoise", LONGEST_PREFIX]))
def test_the_workflow_names_jobs_as_python_does(name: str, prefix: str) -> None:
    arn = EXECUTION_ARN + name
    stem = evaluate(stem_expression(prefix, name="$name", arn="$arn"), {"name": name, "arn": arn})
    assert stem == job_stem(prefix, arn)
    bindings = {"stem": stem, "letter": "h", "attempt": 17}
    assert evaluate(name_expression("$stem", "$letter", "$attempt"), bindings) == job_name(stem, "heterogeneous", 17)


@pytest.mark.parametrize("line", CASES.read_text().splitlines())
def test_recorded_names(line: str) -> None:
    case = json.loads(line)
    stem = job_stem("counterpoise", EXECUTION_ARN + case["in"])
    names = [job_name(stem, "train", attempt) for attempt in range(1, case.get("attempts", 1) + 1)]
    assert len(set(names)) == len(names)
    assert all(VALID.fullmatch(name) for name in names)


def test_a_name_can_be_read() -> None:
    uuid = "1234abcd-12ab-34cd-56ef-1234567890ab"
    assert job_stem("counterpoise", EXECUTION_ARN + uuid).startswith("counterpoise-1234abcd-12ab-34cd-56ef-12345")
    assert job_stem("counterpoise", EXECUTION_ARN + "My Run.v2").startswith("counterpoise-my-run-v2-")


def test_executions_whose_names_differ_only_in_what_is_left_out_differ() -> None:
    stems = {job_stem("counterpoise", EXECUTION_ARN + name) for name in ("run.1", "run_1", "RUN-1", "日本", "語", "_")}
    assert len(stems) == 6
