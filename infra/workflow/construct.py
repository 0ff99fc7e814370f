"""The workflow on AWS: the state machine that runs executions, and the one that stops the jobs of ended executions."""

import json
from collections.abc import Mapping

from aws_cdk import Stack
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_ssm as ssm
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra.access import StopRole, StopRuleRole, WorkflowRole
from infra.network import TrainingNetwork
from infra.observability import ExpiringLogGroup
from infra.settings import REPORTS_PREFIX, DeploySettings
from infra.workflow.definition import build_definition
from infra.workflow.settings import JobSecurity, WorkflowSettings
from infra.workflow.states import State
from infra.workflow.stop import build_stop_definition
from training.advisor.prices import load_prices

ENDED_WITHOUT_SUCCESS = ("ABORTED", "FAILED", "TIMED_OUT")
CLUSTER_SECRET_VARIABLE = "COUNTERPOISE_CLUSTER_SECRET_ARN"
"""Tells the hosts of a job where the secret is that they derive their cluster token from; it is no secret itself."""
ISOLATED_VARIABLE = "COUNTERPOISE_ISOLATED"
"""Tells them that their head hands the token over, to the addresses of the job's hosts."""


class TrainingWorkflow(Construct):
    """Everything that happens between the start of an execution and its end.

    Attributes:
        log_group: What happened in executions, with all their data.
        state_machine: Runs executions; has the stack's name.
        stop_machine: Stops the jobs that an execution without success may have left.
        stop_rule: Starts it.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: DeploySettings,
        bucket: s3.IBucket,
        repository: ecr.IRepository,
        image_parameter: ssm.IStringParameter,
        training_role: iam.IRole,
        network: TrainingNetwork | None,
        key: kms.IKey | None,
        cluster_secret: secretsmanager.ISecret,
    ) -> None:
        super().__init__(scope, construct_id)
        self._deploy = settings
        prices = load_prices()
        workflow = WorkflowSettings(
            name=settings.name,
            partition=Stack.of(self).partition,
            region=Stack.of(self).region,
            bucket_name=bucket.bucket_name,
            training_role_arn=training_role.role_arn,
            image_parameter_name=image_parameter.parameter_name,
            repository_name=repository.repository_name,
            repository_uri=repository.repository_uri,
            prices_usd_per_hour=prices.usd_per_hour,
            prices_read=prices.read,
            security=_security(settings, network, key),
            environment=_environment(settings, cluster_secret),
            tags=settings.tags,
            max_runtime_limit_seconds=settings.max_runtime_limit_seconds,
            poll_seconds=settings.poll_seconds,
            retry_seconds=settings.retry_seconds,
        )
        role = WorkflowRole(
            self,
            "Role",
            machine_name=settings.name,
            job_prefix=settings.name,
            training_role_arn=training_role.role_arn,
            image_parameter_arn=image_parameter.parameter_arn,
            repository_arn=repository.repository_arn,
            report_arns=bucket.arn_for_objects(f"{REPORTS_PREFIX}/*"),
            key_arn=key.key_arn if key else None,
        )
        self.log_group, self.state_machine = self._machine(settings.name, "", build_definition(workflow), role)
        self.stop_machine, self.stop_rule = self._stop(f"{settings.name}-stop", workflow)

    def _machine(
        self, name: str, part: str, definition: State, role: iam.Role
    ) -> tuple[ExpiringLogGroup, sfn.StateMachine]:
        """One state machine and its log; its role has all its rights and gets no other."""
        log_group = ExpiringLogGroup(
            self,
            f"{part}Logs",
            retention_days=self._deploy.log_retention_days,
            # Below this prefix the permission to write stays short, however many log groups an account has.
            log_group_name=f"/aws/vendedlogs/states/{name}",
        )
        machine = sfn.StateMachine(
            self,
            f"{part}Machine",
            state_machine_name=name,
            definition_body=sfn.DefinitionBody.from_string(json.dumps(definition)),
            role=role.without_policy_updates(),
            logs=sfn.LogOptions(destination=log_group, level=sfn.LogLevel.ALL, include_execution_data=True),
            tracing_enabled=True,
        )
        return log_group, machine

    def _stop(self, name: str, workflow: WorkflowSettings) -> tuple[sfn.StateMachine, events.Rule]:
        """The machine that stops jobs, and the rule on ended executions that starts it; both have this name."""
        role = StopRole(self, "StopRole", machine_name=name, job_prefix=workflow.name)
        _, machine = self._machine(name, "Stop", build_stop_definition(workflow), role)
        rule = events.Rule(
            self,
            "StopRule",
            rule_name=name,
            description="Stops the training jobs of executions that end without success",
            event_pattern=events.EventPattern(
                source=["aws.states"],
                detail_type=["Step Functions Execution Status Change"],
                detail={
                    "stateMachineArn": [self.state_machine.state_machine_arn],
                    "status": list(ENDED_WITHOUT_SUCCESS),
                },
            ),
        )
        rule_role = StopRuleRole(self, "StopRuleRole", rule_name=name, machine_name=name)
        target = targets.SfnStateMachine(
            machine,
            input=events.RuleTargetInput.from_event_path("$.detail"),
            role=rule_role.without_policy_updates(),
        )
        rule.add_target(target)
        return machine, rule


def _environment(settings: DeploySettings, cluster_secret: secretsmanager.ISecret) -> Mapping[str, str]:
    """Where the hosts of a job have their common token from; isolated ones can ask nobody for the secret."""
    if settings.network_isolation:
        return {ISOLATED_VARIABLE: "1"}
    return {CLUSTER_SECRET_VARIABLE: cluster_secret.secret_arn}


def _security(settings: DeploySettings, network: TrainingNetwork | None, key: kms.IKey | None) -> JobSecurity:
    return JobSecurity(
        kms_key_arn=key.key_arn if key else None,
        subnet_ids=network.subnet_ids if network else (),
        security_group_ids=network.security_group_ids if network else (),
        is_isolated=settings.network_isolation,
        is_traffic_encrypted=settings.inter_container_encryption,
    )
