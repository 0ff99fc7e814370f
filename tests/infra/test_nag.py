"""cdk-nag's AwsSolutions rules: what they find is listed here with the reason why it stays, and nothing else is."""

import json
import re
from pathlib import Path

import aws_cdk as cdk
import pytest
from cdk_nag import AwsSolutionsChecks

from infra.settings import DeploySettings
from infra.stack import CounterpoiseStack
from tests.infra.synthesis import COMBINATIONS, context_of

Finding = tuple[str, str]
"""The path of a construct below the stack, and the rule with its detail."""

# Reasons by construct and rule, both as regular expressions.
REASONS: dict[Finding, str] = {
    ("Output", "S1"): "Who read what is CloudTrail's to record; a bucket of access logs would outlive the stack too.",
    ("ClusterToken", "SMG4"): "A new value would split the clusters of running jobs, and no person ever knows the old.",
    ("TrainingRole", r"IAM5\[Resource::<Output.{8}\.Arn>/(data|jobs|checkpoints)/\*\]"): "Objects of one folder.",
    ("TrainingRole", r"IAM5\[Resource::arn:<AWS::Partition>:s3:::.+\*\]"): "The places that a user has named.",
    ("TrainingRole", r"IAM5\[Resource::arn:.+:log-stream:[a-z]+-\*\]"): "The streams of this stack's jobs.",
    ("TrainingRole", r"IAM5\[Resource::arn:.+:/aws/sagemaker/TrainingJobs:\*\]"): "One log group, as IAM writes it.",
    ("TrainingRole", r"IAM5\[Resource::\*\]"): "A registry login, a metric and a VPC attachment know no resource.",
    ("Workflow/Role", r"IAM5\[Resource::<Output.{8}\.Arn>/reports/\*\]"): "Objects of one folder.",
    ("Workflow/(Stop)?Role", r"IAM5\[Resource::arn:.+:training-job/[a-z]+-\*\]"): "The jobs of this stack.",
    ("Workflow/(Stop)?Role", r"IAM5\[Resource::\*\]"): "The delivery of logs and traces knows no resource.",
}


def findings(combination: str, assembly: Path) -> set[Finding]:
    app = cdk.App(context=context_of(COMBINATIONS[combination]), outdir=str(assembly))
    settings = DeploySettings.from_context(app.node.get_all_context())
    CounterpoiseStack(app, settings.name, settings=settings)
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    with pytest.raises(RuntimeError, match="ValidationFailed"):  # the report is written first
        app.synth()
    [report] = json.loads((assembly / "validation-report.json").read_text())["pluginReports"]
    assert report["pluginName"] == "AwsSolutions"
    return {
        (place["constructPath"].partition("/")[2].removesuffix("/Resource"), violation["ruleName"])
        for violation in report["violations"]
        for place in violation["violatingConstructs"]
    }


def test_every_finding_has_a_reason_and_every_reason_a_finding(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = {finding for name in COMBINATIONS for finding in findings(name, tmp_path / name)}
    capfd.readouterr()  # the report, which the CDK prints as well
    used = {
        finding: [key for key in REASONS if all(map(re.fullmatch, with_pack(key), finding))]
        for finding in sorted(found)
    }
    assert [finding for finding, keys in used.items() if not keys] == []
    assert {key for keys in used.values() for key in keys} == set(REASONS)


def with_pack(key: Finding) -> Finding:
    where, rule = key
    return where, f"AwsSolutions-{rule}"
