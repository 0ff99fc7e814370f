"""Names of executions: what Step Functions takes is kept, all else is mapped to what it takes, and never two to one."""

import re

from hypothesis import given
from hypothesis import strategies as st

from infra.client.names import MAX_CHARACTERS, execution_name, possible_names

ALLOWED = re.compile(r"[A-Za-z0-9_-]{1,80}")


@given(st.text(min_size=1, max_size=120))
def test_every_name_is_mapped_to_one_that_step_functions_takes_and_logs(wanted: str) -> None:
    name = execution_name(wanted)
    assert ALLOWED.fullmatch(name)
    assert name == execution_name(wanted)
    assert name in possible_names(wanted)


@given(st.sets(st.text(alphabet="aä.-_ /", min_size=1, max_size=MAX_CHARACTERS + 20), min_size=2, max_size=30))
def test_two_names_stay_two(names: set[str]) -> None:
    assert len({execution_name(name) for name in names}) == len(names)


def test_a_name_that_can_be_kept_is_kept() -> None:
    for name in ("nightly", "a" * MAX_CHARACTERS, "4f2c1e9-run_7"):
        assert execution_name(name) == name


def test_an_execution_started_elsewhere_is_found_under_its_own_name() -> None:
    assert possible_names("v1.2")[0] == "v1.2"
    assert possible_names("a b") == [execution_name("a b")]
