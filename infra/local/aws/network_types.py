"""CloudFormation's types for the rules of a security group and for flow logs, which MiniStack does not provision."""

import secrets
from collections.abc import Callable
from typing import Any

from ministack.services import ec2
from ministack.services.cloudformation import provisioners

Properties = dict[str, Any]
Created = tuple[str, dict[str, Any]]


def add_network_types() -> None:
    """Adds them; a template that creates a network has all three."""
    provisioners._RESOURCE_HANDLERS.update(
        {
            "AWS::EC2::SecurityGroupIngress": _rule_type("IpPermissions"),
            "AWS::EC2::SecurityGroupEgress": _rule_type("IpPermissionsEgress"),
            "AWS::EC2::FlowLog": {"create": _create_flow_log, "delete": _delete_flow_log},
        }
    )


def _rule_type(direction: str) -> dict[str, Callable[..., Any]]:
    def create(_logical_id: str, properties: Properties, _stack_name: str) -> Created:
        ec2._security_groups[properties["GroupId"]][direction] += provisioners._ec2_sg_permissions([properties])
        rule_id = f"sgr-{secrets.token_hex(8)}"
        return rule_id, {"Id": rule_id}

    def delete(_physical_id: str, properties: Properties) -> None:
        group = ec2._security_groups.get(properties["GroupId"])
        [rule] = provisioners._ec2_sg_permissions([properties])
        if group and rule in group[direction]:
            group[direction].remove(rule)

    return {"create": create, "delete": delete}


def _create_flow_log(_logical_id: str, properties: Properties, _stack_name: str) -> Created:
    flow_log_id = f"fl-{secrets.token_hex(8)}"
    ec2._flow_logs[flow_log_id] = {
        "FlowLogId": flow_log_id,
        "ResourceId": properties["ResourceId"],
        "ResourceType": properties["ResourceType"],
        "TrafficType": properties.get("TrafficType", "ALL"),
        "LogDestinationType": properties.get("LogDestinationType", "cloud-watch-logs"),
        "LogDestination": properties.get("LogDestination") or properties.get("LogGroupName", ""),
        "FlowLogStatus": "ACTIVE",
        "CreationTime": ec2._now_ts(),
    }
    return flow_log_id, {"Id": flow_log_id}


def _delete_flow_log(physical_id: str, _properties: Properties) -> None:
    ec2._flow_logs.pop(physical_id, None)
