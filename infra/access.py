"""Who may do what: every policy statement of the stack, written by hand, one class for each role.

The policies are inline in their roles, so that a role never exists without its rights and nothing adds to them later:
hand `role.without_policy_updates()` to a construct that would grant by itself.
"""

from collections.abc import Sequence

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

JOB_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
"""Where SageMaker writes the logs of every training job of an account; and the namespace of their metrics."""


class ServiceRole(iam.Role):
    """A role of one AWS service, which may assume it only when it acts for a resource of this stack."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        service: str,
        source_arn: str,
        description: str,
        statements: Sequence[iam.PolicyStatement],
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            description=description,
            assumed_by=_service(service, scope, source_arn),
            inline_policies={"rights": iam.PolicyDocument(statements=list(statements))},
        )


class TrainingRole(ServiceRole):
    """What SageMaker and the hosts of a training job may do.

    Args:
        job_prefix: The jobs whose names begin with `<job_prefix>-` may run with this role.
        repository_arn: Where their image comes from.
        readable_arns: The objects that a job may read, as ARN patterns.
        writable_arns: The objects that a job may write, as ARN patterns.
        bucket_arns: The buckets of all of these.
        secret_arn: The secret of the cluster token; None where hosts cannot call AWS.
        key_arn: The key that encrypts what a job writes, and its volumes; None for the services' own keys.
        input_key_arns: The keys that encrypt input data in other buckets.
        is_in_vpc: Whether the hosts are attached to a VPC.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        job_prefix: str,
        repository_arn: str,
        readable_arns: Sequence[str],
        writable_arns: Sequence[str],
        bucket_arns: Sequence[str],
        secret_arn: str | None,
        key_arn: str | None,
        input_key_arns: Sequence[str],
        is_in_vpc: bool,
    ) -> None:
        statements = [
            _allow(["s3:GetObject"], *readable_arns),
            _allow(["s3:PutObject"], *writable_arns),
            _allow(["s3:ListBucket"], *bucket_arns),
            *_pull_image(repository_arn),
            *_write_job_logs(scope, job_prefix),
            _put_job_metrics(),
        ]
        if secret_arn:
            statements.append(_allow(["secretsmanager:GetSecretValue"], secret_arn))
        if key_arn:
            statements += _encrypt_job(key_arn)
        if input_key_arns:
            statements.append(_allow(["kms:Decrypt"], *input_key_arns))
        if is_in_vpc:
            statements.append(_attach_to_vpc())
        super().__init__(
            scope,
            construct_id,
            service="sagemaker",
            source_arn=_job_arns(scope, job_prefix),
            description="Runs the training jobs of this stack",
            statements=statements,
        )


class WorkflowRole(ServiceRole):
    """What the state machine that runs an execution may do.

    Args:
        machine_name: The state machine.
        job_prefix: It may create, tag and watch the jobs whose names begin with `<job_prefix>-`.
        training_role_arn: The one role that it may hand to SageMaker.
        image_parameter_arn: The parameter that points at the current image.
        repository_arn: Where it looks whether that image exists.
        report_arns: The objects that it may write, as an ARN pattern.
        key_arn: The key that encrypts the bucket; None for the service's own key.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        machine_name: str,
        job_prefix: str,
        training_role_arn: str,
        image_parameter_arn: str,
        repository_arn: str,
        report_arns: str,
        key_arn: str | None,
    ) -> None:
        jobs = _job_arns(scope, job_prefix)
        statements = [
            _allow(["ssm:GetParameter"], image_parameter_arn),
            _allow(["ecr:DescribeImages"], repository_arn),
            # CreateTrainingJob with tags asks for AddTags. Stopping is the other state machine's.
            _allow([f"sagemaker:{verb}" for verb in ("CreateTrainingJob", "DescribeTrainingJob", "AddTags")], jobs),
            _allow(
                ["iam:PassRole"],
                training_role_arn,
                conditions={"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}},
            ),
            _allow(["s3:PutObject"], report_arns),
            *_log_and_trace(),
        ]
        if key_arn:
            statements.append(_allow(["kms:GenerateDataKey"], key_arn))
        super().__init__(
            scope,
            construct_id,
            service="states",
            source_arn=_machine_arn(scope, machine_name),
            description="Runs the executions of this stack's workflow",
            statements=statements,
        )


class StopRole(ServiceRole):
    """What the state machine that stops the jobs of an ended execution may do: stop them."""

    def __init__(self, scope: Construct, construct_id: str, *, machine_name: str, job_prefix: str) -> None:
        stop = _allow(["sagemaker:StopTrainingJob"], _job_arns(scope, job_prefix))
        super().__init__(
            scope,
            construct_id,
            service="states",
            source_arn=_machine_arn(scope, machine_name),
            description="Stops training jobs whose execution has ended",
            statements=[stop, *_log_and_trace()],
        )


class StopRuleRole(ServiceRole):
    """What the rule on ended executions may do: start the state machine that stops jobs."""

    def __init__(self, scope: Construct, construct_id: str, *, rule_name: str, machine_name: str) -> None:
        super().__init__(
            scope,
            construct_id,
            service="events",
            source_arn=_arn(scope, "events", "rule", rule_name),
            description="Starts the state machine that stops training jobs",
            statements=[_allow(["states:StartExecution"], _machine_arn(scope, machine_name))],
        )


class NotifyRuleRole(ServiceRole):
    """What the rule that tells of ended executions may do: publish to the topic."""

    def __init__(self, scope: Construct, construct_id: str, *, rule_name: str, topic_arn: str) -> None:
        super().__init__(
            scope,
            construct_id,
            service="events",
            source_arn=_arn(scope, "events", "rule", rule_name),
            description="Tells who wants to know that an execution has ended",
            statements=[_allow(["sns:Publish"], topic_arn)],
        )


def alarms_may_publish(scope: Construct, topic_arn: str) -> iam.PolicyStatement:
    """For the policy of a topic: the alarms of this account. A topic with a policy of its own lacks SNS's default."""
    alarms = _arn(scope, "cloudwatch", "alarm", "*", ArnFormat.COLON_RESOURCE_NAME)
    service = _service("cloudwatch", scope, alarms)
    return iam.PolicyStatement(actions=["sns:Publish"], resources=[topic_arn], principals=[service])


