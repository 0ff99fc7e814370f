"""The workflow in the template: definitions with this stack's values, logs, tracing, and the rule that stops jobs."""

import json
from typing import TYPE_CHECKING, Any

from training.advisor.prices import load_prices

if TYPE_CHECKING:
    from tests.infra.synthesis import Synthesis


def machines(synthesis: "Synthesis") -> dict[str, dict[str, Any]]:
    """The properties of the state machines by name."""
    found = synthesis.resources("AWS::StepFunctions::StateMachine").values()
    return {resource["Properties"]["StateMachineName"]: resource["Properties"] for resource in found}


def definition(properties: dict[str, Any]) -> dict[str, Any]:
    """A machine's definition, with a readable text for each reference to another resource."""
    from tests.infra.synthesis import text

    decoded: dict[str, Any] = json.loads(text(properties["DefinitionString"]))
    return decoded


def test_both_machines_are_standard_logged_and_traced(any_combination: "Synthesis") -> None:
    found = machines(any_combination)
    name = any_combination.stack.stack_name
    assert set(found) == {name, f"{name}-stop"}
    for properties in found.values():
        assert properties.get("StateMachineType", "STANDARD") == "STANDARD"
        assert properties["TracingConfiguration"] == {"Enabled": True}
        logging = properties["LoggingConfiguration"]
        assert (logging["Level"], logging["IncludeExecutionData"]) == ("ALL", True)
        assert len(logging["Destinations"]) == 1


def test_log_groups_of_machines_have_short_names_and_an_end(defaults: "Synthesis") -> None:
    groups = [group["Properties"] for group in defaults.resources("AWS::Logs::LogGroup").values()]
    names = {group.get("LogGroupName") for group in groups}
    assert {"/aws/vendedlogs/states/counterpoise", "/aws/vendedlogs/states/counterpoise-stop"} <= names
    assert all(group["RetentionInDays"] == 90 for group in groups)


def test_the_definition_holds_this_stacks_values(everything: "Synthesis") -> None:
    states = definition(machines(everything)["other"])["States"]
    assert states["ResolveImage"]["Arguments"] == {"Name": "${Image}"}
    assert states["StartJob"]["Resource"] == "arn:aws:states:::aws-sdk:sagemaker:createTrainingJob"
    request = states["StartJob"]["Arguments"]
    for words in (
        '"RoleArn": "${TrainingRole.Arn}"',
        '"EnableNetworkIsolation": true',
        '"EnableInterContainerTrafficEncryption": true',
        '"KmsKeyId": "${DataKey.Arn}"',
        '"VpcConfig": {"Subnets": ["${',
        '"Environment": {"COUNTERPOISE_ISOLATED": "1"}',
        '"team": "vision"',
    ):
        assert words in request, words
    assert "$checked.run.max_runtime_seconds > 7200" in states["IsInputValid"]["Choices"][0]["Condition"]


def test_hosts_with_a_network_are_told_where_the_secret_is_and_not_what(defaults: "Synthesis") -> None:
    request = definition(machines(defaults)["counterpoise"])["States"]["StartJob"]["Arguments"]
    assert '"Environment": {"COUNTERPOISE_CLUSTER_SECRET_ARN": "${ClusterToken}"}' in request
    assert "VpcConfig" not in request
    assert "resolve:secretsmanager" not in request


def test_prices_of_the_stacks_region_come_from_the_dated_table(defaults: "Synthesis") -> None:
    states = definition(machines(defaults)["counterpoise"])["States"]
    assert states["ResolveInput"]["Assign"]["prices"] == load_prices().usd_per_hour
    assert '$lookup($prices, "REGION")' in states["IsJobDone"]["Choices"][3]["Assign"]["finished"]


def test_the_rule_starts_the_stop_machine_for_executions_without_success(defaults: "Synthesis") -> None:
    from tests.infra.synthesis import text

    [rule] = [r["Properties"] for r in defaults.resources("AWS::Events::Rule").values()]
    assert rule["Name"] == "counterpoise-stop"
    assert rule["EventPattern"]["source"] == ["aws.states"]
    assert rule["EventPattern"]["detail-type"] == ["Step Functions Execution Status Change"]
    detail = rule["EventPattern"]["detail"]
    assert sorted(detail["status"]) == ["ABORTED", "FAILED", "TIMED_OUT"]
    assert [text(arn) for arn in detail["stateMachineArn"]] == ["${WorkflowMachine}"]
    [target] = rule["Targets"]
    assert text(target["Arn"]) == "${WorkflowStopMachine}"
    assert target["InputPath"] == "$.detail"
