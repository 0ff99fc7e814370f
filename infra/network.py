"""Where the hosts of a job are attached: to no VPC, to subnets that a user names, or to a VPC of the stack."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from infra.access import FlowLogRole
from infra.observability import ExpiringLogGroup
from infra.settings import DeploySettings

NUM_ZONES = 2  # as many as the CDK plans for a stack whose region is known at deploy only


@dataclass(frozen=True, kw_only=True)
class TrainingNetwork:
    """The VpcConfig of a training job."""

    subnet_ids: Sequence[str]
    security_group_ids: Sequence[str]

    @classmethod
    def of(cls, scope: Construct, settings: DeploySettings) -> Self | None:
        """What the settings ask for; None where the hosts are attached to no VPC."""
        if settings.subnet_ids:
            return cls(subnet_ids=settings.subnet_ids, security_group_ids=settings.security_group_ids)
        if not settings.create_vpc:
            return None
        vpc = TrainingVpc(scope, "Network", log_retention_days=settings.log_retention_days)
        if not settings.network_isolation:
            vpc.reach_secrets()
        subnets = vpc.vpc.select_subnets(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED).subnet_ids
        return cls(subnet_ids=subnets, security_group_ids=[vpc.security_group.security_group_id])


class TrainingVpc(Construct):
    """A VPC without a route to the internet, where hosts reach one another and, over its gateway endpoint, S3.

    Attributes:
        vpc: Two private subnets, each in another zone.
        security_group: Of the hosts: everything among themselves, and HTTPS.
    """

    def __init__(self, scope: Construct, construct_id: str, *, log_retention_days: int) -> None:
        super().__init__(scope, construct_id)
        self.vpc = ec2.Vpc(
            self,
            "Vpc",
            gateway_endpoints={
                "S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3),
            },
            max_azs=NUM_ZONES,
            nat_gateways=0,
            # Its rules would be removed by a Lambda function; nothing is ever attached to it.
            restrict_default_security_group=False,
            subnet_configuration=[
                ec2.SubnetConfiguration(name="Training", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED),
            ],
        )
        self.security_group = self._security_group()
        self._record_flows(log_retention_days)

    def reach_secrets(self) -> None:
        """Lets hosts read the secret of their cluster token; the endpoint is billed by the hour."""
        self.vpc.add_interface_endpoint(
            "Secrets",
            service=ec2.InterfaceVpcEndpointAwsService.SECRETS_MANAGER,
            open=False,
            security_groups=[self.security_group],
        )

    def _security_group(self) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(
            self,
            "Hosts",
            vpc=self.vpc,
            description="Hosts of training jobs: all traffic among themselves, HTTPS to S3",
            allow_all_outbound=False,
        )
        group.connections.allow_internally(ec2.Port.all_traffic(), "Ray, Gloo and NCCL use many ports")
        # The addresses of S3 are a prefix list with another id in every region; the only route out leads there.
        group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(443), "S3 through its gateway endpoint")
        return group

    def _record_flows(self, retention_days: int) -> None:
        group = ExpiringLogGroup(self, "Flows", retention_days=retention_days)
        role = FlowLogRole(self, "FlowsRole", log_group_arn=group.log_group_arn)
        destination = ec2.FlowLogDestination.to_cloud_watch_logs(group, role.without_policy_updates())
        self.vpc.add_flow_log("FlowLog", destination=destination)
