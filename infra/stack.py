"""The stack: puts the constructs together, hands each what it needs, and names what a person needs next."""

from aws_cdk import CfnOutput, Duration, RemovalPolicy, Stack, Tags
from constructs import Construct

from infra.access import TrainingRole
from infra.encryption import ClusterToken, data_key
from infra.image import ImagePointer, ImageRepository
from infra.network import TrainingNetwork
from infra.observability import Notifications, Observability
from infra.settings import CHECKPOINTS_PREFIX, DATA_PREFIX, JOBS_PREFIX, DeploySettings
from infra.storage import OutputBucket
from infra.workflow.construct import TrainingWorkflow


class CounterpoiseStack(Stack):
    """Everything on AWS; one stack is one workflow, and several can live in one account and region."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: DeploySettings) -> None:
        super().__init__(scope, construct_id, description="Heterogeneous SageMaker training: Counterpoise")
        kept = RemovalPolicy.RETAIN if settings.output_retained else RemovalPolicy.DESTROY
        self.key = data_key(self, settings.kms_key, kept)
        self.bucket = OutputBucket(
            self,
            "Output",
            key=self.key,
            removal_policy=kept,
            checkpoint_expiry=Duration.days(settings.checkpoint_expiry_days),
            old_version_expiry=Duration.days(settings.old_version_expiry_days),
        )
        self.repository = ImageRepository(self, "Images", key=self.key, keep_count=settings.image_keep_count)
        self.image = ImagePointer(self, "Image", name=settings.name)
        self.token = ClusterToken(self, "ClusterToken", key=self.key)
        self.network = TrainingNetwork.of(self, settings)
        self.training_role = self._training_role(settings)
        self.workflow = TrainingWorkflow(
            self,
            "Workflow",
            settings=settings,
            bucket=self.bucket,
            repository=self.repository,
            image_parameter=self.image,
            training_role=self.training_role,
            network=self.network,
            key=self.key,
            cluster_secret=self.token,
        )
        self.notifications = self._notifications(settings)
        self.observability = Observability(
            self,
            "Observability",
            name=settings.name,
            machine=self.workflow.state_machine,
            stop_machine=self.workflow.stop_machine,
            stop_rule_name=self.workflow.stop_rule.rule_name,
            topic=self.notifications.topic if self.notifications else None,
        )
        self._tag(settings)
        self._tell(settings)

    def _notifications(self, settings: DeploySettings) -> Notifications | None:
        if settings.notification_email is None:
            return None
        machine, email = self.workflow.state_machine, settings.notification_email
        return Notifications(self, "Notifications", name=settings.name, machine=machine, email=email)

    def _training_role(self, settings: DeploySettings) -> TrainingRole:
        inputs = [uri.removeprefix("s3://") for uri in settings.input_s3_uris]
        buckets = dict.fromkeys(self._objects(place.partition("/")[0]) for place in inputs)
        return TrainingRole(
            self,
            "TrainingRole",
            job_prefix=settings.name,
            repository_arn=self.repository.repository_arn,
            readable_arns=[
                self.bucket.objects(DATA_PREFIX),
                self.bucket.objects(CHECKPOINTS_PREFIX),
                *(self._objects(f"{place}*" if "/" in place else f"{place}/*") for place in inputs),
            ],
            writable_arns=[self.bucket.objects(JOBS_PREFIX), self.bucket.objects(CHECKPOINTS_PREFIX)],
            bucket_arns=[self.bucket.bucket_arn, *buckets],
            secret_arn=None if settings.network_isolation else self.token.secret_arn,
            key_arn=self.key.key_arn if self.key else None,
            input_key_arns=settings.input_kms_keys,
            is_in_vpc=settings.uses_vpc,
        )

    def _objects(self, place: str) -> str:
        return self.format_arn(service="s3", region="", account="", resource=place)

    def _tag(self, settings: DeploySettings) -> None:
        Tags.of(self).add("counterpoise:stack", settings.name)
        for key, value in settings.tags.items():
            # See ImagePointer: a tag that changes would take the current image back.
            Tags.of(self).add(key, value, exclude_resource_types=["AWS::SSM::Parameter"])

    def _tell(self, settings: DeploySettings) -> None:
        machine = self.workflow.state_machine.state_machine_arn
        home = f"https://{self.region}.console.aws.amazon.com/states/home"
        chosen = "" if settings.name == DeploySettings().name else f" --stack {settings.name}"
        outputs = {
            "StateMachineArn": ("The workflow; start an execution of it with {}", machine),
            "ConsoleLink": ("The same in the console", f"{home}?region={self.region}#/statemachines/view/{machine}"),
            "RepositoryUri": ("Where the image is pushed to", self.repository.repository_uri),
            "RepositoryName": ("Its name", self.repository.repository_name),
            "BucketName": ("Input data, models, checkpoints and reports", self.bucket.bucket_name),
            "ImageParameterName": ("What says which image is current", self.image.parameter_name),
            "TrainingRoleArn": ("What training jobs run as", self.training_role.role_arn),
            "LogGroupName": ("The log of the workflow", self.workflow.log_group.log_group_name),
            "NextCommand": ("What to type next", f"counterpoise image push{chosen}"),
        }
        for name, (description, value) in outputs.items():
            CfnOutput(self, name, description=description, value=value)
