"""The CreateTrainingJob request, in JSONata over what the workflow has resolved: $run, $job, $image and so on."""

from collections.abc import Mapping

from infra.settings import CHECKPOINTS_PREFIX, JOBS_PREFIX
from infra.workflow.jsonata import Code, Value, block, literal, merged
from infra.workflow.naming import name_expression
from infra.workflow.settings import JobSecurity, WorkflowSettings
from training.contract import TrainingConfig

JOB_NAME = name_expression("$stem", "$job.letter", "$job.attempt")
"""The name of the current job."""

MAX_INTERNAL_ERRORS = 2
"""How often SageMaker itself starts a job again that failed by SageMaker's own fault, within the job's max runtime."""

HAS_LOCAL_STORAGE = r"/^ml\.([gp][4-9]|gr[0-9]|trn[0-9]|[a-z]+[0-9][a-z]*d)/"
"""Instance types with NVMe disks, by family. Their hardware encrypts them; a job that names a key is refused."""


def training_job_request(settings: WorkflowSettings) -> str:
    """The JSONata that evaluates to the request for the current job.

    JSON has one kind of number: what the contract took as a whole one may have come as 1.0, which the API refuses.
    """
    security = settings.security
    fixed: dict[str, Value] = {
        "TrainingJobName": Code(JOB_NAME),
        "RoleArn": settings.training_role_arn,
        "AlgorithmSpecification": {
            "TrainingImage": Code("$image"),
            "TrainingInputMode": "File",
            "MetricDefinitions": Code("$metric_definitions"),
        },
        "HyperParameters": Code(_hyperparameters()),
        "ResourceConfig": Code(_resources(security.kms_key_arn)),
        "OutputDataConfig": _output(settings),
        "StoppingCondition": Code(_stopping()),
        "EnableManagedSpotTraining": Code("$run.spot"),
        "EnableNetworkIsolation": security.is_isolated,
        "EnableInterContainerTrafficEncryption": security.is_traffic_encrypted,
        "RetryStrategy": {"MaximumRetryAttempts": MAX_INTERNAL_ERRORS},
        "Environment": dict(settings.environment),
        "Tags": Code(_tags(settings)),
    }
    return merged(literal(fixed), literal(_network(security)), _checkpoints(settings), _channels())


def _hyperparameters() -> str:
    """The training settings as text, as `TrainingConfig.to_hyperparameters` gives them.

    A head group that this arm or composition does not have is left out: the group with accelerators leads then.
    """
    fields = TrainingConfig.model_fields.items()
    # Where null is allowed, a text that reads like it is quoted.
    quoted = [name for name, field in fields if field.default is None and "str" in str(field.annotation)]
    return block(
        settings=merged("$run.training", '$run.training.head_group in $job.groups.name ? {} : {"head_group": null}'),
        text='function($value, $key) { $type($value) != "string" ? $string($value)'
        f' : $contains($key, /^({"|".join(quoted)})$/) and $contains($value, /^(None|null)$/) ? "\\"" & $value & "\\""'
        " : $value }",
        result="$merge($each($settings, function($value, $key) { $value = null ? {} : {$key: $text($value, $key)} }))",
    )


def _resources(kms_key_arn: str | None) -> str:
    group = '{"InstanceGroupName": name, "InstanceType": instance_type, "InstanceCount": $floor(instance_count)}'
    resources = f'{{"InstanceGroups": [$job.groups.{group}], "VolumeSizeInGB": $floor($run.volume_gb)}}'
    if kms_key_arn is None:
        return resources
    # One key for all groups: it can be named only where no group has disks of its own.
    key = literal({"VolumeKmsKeyId": kms_key_arn})
    return merged(resources, f"$count($job.groups[$contains(instance_type, {HAS_LOCAL_STORAGE})]) = 0 ? {key} : {{}}")


def _output(settings: WorkflowSettings) -> Mapping[str, str]:
    key = {"KmsKeyId": settings.security.kms_key_arn} if settings.security.kms_key_arn else {}
    return {"S3OutputPath": f"s3://{settings.bucket_name}/{JOBS_PREFIX}", **key}


def _stopping() -> str:
    return merged(
        '{"MaxRuntimeInSeconds": $floor($run.max_runtime_seconds)}',
        '$run.spot ? {"MaxWaitTimeInSeconds": $floor($run.max_wait_seconds)} : {}',
    )


def _network(security: JobSecurity) -> Mapping[str, Value]:
    if not security.subnet_ids:
        return {}
    return {"VpcConfig": {"Subnets": security.subnet_ids, "SecurityGroupIds": security.security_group_ids}}


def _checkpoints(settings: WorkflowSettings) -> str:
    """One folder for each arm of an execution, so that another attempt goes on where the last one stopped."""
    folder = literal(f"s3://{settings.bucket_name}/{CHECKPOINTS_PREFIX}/") + ' & $stem & "-" & $job.letter'
    return f'$run.checkpoints ? {{"CheckpointConfig": {{"S3Uri": {folder}}}}} : {{}}'


def _channels() -> str:
    """Input channels; an empty list is no valid request, so that without channels there is no such key.

    A channel for groups that this arm does not have goes to all hosts, and so does every other one then: SageMaker
    takes group names for all channels or for none.
    """
    source = merged(
        '{"S3DataType": "S3Prefix", "S3Uri": s3_uri, "S3DataDistributionType": "FullyReplicated"}',
        '$by_group ? {"InstanceGroupNames": [instance_groups]} : {}',
    )
    channel = f'{{"ChannelName": name, "InputMode": "File", "DataSource": {{"S3DataSource": {source}}}}}'
    return block(
        names="$job.groups.name",
        by_group='$type($run.channels[0].instance_groups) = "array"'
        " and $count($run.channels.instance_groups[$not($ in $names)]) = 0",
        result=f'$count($run.channels) = 0 ? {{}} : {{"InputDataConfig": [$run.channels.({channel})]}}',
    )


def _tags(settings: WorkflowSettings) -> str:
    """The execution's tags, the deploy's, and which stack and arm a job belongs to; the later ones win."""
    own = merged(
        "$run.tags",
        literal({**settings.tags, "counterpoise:stack": settings.name, "counterpoise:arm": Code("$job.arm")}),
    )
    return f'[$each({own}, function($value, $key) {{ {{"Key": $key, "Value": $value}} }})]'
