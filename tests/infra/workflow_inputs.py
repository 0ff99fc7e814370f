"""One deployed workflow and inputs of executions, as the tests of the workflow use them."""

from dataclasses import fields, replace
from functools import cache
from typing import Any

from infra.workflow.definition import build_definition
from infra.workflow.settings import JobSecurity, WorkflowSettings
from tests.infra.fake_aws import IMAGE, FakeAws, Job
from tests.infra.machine import Clock, Ended, Machine, ServiceError

KEY_ARN = "arn:aws:kms:us-east-1:123456789012:key/0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"
SETTINGS = WorkflowSettings(
    name="counterpoise",
    partition="aws",
    region="us-east-1",
    bucket_name="b-1",
    training_role_arn="arn:aws:iam::123456789012:role/counterpoise-training",
    image_parameter_name="/counterpoise/image",
    repository_name="counterpoise",
    repository_uri=IMAGE.partition("@")[0],
    prices_usd_per_hour={"us-east-1": {"ml.g5.xlarge": 1.408, "ml.c5.4xlarge": 0.816}},
    prices_read="2026-09-27",
)
G4DN = [{"name": "gpu", "instance_type": "ml.g4dn.xlarge"}, {"name": "cpu", "instance_type": "ml.m5.xlarge"}]


def changed(changes: dict[str, Any]) -> WorkflowSettings:
    """SETTINGS with other values, also of their security."""
    security = {name: changes[name] for name in changes.keys() & {field.name for field in fields(JobSecurity)}}
    others = {name: value for name, value in changes.items() if name not in security}
    return replace(SETTINGS, **others, security=JobSecurity(**security))


@cache
def definition() -> Any:
    """The definition of SETTINGS."""
    return build_definition(SETTINGS)


def execute(
    value: Any,
    *script: Job | ServiceError,
    name: str = "run-1",
    image: str = IMAGE,
    errors: dict[str, list[ServiceError]] | None = None,
    changes: dict[str, Any] | None = None,
) -> tuple[Ended, FakeAws]:
    """One execution of the workflow; `script` says what each created job does, `changes` alters the deploy."""
    clock = Clock()
    aws = FakeAws(clock, *script, image=image)
    aws.errors = errors or {}
    chosen = build_definition(changed(changes)) if changes else definition()
    return Machine(chosen, aws, clock).run(value, name), aws


def request_for(value: Any, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """The first CreateTrainingJob request of an execution."""
    ended, aws = execute(value, changes=changes)
    assert ended.status == "SUCCEEDED", ended.cause
    return aws.requests[0]
