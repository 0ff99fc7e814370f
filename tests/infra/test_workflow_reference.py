"""Every expression of the workflow, as executions meet it, gives the same in the reference implementation of JSONata.

The tests' own evaluator is a port. AWS documents the reference, version 2.0.6, as what Step Functions follows.
"""

import hashlib
import json
from typing import Any

import pytest

from infra.workflow.stop import build_stop_definition
from tests.infra import machine
from tests.infra.fake_aws import CAPACITY, QUOTA, REFUSED, THROTTLED, FakeAws, Job
from tests.infra.machine import EXECUTION_ARN, Clock, Json, Machine, ServiceError
from tests.infra.reference_engine import ReferenceEngine
from tests.infra.workflow_inputs import G4DN, KEY_ARN, SETTINGS, execute

MAX_DEPTH = 100
"""About where Step Functions ends an evaluation, as others have measured."""

NO_CAPACITY = Job(status="Failed", reason=CAPACITY)
FLAGS = {
    "kms_key_arn": KEY_ARN,
    "subnet_ids": ("subnet-0a1b2c3d",),
    "security_group_ids": ("sg-0a1b2c3d",),
    "tags": {"team": "vision"},
}
RICH_INPUT = {
    "mode": "compare",
    "fallback_instance_groups": [G4DN],
    "training": {"model_arguments": {"depth": 2, "no": None}, "learning_rate": 0.00001, "head_group": "cpu"},
    "channels": [{"name": "a", "s3_uri": "s3://data/a", "instance_groups": ["cpu"]}],
    "spot": True,
    "max_wait_seconds": 7200,
    "tags": {"run": "7"},
}
NAMES = ["run-1", "My Run"]
HASHES = {EXECUTION_ARN + name: hashlib.sha256((EXECUTION_ARN + name).encode()).hexdigest() for name in NAMES}

Evaluation = tuple[str, dict[str, Json], Json]


@pytest.fixture(scope="module")
def evaluations() -> list[Evaluation]:
    """Every evaluation of executions that together take every way through the workflow; none that throws dice."""
    seen: dict[str, Evaluation] = {}
    evaluate = machine.evaluate

    def recording(text: str, bindings: dict[str, Json], clock: Clock | None = None) -> Json:
        now = (clock or Clock()).now
        key = json.dumps([text, bindings, now])
        value = evaluate(text, bindings, clock)
        if "$random" not in text:
            seen[key] = (with_functions(text, now), json.loads(key)[1], value)
        return value

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "evaluate", recording)
        executions()
        stop()
    return list(seen.values())


def with_functions(text: str, now: int) -> str:
    """The expression after what Step Functions adds to JSONata, or what has another value at another time."""
    hashes = f"$hash := function($source, $algorithm) {{ $lookup({json.dumps(HASHES)}, $source) }};"
    return f"({hashes} $millis := function() {{ {now} }}; {text})"


def executions() -> None:
    execute({})
    execute(RICH_INPUT, QUOTA, Job(), NO_CAPACITY, NO_CAPACITY, changes=FLAGS)
    execute({"mode": "compare"}, Job(metrics={"images_per_second": 10.25}), Job(metrics={"images_per_second": 1e-05}))
    execute({"fallback_instance_groups": [G4DN, G4DN]}, QUOTA, Job(age_seconds=10**7), THROTTLED, Job(seconds=900))
    execute({}, Job(is_answer_lost=True))
    execute({}, REFUSED)
    execute(
        {"channels": [{"name": "a", "s3_uri": "s3://data/a"}]}, Job(status="Failed", reason="ClientError: S3: no\nx")
    )
    execute({}, Job(status="Stopped", secondary="MaxRuntimeExceeded"))
    execute({"bogus": 1, "training": {"steps": 0}})
    execute({"max_runtime_seconds": 3601}, changes={"max_runtime_limit_seconds": 3600})
    execute({"training": {"dataset": "image_folder"}})
    execute({}, image="none")
    execute({}, errors={"s3:putObject": [ServiceError("S3.NoSuchBucketException", "no such bucket")]})


def stop() -> None:
    aws = FakeAws(Clock())
    aws.errors = {"sagemaker:stopTrainingJob": [THROTTLED, REFUSED]}
    detail: dict[str, Any] = {"name": "My Run", "executionArn": f"{EXECUTION_ARN}My Run", "redriveCount": 1}
    Machine(build_stop_definition(SETTINGS), aws, aws.clock).run(detail, "stop")


def test_the_reference_implementation_gives_the_same(evaluations: list[Evaluation]) -> None:
    assert len({text for text, _, _ in evaluations}) > 60
    with ReferenceEngine() as reference:
        for text, bindings, expected in evaluations:
            assert reference.evaluate(text, **bindings) == expected, text


def test_no_expression_is_too_deep_for_step_functions(evaluations: list[Evaluation]) -> None:
    with ReferenceEngine() as reference:
        depths = {text: reference.depth(text, **bindings) for text, bindings, _ in evaluations}
    assert {text: depth for text, depth in depths.items() if depth >= MAX_DEPTH * 0.8} == {}