class FlowLogRole(ServiceRole):
    """What the flow log of the stack's own VPC may do: write to its log group."""

    def __init__(self, scope: Construct, construct_id: str, *, log_group_arn: str) -> None:
        actions = [f"logs:{verb}" for verb in ("CreateLogStream", "PutLogEvents", "DescribeLogStreams")]
        super().__init__(
            scope,
            construct_id,
            service="vpc-flow-logs",
            source_arn=_arn(scope, "ec2", "vpc-flow-log", "*"),
            description="Writes the flow log of the training VPC",
            statements=[_allow(actions, log_group_arn)],
        )


def _pull_image(repository_arn: str) -> list[iam.PolicyStatement]:
    actions = [f"ecr:{verb}" for verb in ("BatchCheckLayerAvailability", "BatchGetImage", "GetDownloadUrlForLayer")]
    # A registry login is for the whole registry: the action knows no resource.
    return [_allow(actions, repository_arn), _allow(["ecr:GetAuthorizationToken"], "*")]


def _write_job_logs(scope: Construct, job_prefix: str) -> list[iam.PolicyStatement]:
    group = _arn(scope, "logs", "log-group", JOB_LOG_GROUP, ArnFormat.COLON_RESOURCE_NAME)
    return [
        # The streams of a job are called <job name>/<host>-<time>.
        _allow(["logs:PutLogEvents"], f"{group}:log-stream:{job_prefix}-*"),
        # These are checked against the group, whose ARN some services write with a star at its end.
        _allow(["logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogStreams"], group, f"{group}:*"),
    ]


def _put_job_metrics() -> iam.PolicyStatement:
    # The action knows no resource; the namespace is what can be limited.
    condition = {"StringEquals": {"cloudwatch:namespace": JOB_LOG_GROUP}}
    return _allow(["cloudwatch:PutMetricData"], "*", conditions=condition)


def _encrypt_job(key_arn: str) -> list[iam.PolicyStatement]:
    return [
        _allow(["kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey"], key_arn),
        # An encrypted volume is attached through a grant, which only AWS services may use.
        _allow(["kms:CreateGrant"], key_arn, conditions={"Bool": {"kms:GrantIsForAWSResource": "true"}}),
    ]


def _attach_to_vpc() -> iam.PolicyStatement:
    # The set that SageMaker documents for a job in a VPC; its check of the role fails when this is narrowed.
    changes = [f"ec2:{verb}NetworkInterface{what}" for verb in ("Create", "Delete") for what in ("", "Permission")]
    reads = [
        f"ec2:Describe{what}" for what in ("DhcpOptions", "NetworkInterfaces", "SecurityGroups", "Subnets", "Vpcs")
    ]
    return _allow([*changes, *reads], "*")


def _log_and_trace() -> list[iam.PolicyStatement]:
    # Neither the delivery of vended logs nor X-Ray knows resources.
    deliveries = [f"logs:{verb}LogDelivery" for verb in ("Create", "Delete", "Get", "Update")]
    policies = ["logs:PutResourcePolicy", "logs:DescribeResourcePolicies"]
    lists = ["logs:ListLogDeliveries", "logs:DescribeLogGroups"]
    traces = ["PutTraceSegments", "PutTelemetryRecords", "GetSamplingRules", "GetSamplingTargets"]
    return [
        _allow([*deliveries, *policies, *lists], "*"),
        _allow([f"xray:{verb}" for verb in traces], "*"),
    ]


def _allow(
    actions: Sequence[str], *resources: str, conditions: dict[str, dict[str, str]] | None = None
) -> iam.PolicyStatement:
    return iam.PolicyStatement(actions=list(actions), resources=list(resources), conditions=conditions)


def _service(name: str, scope: Construct, source_arn: str) -> iam.ServicePrincipal:
    """The service, and only when it acts for a resource of this account and of this stack."""
    conditions = {
        "StringEquals": {"aws:SourceAccount": Stack.of(scope).account},
        "ArnLike": {"aws:SourceArn": source_arn},
    }
    return iam.ServicePrincipal(f"{name}.amazonaws.com", conditions=conditions)


def _job_arns(scope: Construct, prefix: str) -> str:
    return _arn(scope, "sagemaker", "training-job", f"{prefix}-*")


def _machine_arn(scope: Construct, name: str) -> str:
    # Written out, since a role has to name its state machine before that exists.
    return _arn(scope, "states", "stateMachine", name, ArnFormat.COLON_RESOURCE_NAME)


def _arn(
    scope: Construct, service: str, resource: str, name: str, form: ArnFormat = ArnFormat.SLASH_RESOURCE_NAME
) -> str:
    return Stack.of(scope).format_arn(service=service, resource=resource, resource_name=name, arn_format=form)
