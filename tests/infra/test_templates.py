"""Synthesis as a user runs it, offline and silent, and what cfn-lint and checkov say about the templates."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.infra.synthesis import COMBINATIONS, PINNED_NODE, ROOT, context_of, synthesis

OFFLINE = ["unshare", "--user", "--map-root-user", "--net"]
"""A network of its own, in which there is nobody."""

# Flags of the CDK that are not as it recommends.
DEVIATIONS = {
    "@aws-cdk/core:enableAdditionalMetadataCollection": False,  # nothing about a deploy is reported to anybody
}

# What checkov finds, and why it stays.
CHECKOV_REASONS = {
    "CKV_AWS_18": "access logs of the bucket: as in test_nag.py",
    "CKV_AWS_26": "the topic carries the names of executions and alarms, and alarms cannot use a key of the user's",
    "CKV_AWS_109": "the VPC attachment, which SageMaker's own check wants unrestricted",
    "CKV_AWS_111": "the VPC attachment, which SageMaker's own check wants unrestricted",
    "CKV_AWS_136": "only where no key is asked for: ECR encrypts with its own",
    "CKV_AWS_149": "only where no key is asked for: Secrets Manager encrypts with its own",
    "CKV_AWS_158": "logs hold settings and results, no data; a key of the user's would have to admit CloudWatch Logs",
}

# W3005: the CDK makes a state machine wait for its role in so many words; harmless.
CFN_LINT_IGNORED = ["W3005"]


def environment(**variables: str) -> dict[str, str]:
    """This process's environment without AWS, without an activated virtual environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CDK_", "JSII_"))}
    nowhere = {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "1",
    }
    return kept | nowhere | {"PATH": "/usr/local/bin:/usr/bin:/bin"} | variables


def run(command: Sequence[str | Path], **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, env=environment(**variables), capture_output=True, text=True, check=False, timeout=120
    )


def run_app(context: dict[str, Any], assembly: Path) -> subprocess.CompletedProcess[str]:
    return run(
        [*OFFLINE, sys.executable, "-m", "infra.app"],
        JSII_NODE=str(PINNED_NODE),
        CDK_CONTEXT_JSON=json.dumps(context),
        CDK_OUTDIR=str(assembly),
    )


def run_cli(assembly: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    cli = ROOT / "node_modules" / "aws-cdk" / "bin" / "cdk"
    command: list[str | Path] = [*OFFLINE, PINNED_NODE, cli, "synth", "--quiet", "--output", assembly, *arguments]
    return run(command, CDK_HOME=str(assembly.with_suffix(".home")))


def test_two_syntheses_give_one_template(tmp_path: Path) -> None:
    ended = run_app(context_of(COMBINATIONS["everything"]), tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert json.loads((tmp_path / "other.template.json").read_text()) == synthesis("everything").template


def test_command_line_synthesizes_without_a_word(tmp_path: Path) -> None:
    ended = run_cli(tmp_path / "out")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    template = json.loads((tmp_path / "out" / "counterpoise.template.json").read_text())
    for resource in template["Resources"].values():
        resource.pop("Metadata", None)  # the command line adds each resource's construct path
    assert template == synthesis("defaults").template
    artifacts = json.loads((tmp_path / "out" / "manifest.json").read_text())["artifacts"].values()
    [report] = [artifact for artifact in artifacts if artifact["type"] == "cdk:feature-flag-report"]
    flags = {
        name: (flag["recommendedValue"], flag.get("userValue")) for name, flag in report["properties"]["flags"].items()
    }
    assert {
        name: chosen for name, (recommended, chosen) in flags.items() if chosen is not None and chosen != recommended
    } == DEVIATIONS


def test_refused_setting_is_one_line(tmp_path: Path) -> None:
    ended = run_app({"counterpoise:poll_second": 1}, tmp_path)
    line = "counterpoise:poll_second: unknown setting; nearest: poll_seconds; see docs/settings.md\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", line)


def test_refused_setting_is_told_by_the_command_line(tmp_path: Path) -> None:
    ended = run_cli(tmp_path / "out", "--context", "counterpoise:create_vpc=maybe")
    assert ended.returncode != 0
    assert ended.stderr.startswith("counterpoise:create_vpc: 'maybe' is not true or false; allowed: true or false\n")
    assert "Traceback" not in ended.stderr


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("templates")
    for name in COMBINATIONS:
        (folder / f"{name}.json").write_text(json.dumps(synthesis(name).template))
    return folder


def test_cfn_lint_finds_nothing(templates: Path) -> None:
    cfn_lint = Path(sys.prefix) / "bin" / "cfn-lint"
    ended = run([cfn_lint, "--ignore-checks", *CFN_LINT_IGNORED, "--template", *sorted(templates.iterdir())])
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_checkov_finds_what_has_a_reason(templates: Path) -> None:
    checkov = ROOT / ".venv-policy" / "bin" / "checkov"
    options = ["--framework", "cloudformation", "--skip-download", "--quiet", "--compact", "--output", "json"]
    ended = run([*OFFLINE, checkov, "--directory", templates, *options])
    report = json.loads(ended.stdout)
    assert report["summary"]["parsing_errors"] == 0
    assert report["summary"]["passed"] > 0
    assert {check["check_id"] for check in report["results"]["failed_checks"]} == set(CHECKOV_REASONS)
