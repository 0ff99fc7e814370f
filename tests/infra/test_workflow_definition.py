"""The definitions of both state machines: valid, bounded, and with a way out of everything."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.workflow.definition import build_definition
from infra.workflow.stop import build_stop_definition
from tests.infra.workflow_inputs import SETTINGS

ROOT = Path(__file__).resolve().parents[2]
VALIDATOR = ROOT / "node_modules" / ".bin" / "asl-validator"
MAX_DEFINITION_BYTES = 1_048_576
READS = {"ssm:getParameter", "ecr:describeImages", "sagemaker:describeTrainingJob", "s3:putObject"}
MACHINES = {"workflow": build_definition(SETTINGS), "stop": build_stop_definition(SETTINGS)}


def states_of(definition: Any) -> Iterator[tuple[str, Any]]:
    for name, state in definition["States"].items():
        yield name, state
        if "ItemProcessor" in state:
            yield from states_of(state["ItemProcessor"])


def tasks_of(definition: Any) -> list[tuple[str, Any]]:
    return [(name, state) for name, state in states_of(definition) if state["Type"] == "Task"]


machines = pytest.mark.parametrize("machine", MACHINES)


@machines
def test_the_definition_is_valid_amazon_states_language(machine: str, tmp_path: Path) -> None:
    file = tmp_path / "definition.json"
    file.write_text(json.dumps(MACHINES[machine]))
    node = Path(sys.prefix) / "bin" / "node"
    ended = subprocess.run(
        [node, VALIDATOR.resolve(), "--json-path", file], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@machines
def test_the_definition_is_far_below_the_limit_of_its_size(machine: str) -> None:
    assert len(json.dumps(MACHINES[machine]).encode()) < MAX_DEFINITION_BYTES / 4


@machines
def test_every_task_has_a_time_limit_and_a_way_out_of_every_error(machine: str) -> None:
    for name, task in tasks_of(MACHINES[machine]):
        assert 0 < task["TimeoutSeconds"] <= 60, name
        assert task["Catch"][-1]["ErrorEquals"] == ["States.ALL"], name
        assert task["Resource"].startswith("arn:aws:states:::aws-sdk:"), name


@machines
def test_repeated_calls_wait_longer_each_time_up_to_a_limit_and_not_together(machine: str) -> None:
    for name, task in tasks_of(MACHINES[machine]):
        for retrier in task["Retry"]:
            assert retrier["JitterStrategy"] == "FULL", name
            assert retrier["BackoffRate"] > 1, name
            assert retrier["MaxDelaySeconds"] <= 300, name
            assert retrier["MaxAttempts"] <= 12, name


@machines
def test_what_changes_something_is_repeated_only_after_throttling(machine: str) -> None:
    for name, task in tasks_of(MACHINES[machine]):
        errors = {error for retrier in task["Retry"] for error in retrier["ErrorEquals"]}
        if task["Resource"].rpartition("aws-sdk:")[2] not in READS:
            assert errors == {"SageMaker.ThrottlingException"}, name
        assert "States.ALL" not in errors, name
        assert "States.TaskFailed" not in errors, name


@machines
def test_machines_end_by_themselves(machine: str) -> None:
    assert MACHINES[machine]["TimeoutSeconds"] > 0
    assert MACHINES[machine]["QueryLanguage"] == "JSONata"


def test_a_person_can_read_the_graph() -> None:
    names = [name for name, _ in states_of(MACHINES["workflow"])]
    assert len(names) <= 22
    assert len(names) == len(set(names))


def test_the_definition_is_a_function_of_its_settings() -> None:
    assert build_definition(SETTINGS) == build_definition(SETTINGS)


@machines
def test_nothing_of_the_emulators_gaps_is_used(machine: str) -> None:
    """MiniStack ignores Output on Succeed and Parallel, and takes no expression for TimeoutSeconds."""
    for name, state in states_of(MACHINES[machine]):
        assert state["Type"] != "Parallel", name
        assert state["Type"] != "Succeed" or set(state) == {"Type"}, name
        assert isinstance(state.get("TimeoutSeconds", 1), int), name
