"""What a person sees and is told: logs, dashboard, alarms, mail."""

import json
import re
from typing import Any

import pytest

from infra.workflow.metrics import METRICS
from tests.infra.synthesis import Synthesis, synthesis, text


def name_of(stack: Synthesis, reference: Any) -> str:
    """The name of the state machine or rule that a template's value refers to."""
    machines, rules = stack.resources("AWS::StepFunctions::StateMachine"), stack.resources("AWS::Events::Rule")
    properties = (machines | rules)[text(reference).removeprefix("${").removesuffix("}")]["Properties"]
    return str(properties.get("StateMachineName") or properties["Name"])


@pytest.mark.parametrize(("combination", "days"), [("defaults", 90), ("everything", 7)])
def test_every_log_expires_and_goes_with_the_stack(combination: str, days: int) -> None:
    groups = synthesis(combination).resources("AWS::Logs::LogGroup").values()
    assert {group["Properties"]["RetentionInDays"] for group in groups} == {days}
    assert {group["DeletionPolicy"] for group in groups} == {"Delete"}


def test_both_machines_log_and_trace(any_combination: Synthesis) -> None:
    machines = any_combination.resources("AWS::StepFunctions::StateMachine").values()
    assert len(machines) == 2
    for machine in machines:
        assert machine["Properties"]["TracingConfiguration"] == {"Enabled": True}
        assert machine["Properties"]["LoggingConfiguration"]["Level"] == "ALL"


def test_alarms_watch_the_workflow_and_what_stops_its_jobs(defaults: Synthesis) -> None:
    watched = set()
    for alarm in defaults.resources("AWS::CloudWatch::Alarm").values():
        properties = alarm["Properties"]
        [dimension] = properties["Dimensions"]
        watched.add((properties["MetricName"], dimension["Name"], name_of(defaults, dimension["Value"])))
        assert properties["AlarmDescription"]
        assert properties["TreatMissingData"] == "notBreaching"
        assert (properties["Threshold"], properties["Statistic"]) == (1, "Sum")
    assert watched == {
        ("ExecutionsFailed", "StateMachineArn", "counterpoise"),
        ("ExecutionsTimedOut", "StateMachineArn", "counterpoise"),
        ("ExecutionsFailed", "StateMachineArn", "counterpoise-stop"),
        ("FailedInvocations", "RuleName", "counterpoise-stop"),
    }


def test_nobody_is_told_unless_asked_for(defaults: Synthesis) -> None:
    assert defaults.resources("AWS::SNS::Topic") == {}
    for alarm in defaults.resources("AWS::CloudWatch::Alarm").values():
        assert "AlarmActions" not in alarm["Properties"]


def test_mail_tells_of_every_alarm(everything: Synthesis) -> None:
    subscription = everything.only("AWS::SNS::Subscription")
    assert (subscription["Protocol"], subscription["Endpoint"]) == ("email", "team@example.com")
    assert text(subscription["TopicArn"]) == "${NotificationsTopic}"
    for alarm in everything.resources("AWS::CloudWatch::Alarm").values():
        assert [text(action) for action in alarm["Properties"]["AlarmActions"]] == ["${NotificationsTopic}"]


def test_alarms_may_publish_and_all_else_needs_tls(everything: Synthesis) -> None:
    tls, alarms = everything.only("AWS::SNS::TopicPolicy")["PolicyDocument"]["Statement"]
    assert (tls["Effect"], tls["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    assert (alarms["Effect"], alarms["Action"]) == ("Allow", "sns:Publish")
    assert alarms["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert text(alarms["Condition"]["ArnLike"]["aws:SourceArn"]) == "arn:aws:cloudwatch:REGION:ACCOUNT:alarm:*"


def test_mail_tells_of_every_end_of_an_execution(everything: Synthesis) -> None:
    rule = everything.resources("AWS::Events::Rule")["NotificationsExecutionEnded"]["Properties"]
    pattern = rule["EventPattern"]
    assert [name_of(everything, arn) for arn in pattern["detail"]["stateMachineArn"]] == ["other"]
    assert set(pattern["detail"]["status"]) == {"SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"}
    [target] = rule["Targets"]
    assert text(target["Arn"]) == "${NotificationsTopic}"
    assert "#/v2/executions/details/<detail-executionArn>" in text(target["InputTransformer"]["InputTemplate"])


def test_dashboard_shows_executions_and_figures_that_exist(defaults: Synthesis) -> None:
    dashboard = defaults.only("AWS::CloudWatch::Dashboard")
    assert dashboard["DashboardName"] == "counterpoise"
    widgets = json.loads(text(dashboard["DashboardBody"]))["widgets"]
    shown = json.dumps(widgets)
    assert "ExecutionsStarted" in shown
    figures = re.findall(r'TrainingJobName\} MetricName=\\*"([^"\\]+)', shown)
    assert figures
    assert set(figures) <= {metric.name for metric in METRICS}
    assert {widget["properties"]["region"] for widget in widgets} == {"REGION"}


def test_dashboard_shows_jobs_of_this_stack_only(everything: Synthesis) -> None:
    shown = text(everything.only("AWS::CloudWatch::Dashboard")["DashboardBody"])
    searches = re.findall(r"SEARCH\('(.*?)'", shown)
    assert len(searches) == 4
    assert all(re.search(r"(Host|TrainingJobName)=other$", search) for search in searches)
