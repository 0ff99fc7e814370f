"""What a person watches: logs that expire, a dashboard, alarms, and the topic that carries them."""

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_cloudwatch as cw
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra.access import JOB_LOG_GROUP, NotifyRuleRole, alarms_may_publish

ENDS = ("SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED")
PERIOD = Duration.minutes(1)  # SageMaker's own interval for the metrics of a host


class ExpiringLogGroup(logs.LogGroup):
    """A log group that is deleted with the stack, and whose events are deleted after `retention_days`."""

    def __init__(
        self, scope: Construct, construct_id: str, *, retention_days: int, log_group_name: str | None = None
    ) -> None:
        super().__init__(scope, construct_id, log_group_name=log_group_name, removal_policy=RemovalPolicy.DESTROY)
        resource = self.node.default_child
        assert isinstance(resource, logs.CfnLogGroup)
        resource.retention_in_days = retention_days  # the class above wants the name of a number of days


class Notifications(Construct):
    """Mails an address when an execution ends and when an alarm goes off.

    Attributes:
        topic: What is published to it, over TLS only, is mailed.
        rule: Publishes the end of every execution, however it ended.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, name: str, machine: sfn.IStateMachine, email: str
    ) -> None:
        super().__init__(scope, construct_id)
        self.topic = sns.Topic(self, "Topic", enforce_ssl=True)
        self.topic.add_subscription(subscriptions.EmailSubscription(email))
        self.topic.add_to_resource_policy(alarms_may_publish(self, self.topic.topic_arn))
        rule_name = f"{name}-notify"
        self.rule = events.Rule(
            self,
            "ExecutionEnded",
            rule_name=rule_name,
            description="Mails that an execution has ended",
            event_pattern=events.EventPattern(
                source=["aws.states"],
                detail_type=["Step Functions Execution Status Change"],
                detail={"stateMachineArn": [machine.state_machine_arn], "status": list(ENDS)},
            ),
        )
        role = NotifyRuleRole(self, "Role", rule_name=rule_name, topic_arn=self.topic.topic_arn)
        self.rule.add_target(targets.SnsTopic(self.topic, message=self._mail(), role=role.without_policy_updates()))

    def _mail(self) -> events.RuleTargetInput:
        region = Stack.of(self).region
        arn, status = (events.EventField.from_path(f"$.detail.{field}") for field in ("executionArn", "status"))
        console = f"https://{region}.console.aws.amazon.com/states/home?region={region}#/v2/executions/details/{arn}"
        return events.RuleTargetInput.from_text(f"{status}: {console}")


class Observability(Construct):
    """The dashboard and the alarms of one workflow.

    Attributes:
        dashboard: Executions above, the hosts of the jobs below.
        alarms: One for each thing that a person has to look at.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        machine: sfn.IStateMachine,
        stop_machine: sfn.IStateMachine,
        stop_rule_name: str,
        topic: sns.ITopic | None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.dashboard = self._dashboard(name, machine)
        not_started = cw.Metric(
            namespace="AWS/Events", metric_name="FailedInvocations", dimensions_map={"RuleName": stop_rule_name}
        )
        stays = "a training job may still be running and billed; stop it in the SageMaker console"
        self.alarms = [
            self._alarm("ExecutionFailed", machine.metric_failed(), "An execution failed; its Cause says why"),
            self._alarm("ExecutionTimedOut", machine.metric_timed_out(), "An execution ran out of time"),
            self._alarm("JobNotStopped", stop_machine.metric_failed(), f"The jobs of an execution: {stays}"),
            self._alarm("StopNotStarted", not_started, f"The state machine that stops jobs did not start: {stays}"),
        ]
        if topic:
            for alarm in self.alarms:
                alarm.add_alarm_action(actions.SnsAction(topic))

    def _alarm(self, construct_id: str, metric: cw.Metric, description: str) -> cw.Alarm:
        return cw.Alarm(
            self,
            construct_id,
            metric=metric.with_(period=Duration.minutes(5), statistic="Sum"),
            alarm_description=description,
            evaluation_periods=1,
            threshold=1,
            comparison_operator=cw.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            treat_missing_data=cw.TreatMissingData.NOT_BREACHING,
        )

    def _dashboard(self, name: str, machine: sfn.IStateMachine) -> cw.Dashboard:
        dashboard = cw.Dashboard(self, "Dashboard", dashboard_name=name, default_interval=Duration.hours(12))
        ends = [machine.metric_succeeded(), machine.metric_failed(), machine.metric_timed_out()]
        dashboard.add_widgets(
            _graph("Executions", machine.metric_started(), *ends, machine.metric_aborted()),
            _graph("Duration of an execution, in milliseconds", machine.metric_time(statistic="Average")),
        )
        dashboard.add_widgets(
            _graph("Accelerators of the hosts, in %", _of_hosts(name, "GPUUtilization")),
            _graph("CPUs of the hosts, in % of one CPU", _of_hosts(name, "CPUUtilization")),
        )
        dashboard.add_widgets(
            _graph("Images per second, on the way", _of_jobs(name, "step:images_per_second")),
            _graph("Share of the time that a job waited for data, at its end", _of_jobs(name, "data_wait_share")),
        )
        return dashboard


def _graph(title: str, *metrics: cw.IMetric) -> cw.GraphWidget:
    return cw.GraphWidget(title=title, left=list(metrics), width=12)


def _of_hosts(name: str, metric: str) -> cw.MathExpression:
    return _search("Host", name, metric)


def _of_jobs(name: str, metric: str) -> cw.MathExpression:
    return _search("TrainingJobName", name, metric)


def _search(dimension: str, name: str, metric: str) -> cw.MathExpression:
    """One line for each job or host whose name has `name` in it: jobs get new names, so none can be listed here."""
    terms = f'{{{JOB_LOG_GROUP},{dimension}}} MetricName="{metric}" {dimension}={name}'
    return cw.MathExpression(
        expression=f"SEARCH('{terms}', 'Average', {PERIOD.to_seconds():.0f})", label="", using_metrics={}, period=PERIOD
    )
