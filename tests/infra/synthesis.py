"""Synthesizes the stack in this process, once per combination of settings, and reads the template as plain data."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PINNED_NODE = Path(sys.prefix) / "bin" / "node"
os.environ.setdefault("JSII_NODE", str(PINNED_NODE))  # read when aws_cdk is imported

import aws_cdk as cdk  # noqa: E402

from infra.settings import CONTEXT_PREFIX, DeploySettings  # noqa: E402
from infra.stack import CounterpoiseStack  # noqa: E402

Template = dict[str, Any]

KEY_ARN = "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
INPUT_KEY_ARN = "arn:aws:kms:us-east-1:111122223333:key/mrk-1234abcd12ab34cd56ef1234567890ab"
COMBINATIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything": {
        "name": "other",
        "tags": {"team": "vision"},
        "max_runtime_limit_seconds": 7200,
        "image_keep_count": 5,
        "log_retention_days": 7,
        "checkpoint_expiry_days": 3,
        "old_version_expiry_days": 4,
        "output_retained": False,
        "kms_key": "create",
        "create_vpc": True,
        "inter_container_encryption": True,
        "network_isolation": True,
        "notification_email": "team@example.com",
    },
    "vpc": {"create_vpc": True},
    "existing": {
        "input_s3_uris": ["s3://pictures", "s3://archive/2026/", "s3://archive/old"],
        "input_kms_keys": [INPUT_KEY_ARN],
        "kms_key": KEY_ARN,
        "subnet_ids": ["subnet-0a1b2c3d", "subnet-0a1b2c3e"],
        "security_group_ids": ["sg-0a1b2c3d"],
    },
}


PSEUDO_PARAMETERS = {
    "AWS::Partition": "aws",
    "AWS::Region": "REGION",
    "AWS::AccountId": "ACCOUNT",
    "AWS::URLSuffix": "amazonaws.com",
}
ARN_PARTS = {3: "REGION", 4: "ACCOUNT"}


@dataclass(frozen=True)
class Synthesis:
    """One synthesized stack."""

    stack: CounterpoiseStack
    template: Template

    def resources(self, cfn_type: str) -> dict[str, dict[str, Any]]:
        """The resources of a type, by logical id without the hash."""
        return {
            readable(logical_id): resource
            for logical_id, resource in self.template["Resources"].items()
            if resource["Type"] == cfn_type
        }

    def only(self, cfn_type: str) -> dict[str, Any]:
        """The properties of the one resource of a type."""
        [resource] = self.resources(cfn_type).values()
        properties: dict[str, Any] = resource["Properties"]
        return properties


def context_of(combination: Mapping[str, Any]) -> dict[str, Any]:
    """What the CDK's command line hands to the app: the flags of cdk.json, and the settings."""
    flags: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text())["context"]
    return flags | {CONTEXT_PREFIX + name: value for name, value in combination.items()}


@cache
def synthesis(combination: str) -> Synthesis:
    """The stack of one of the COMBINATIONS."""
    with TemporaryDirectory() as assembly:
        app = cdk.App(context=context_of(COMBINATIONS[combination]), outdir=assembly)
        settings = DeploySettings.from_context(app.node.get_all_context())
        stack = CounterpoiseStack(app, settings.name, settings=settings)
        template: Template = app.synth().get_stack_by_name(settings.name).template
    return Synthesis(stack, template)


def readable(logical_id: str) -> str:
    """A logical id without the hash at its end."""
    return logical_id[:-8]


def text(value: Any) -> str:
    """A template's string as text: `${Output.Arn}/data/*` for what refers to another resource."""
    match value:
        case str():
            return value
        case {"Ref": name}:
            return PSEUDO_PARAMETERS.get(name) or f"${{{readable(name)}}}"
        case {"Fn::GetAtt": [name, attribute]}:
            return f"${{{readable(name)}.{attribute}}}"
        case {"Fn::Select": [place, {"Fn::Split": [":", {"Fn::GetAtt": [_, "Arn"]}]}]}:
            return ARN_PARTS[place]
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(text(part) for part in parts)
    raise AssertionError(f"no text: {value}")


def texts(value: Any) -> list[str]:
    """One string or a list of them, as texts."""
    return [text(item) for item in (value if isinstance(value, list) else [value])]


def statements(template: Template) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every statement of every policy anywhere in a template, each with the logical id of its resource."""

    def walk(value: Any) -> Iterator[dict[str, Any]]:
        if isinstance(value, dict):
            found = value.get("Statement")
            yield from (found if isinstance(found, list) else [])
            for inner in value.values():
                yield from walk(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from walk(inner)

    for logical_id, resource in template["Resources"].items():
        for statement in walk(resource.get("Properties", {})):
            yield readable(logical_id), statement
