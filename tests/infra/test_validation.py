"""What the state machine says of an input is what the contract says of it, line for line, and so are the defaults."""

from collections.abc import Iterator
from random import Random
from typing import Any

import jsonata
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.workflow.validation import checked_input
from tests.infra.bad_inputs import REFUSED
from tests.infra.execution_inputs import changed_input, valid_input
from tests.infra.reference_engine import ReferenceEngine
from training.contract import ContractError, RunConfig

MOST_LEVELS = 100  # where Step Functions ends an evaluation
SEEDS = st.integers(0, 2**64 - 1)


@pytest.fixture(scope="module")
def reference() -> Iterator[ReferenceEngine]:
    with ReferenceEngine() as engine:
        yield engine


@pytest.fixture(scope="module")
def port() -> jsonata.Jsonata:
    """The expression in the engine of the embedded AWS."""
    return jsonata.Jsonata.jsonata(checked_input())


def contracts_answer(value: Any) -> dict[str, Any]:
    try:
        return {"problems": [], "run": RunConfig.parse(value).model_dump(mode="json")}
    except ContractError as error:
        return {"problems": error.problems, "run": {}}


def ports_answer(port: jsonata.Jsonata, value: Any) -> Any:
    null = jsonata.utils.Utils.NULL_VALUE  # the engine takes None for no value at all
    return port.evaluate(None, {"states": {"input": null if value is None else value}})


@settings(max_examples=500)
@given(seed=SEEDS)
def test_valid_inputs_get_their_defaults(reference: ReferenceEngine, seed: int) -> None:
    value = valid_input(Random(seed))
    expected = contracts_answer(value)
    assert expected["problems"] == []
    assert reference.evaluate(checked_input(), states={"input": value}) == expected


@settings(max_examples=700)
@given(seed=SEEDS)
def test_changed_inputs_get_the_contracts_lines(reference: ReferenceEngine, seed: int) -> None:
    value = changed_input(Random(seed))
    assert reference.evaluate(checked_input(), states={"input": value}) == contracts_answer(value)


@settings(max_examples=30)
@given(seed=SEEDS)
def test_the_embedded_engine_says_the_same(port: jsonata.Jsonata, seed: int) -> None:
    for value in (valid_input(Random(seed)), changed_input(Random(seed))):
        assert ports_answer(port, value) == contracts_answer(value)


@pytest.mark.parametrize("kind", REFUSED)
def test_a_bad_input_gets_its_lines(reference: ReferenceEngine, port: jsonata.Jsonata, kind: str) -> None:
    value, lines = REFUSED[kind]
    expected = {"problems": lines, "run": {}}
    assert contracts_answer(value) == expected
    assert reference.evaluate(checked_input(), states={"input": value}) == expected
    assert ports_answer(port, value) == expected


def test_one_fallback_stays_a_list_in_a_list(reference: ReferenceEngine, port: jsonata.Jsonata) -> None:
    group = {"name": "a", "instance_type": "ml.g5.xlarge"}
    value = {"instance_groups": [group], "fallback_instance_groups": [[group]], "channels": []}
    whole = {**group, "instance_count": 1}
    for answer in (reference.evaluate(checked_input(), states={"input": value}), ports_answer(port, value)):
        assert answer["run"]["instance_groups"] == [whole]
        assert answer["run"]["fallback_instance_groups"] == [[whole]]
        assert answer["run"]["channels"] == []


@pytest.mark.parametrize("kind", REFUSED)
def test_an_evaluation_nests_less_deep_than_step_functions_allows(reference: ReferenceEngine, kind: str) -> None:
    assert reference.depth(checked_input(), states={"input": REFUSED[kind][0]}) < MOST_LEVELS * 3 / 4


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ({f"k{index}": {} for index in range(20_000)}, "input: 20000 unknown settings; see docs/settings.md"),
        (
            {"tags": {f"k{index}": "" for index in range(20_000)}},
            "tags: 20000 tags; allowed: an object of at most 40 tags; remove or merge tags",
        ),
        (
            {"instance_groups": [{}] * 50_000},
            "instance_groups: 50000 groups; allowed: 1 to 5 groups; remove or merge groups",
        ),
        (
            {"training": {"model_arguments": {f"k{index}": [0] * 500 for index in range(200)}}},
            "training.model_arguments: over 2500 characters as JSON; allowed: 2500; shorten it",
        ),
        (
            {"training": {"model": "aB1/" * 60_000}},
            (
                f"training.model: '{'aB1/' * 14}... has the wrong form; allowed: a timm model name, 1 to 256"
                " characters, such as vit_base_patch16_224; correct it"
            ),
        ),
    ],
)
def test_a_huge_wrong_input_gets_one_line(reference: ReferenceEngine, value: Any, line: str) -> None:
    expected = {"problems": [line], "run": {}}
    assert contracts_answer(value) == expected
    assert reference.evaluate(checked_input(), states={"input": value}) == expected


def test_the_expression_fits_between_step_functions_brackets() -> None:
    text = checked_input("$states.context.Execution.Input")
    assert "$input := $states.context.Execution.Input;" in text
    assert "%}" not in text
    assert "$eval" not in text
    assert "<<" not in text
    assert text.isascii()
