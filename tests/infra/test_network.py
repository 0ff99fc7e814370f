"""The stack's own VPC: hosts reach one another and S3, and the internet neither way."""

from tests.infra.synthesis import Synthesis, text


def test_no_network_unless_asked_for(defaults: Synthesis, existing: Synthesis) -> None:
    for stack in (defaults, existing):
        assert [name for name in stack.template["Resources"] if name.startswith("Network")] == []
    assert defaults.stack.network is None


def test_subnets_and_groups_of_the_user_are_taken_as_they_are(existing: Synthesis) -> None:
    network = existing.stack.network
    assert network is not None
    assert list(network.subnet_ids) == ["subnet-0a1b2c3d", "subnet-0a1b2c3e"]
    assert list(network.security_group_ids) == ["sg-0a1b2c3d"]


def test_jobs_get_the_subnets_of_the_new_vpc(everything: Synthesis) -> None:
    network = everything.stack.network
    assert network is not None
    resolve = everything.stack.resolve
    subnets = [text(resolve(subnet)) for subnet in network.subnet_ids]
    assert subnets == ["${NetworkVpcTrainingSubnet1Subnet}", "${NetworkVpcTrainingSubnet2Subnet}"]
    assert [text(resolve(group)) for group in network.security_group_ids] == ["${NetworkHosts.GroupId}"]


def test_there_is_no_way_to_or_from_the_internet(everything: Synthesis) -> None:
    kinds = {resource["Type"] for resource in everything.template["Resources"].values()}
    assert not kinds & {"AWS::EC2::InternetGateway", "AWS::EC2::NatGateway", "AWS::EC2::Route", "AWS::EC2::EIP"}
    assert all(
        subnet["Properties"]["MapPublicIpOnLaunch"] is False
        for subnet in everything.resources("AWS::EC2::Subnet").values()
    )


def test_hosts_admit_one_another_and_nobody_else(everything: Synthesis) -> None:
    assert "SecurityGroupIngress" not in everything.only("AWS::EC2::SecurityGroup")
    ingress = everything.only("AWS::EC2::SecurityGroupIngress")
    assert ingress["IpProtocol"] == "-1"
    assert text(ingress["GroupId"]) == text(ingress["SourceSecurityGroupId"]) == "${NetworkHosts.GroupId}"


def test_hosts_reach_one_another_and_https(everything: Synthesis) -> None:
    egress = everything.only("AWS::EC2::SecurityGroupEgress")
    assert text(egress["GroupId"]) == text(egress["DestinationSecurityGroupId"]) == "${NetworkHosts.GroupId}"
    [https] = everything.only("AWS::EC2::SecurityGroup")["SecurityGroupEgress"]
    assert (https["IpProtocol"], https["FromPort"], https["ToPort"]) == ("tcp", 443, 443)


def test_every_subnet_reaches_s3(everything: Synthesis) -> None:
    endpoint = everything.only("AWS::EC2::VPCEndpoint")
    assert endpoint["VpcEndpointType"] == "Gateway"
    assert text(endpoint["ServiceName"]) == "com.amazonaws.REGION.s3"
    tables = {text(table) for table in endpoint["RouteTableIds"]}
    associations = everything.resources("AWS::EC2::SubnetRouteTableAssociation").values()
    assert {text(association["Properties"]["RouteTableId"]) for association in associations} == tables


def test_hosts_that_may_call_aws_reach_the_secret_of_their_token(vpc: Synthesis) -> None:
    endpoints = [endpoint["Properties"] for endpoint in vpc.resources("AWS::EC2::VPCEndpoint").values()]
    [secrets] = [endpoint for endpoint in endpoints if endpoint["VpcEndpointType"] == "Interface"]
    assert text(secrets["ServiceName"]) == "com.amazonaws.REGION.secretsmanager"
    assert secrets["PrivateDnsEnabled"] is True
    assert [text(group) for group in secrets["SecurityGroupIds"]] == ["${NetworkHosts.GroupId}"]
    assert len(secrets["SubnetIds"]) == 2
    # The endpoint is a member of the hosts' group, which admits its members and nobody else.
    assert "SecurityGroupIngress" not in vpc.only("AWS::EC2::SecurityGroup")


def test_flows_are_recorded_and_expire(everything: Synthesis) -> None:
    assert everything.only("AWS::EC2::FlowLog")["TrafficType"] == "ALL"
    assert everything.resources("AWS::Logs::LogGroup")["NetworkFlows"]["Properties"]["RetentionInDays"] == 7
