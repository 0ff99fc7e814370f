"""Step Functions as MiniStack has it after the mends: what the workflow relies on works as AWS documents it."""

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra.local.aws.server import EmbeddedAws
from tests.embedded.clients import Clients, until
from tests.embedded.jobs import BUCKET, Jobs, job_arn, trust
from tests.embedded.machines import TASK, Machines, execution_arn, machine, statement

ROLE_OF_NOBODY = "arn:aws:iam::000000000000:role/nobody"
DONE = {"Type": "Succeed"}
WAIT = {"Type": "Wait", "Seconds": 10_000_000, "Next": "Done"}  # longer than any test, scaled or not


def describe_job(name: str, **fields: Any) -> dict[str, Any]:
    """A task that describes a training job."""
    return {
        "Type": "Task",
        "Resource": f"{TASK}:sagemaker:describeTrainingJob",
        "Arguments": {"TrainingJobName": name},
        "Next": "Done",
        **fields,
    }


def test_output_variables_and_context(machines: Machines) -> None:
    start = {
        "Type": "Pass",
        "Assign": {"a": 1, "b": 2},
        "Output": "{% $states.input %}",
        "Next": "Swap",
    }
    swap = {"Type": "Pass", "Assign": {"a": "{% $b %}", "b": "{% $a %}"}, "Next": "Done"}
    execution = "{% $states.context.Execution %}"
    done = {"Type": "Succeed", "Output": {"a": "{% $a %}", "b": "{% $b %}", "execution": execution}}
    ended = machines.run("context", {"Start": start, "Swap": swap, "Done": done}, {"x": 1})
    output = json.loads(ended["output"])
    assert (output["a"], output["b"]) == (2, 1), "an Assign sees the variables as they were before it"
    seen = output["execution"]
    assert (seen["Id"], seen["Name"]) == (execution_arn("context"), "first")
    assert (seen["Input"], seen["RoleArn"], seen["RedriveCount"]) == ({"x": 1}, machines.role_arn, 0)
    assert "RedriveTime" not in seen


def test_numbers_keep_every_digit(machines: Machines) -> None:
    number = 1234.5678901234567
    ended = machines.run("digits", {"Done": {"Type": "Succeed", "Output": "{% $states.input %}"}}, {"n": number})
    assert json.loads(ended["output"]) == {"n": number}


def test_throttled_call_is_tried_again(machines: Machines, jobs: Jobs, embedded_aws: EmbeddedAws) -> None:
    jobs.run("throttled-job")
    embedded_aws.inject(
        operation="DescribeTrainingJob",
        job_name="throttled-job",
        code="ThrottlingException",
        message="Rate exceeded",
        times=2,
    )
    retry = {
        "ErrorEquals": ["SageMaker.SageMakerException"],
        "IntervalSeconds": 1,
        "MaxAttempts": 3,
        "BackoffRate": 1000,
        "MaxDelaySeconds": 2,
        "JitterStrategy": "FULL",
    }
    arn = machines.start("throttled", {"Describe": describe_job("throttled-job", Retry=[retry]), "Done": DONE})
    assert machines.ended(arn)["status"] == "SUCCEEDED"
    failed = [event["taskFailedEventDetails"] for event in machines.history(arn) if event["type"] == "TaskFailed"]
    assert [details["error"] for details in failed] == ["SageMaker.SageMakerException"] * 2
    assert failed[0]["cause"].startswith("Rate exceeded (Service: SageMaker, Status Code: 400, Request ID: ")
    scheduled = next(event for event in machines.history(arn) if event["type"] == "TaskScheduled")
    details = scheduled["taskScheduledEventDetails"]
    assert (details["resourceType"], details["resource"]) == ("aws-sdk:sagemaker", "describeTrainingJob")
    assert json.loads(details["parameters"]) == {"TrainingJobName": "throttled-job"}


@pytest.mark.parametrize(
    ("resource", "arguments", "error"),
    [
        ("ecr:describeImages", {"RepositoryName": "job-images", "ImageIds": [{"ImageTag": "no"}]}, "Ecr.ImageNotFound"),
        ("ecr:describeImages", {"RepositoryName": "nothing"}, "Ecr.RepositoryNotFound"),
        ("ssm:getParameter", {"Name": "/no/parameter"}, "Ssm.ParameterNotFound"),
        ("s3:putObject", {"Bucket": "no-such-bucket", "Key": "k", "Body": ""}, "S3.NoSuchBucket"),
        ("sagemaker:describeTrainingJob", {"TrainingJobName": "nobody"}, "SageMaker.SageMaker"),
        ("sagemaker:createTrainingJob", "throttled", "SageMaker.SageMaker"),
        ("sagemaker:createTrainingJob", "without quota", "SageMaker.ResourceLimitExceeded"),
        ("sagemaker:createTrainingJob", "name in use", "SageMaker.ResourceInUse"),
    ],
)
def test_error_names(
    resource: str, arguments: Any, error: str, machines: Machines, jobs: Jobs, embedded_aws: EmbeddedAws
) -> None:
    name = f"error-{error}-{resource}-{arguments}".translate({ord(c): "-" for c in ".:/{}[]' ,"})[:60].rstrip("-")
    if isinstance(arguments, str):
        code = {"throttled": "ThrottlingException", "without quota": "ResourceLimitExceeded"}.get(arguments)
        if code:
            embedded_aws.inject(operation="CreateTrainingJob", job_name=name, code=code, message=arguments)
        else:
            jobs.run(name)
        arguments = jobs.changed({"TrainingJobName": name})
    task = {"Type": "Task", "Resource": f"{TASK}:{resource}", "Arguments": arguments, "Next": "Done"}
    ended = machines.run(name, {"Task": task, "Done": DONE})
    assert (ended["status"], ended["error"]) == ("FAILED", f"{error}Exception")
    assert "output" not in ended


def test_task_times_out_and_is_caught(machines: Machines, jobs: Jobs) -> None:
    """A task of 0 s cannot be done in time; TimeoutSeconds is an expression."""
    jobs.run("slow-job")
    catch = {
        "ErrorEquals": ["States.Timeout"],
        "Output": "{% $states.errorOutput.Error %}",
        "Next": "Done",
    }
    task = describe_job("slow-job", TimeoutSeconds="{% $states.input.limit %}", Catch=[catch], Next="Never")
    never = {"Type": "Fail", "Error": "Never"}
    arn = machines.start("times-out", {"Describe": task, "Never": never, "Done": DONE}, {"limit": 0})
    assert json.loads(machines.ended(arn)["output"]) == "States.Timeout"
    assert "TaskTimedOut" in machines.kinds(arn)


def test_too_much_data_is_not_caught(machines: Machines) -> None:
    grow = {"Type": "Pass", "Output": "{% $pad('', 262144, 'x') %}", "Next": "Done"}
    assert machines.run("too-much", {"Grow": grow, "Done": DONE})["error"] == "States.DataLimitExceeded"


def test_stopped_execution_stays_stopped(machines: Machines, clients: Clients) -> None:
    queue = watch_executions(clients, "stopped")
    arn = machines.start("stopped", {"Wait": WAIT, "Done": DONE}, {"key": "value"})
    machines.entered(arn, "Wait")
    clients.sfn.stop_execution(executionArn=arn, error="Enough", cause="by a test")
    ended = machines.ended(arn)
    assert (ended["status"], ended["error"], ended["cause"]) == ("ABORTED", "Enough", "by a test")
    assert machines.kinds(arn) == ["ExecutionStarted", "WaitStateEntered", "ExecutionAborted"]
    events = until(lambda: two(clients, queue), "both events of the execution")
    assert [event["detail"]["status"] for event in events] == ["RUNNING", "ABORTED"]
    detail = events[1]["detail"]
    assert (detail["executionArn"], detail["redriveCount"], detail["cause"]) == (arn, 0, "by a test")
    assert json.loads(detail["input"]) == {"key": "value"}


def test_redrive_goes_on_where_a_task_failed(machines: Machines, jobs: Jobs) -> None:
    first = {"Type": "Pass", "Assign": {"kept": "{% $states.input.x %}"}, "Next": "Describe"}
    done = {
        "Type": "Succeed",
        "Output": {"kept": "{% $kept %}", "execution": "{% $states.context.Execution %}"},
    }
    states = {"First": first, "Describe": describe_job("not-yet"), "Done": done}
    arn = machines.start("redriven", states, {"x": 7})
    failed = machines.ended(arn)
    assert (failed["status"], failed["redriveStatus"], failed["redriveCount"]) == ("FAILED", "REDRIVABLE", 0)
    jobs.run("not-yet")
    machines.clients.sfn.redrive_execution(executionArn=arn)
    ended = machines.ended(arn)
    output = json.loads(ended["output"])
    assert (ended["status"], ended["redriveCount"], output["kept"]) == ("SUCCEEDED", 1, 7)
    assert (output["execution"]["RedriveCount"], output["execution"]["Name"]) == (1, "first")
    assert "RedriveTime" in output["execution"]
    assert "error" not in ended
    assert ended["redriveStatusReason"] == "Execution is SUCCEEDED and cannot be redriven"
    assert machines.states(arn) == ["First", "Describe", "Describe", "Done"]
    kinds = machines.kinds(arn)
    assert kinds[kinds.index("ExecutionFailed") + 1] == "ExecutionRedriven"
    ids = [event["id"] for event in machines.history(arn)]
    assert ids == list(range(1, len(ids) + 1)), "the history is one, through all redrives"


def test_redriven_fail_state_fails_again(machines: Machines) -> None:
    states = {"Start": {"Type": "Pass", "Next": "Fail"}, "Fail": {"Type": "Fail", "Error": "No", "Cause": "still no"}}
    arn = machines.start("fails-again", states)
    machines.ended(arn)
    machines.clients.sfn.redrive_execution(executionArn=arn)
    assert machines.ended(arn)["cause"] == "still no"
    assert machines.states(arn) == ["Start", "Fail", "Fail"]


def test_redrive_of_a_stopped_execution_waits_again(machines: Machines, clients: Clients) -> None:
    arn = machines.start("waits-again", {"Wait": WAIT, "Done": DONE})
    machines.entered(arn, "Wait")
    clients.sfn.stop_execution(executionArn=arn)
    machines.ended(arn)
    clients.sfn.redrive_execution(executionArn=arn)
    until(lambda: machines.states(arn) == ["Wait", "Wait"], "the second wait")
    with pytest.raises(ClientError) as caught:
        clients.sfn.redrive_execution(executionArn=arn)
    assert caught.value.response["Error"]["Code"] == "ExecutionNotRedrivable"
    clients.sfn.stop_execution(executionArn=arn)
    assert machines.ended(arn)["status"] == "ABORTED"


def test_machine_times_out(machines: Machines) -> None:
    arn = machines.start("machine-times-out", {"Wait": WAIT, "Done": DONE}, TimeoutSeconds=1)
    ended = machines.ended(arn)
    assert (ended["status"], ended["redriveStatus"]) == ("TIMED_OUT", "REDRIVABLE")
    assert machines.kinds(arn)[-1] == "ExecutionTimedOut"


def test_same_name_and_input_is_the_same_execution(machines: Machines, clients: Clients) -> None:
    arn = machines.create("idempotent", machine({"Wait": WAIT, "Done": DONE}))
    first = clients.sfn.start_execution(stateMachineArn=arn, name="one", input='{"a": 1}')
    again = clients.sfn.start_execution(stateMachineArn=arn, name="one", input='{"a": 1}')
    assert (again["executionArn"], again["startDate"]) == (first["executionArn"], first["startDate"])
    with pytest.raises(clients.sfn.exceptions.ExecutionAlreadyExists):
        clients.sfn.start_execution(stateMachineArn=arn, name="one", input='{"a": 2}')
    clients.sfn.stop_execution(executionArn=first["executionArn"])
    with pytest.raises(clients.sfn.exceptions.ExecutionAlreadyExists):
        clients.sfn.start_execution(stateMachineArn=arn, name="one", input='{"a": 1}')


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("n" * 81, "{}", "InvalidName"),
        ("large", json.dumps("x" * 262_144), "ValidationException"),
        ("broken", "{", "InvalidExecutionInput"),
    ],
)
def test_start_is_refused(name: str, text: str, code: str, machines: Machines, clients: Clients) -> None:
    arn = machines.create(f"refuses-{name[:6]}", machine({"Done": DONE}))
    with pytest.raises(ClientError) as caught:
        clients.sfn.start_execution(stateMachineArn=arn, name=name, input=text)
    assert caught.value.response["Error"]["Code"] == code


def test_object_is_written_as_json(machines: Machines, jobs: Jobs, clients: Clients) -> None:
    assert jobs.request, "the bucket exists"
    report = {"mode": "train", "loss": 1e-05, "note": "é"}
    put = {
        "Type": "Task",
        "Resource": f"{TASK}:s3:putObject",
        "Arguments": {
            "Bucket": BUCKET,
            "Key": "reports/a b.json",
            "ContentType": "application/json",
            "Body": "{% $states.input %}",
        },
        "Next": "Done",
    }
    assert machines.run("writes", {"Put": put, "Done": DONE}, report)["status"] == "SUCCEEDED"
    written = clients.s3.get_object(Bucket=BUCKET, Key="reports/a b.json")
    assert (json.loads(written["Body"].read()), written["ContentType"]) == (report, "application/json")


def test_call_needs_a_right_of_the_machines_role(machines: Machines, jobs: Jobs, clients: Clients) -> None:
    rights = statement(["sagemaker:CreateTrainingJob"], job_arn("*")), statement(["iam:PassRole"], ROLE_OF_NOBODY)
    role = Machines.create_role(clients, "narrow-role", list(rights))
    request = jobs.changed({"TrainingJobName": "not-created"})
    create = {"Type": "Task", "Resource": f"{TASK}:sagemaker:createTrainingJob", "Arguments": request, "End": True}
    narrow = machines.create("narrow", machine({"Create": create}), role)
    ended = machines.ended(clients.sfn.start_execution(stateMachineArn=narrow, input="{}")["executionArn"])
    assert ended["error"] == "SageMaker.SageMakerException"
    needed = f"is not authorized to perform: iam:PassRole on resource: {request['RoleArn']}"
    assert needed in ended["cause"]


def test_event_starts_a_machine(machines: Machines, clients: Clients) -> None:
    """The way of the rule that stops orphaned jobs: the event's detail becomes the input of another machine."""
    stop = {
        "Type": "Map",
        "Items": "{% ['t1', 't2'] %}",
        "ItemSelector": {"name": "{% $states.input.name & '-' & $states.context.Map.Item.Value %}"},
        "ItemProcessor": {"StartAt": "One", "States": {"One": {"Type": "Pass", "End": True}}},
        "Next": "Done",
    }
    target = machines.create("reacts", machine({"Stop": stop, "Done": DONE}))
    role = clients.iam.create_role(RoleName="rule-role", AssumeRolePolicyDocument=trust("events.amazonaws.com"))
    pattern = {"source": ["aws.states"], "detail": {"status": ["ABORTED"], "name": ["to-react-on"]}}
    clients.events.put_rule(Name="react", EventPattern=json.dumps(pattern))
    rule_target = {"Id": "m", "Arn": target, "RoleArn": role["Role"]["Arn"], "InputPath": "$.detail"}
    clients.events.put_targets(Rule="react", Targets=[rule_target])
    waiting = machines.create("is-stopped", machine({"Wait": WAIT, "Done": DONE}))
    arn = clients.sfn.start_execution(stateMachineArn=waiting, name="to-react-on", input="{}")["executionArn"]
    clients.sfn.stop_execution(executionArn=arn)
    reaction = until(lambda: clients.sfn.list_executions(stateMachineArn=target)["executions"], "the reaction")[0]
    output = json.loads(machines.ended(reaction["executionArn"])["output"])
    assert output == [{"name": "to-react-on-t1"}, {"name": "to-react-on-t2"}]


def watch_executions(clients: Clients, machine_name: str) -> str:
    """The URL of a queue that gets the events of a machine's execution `first`."""
    queue = str(clients.sqs.create_queue(QueueName=f"watch-{machine_name}")["QueueUrl"])
    attributes = clients.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]
    pattern = {"source": ["aws.states"], "detail": {"executionArn": [execution_arn(machine_name)]}}
    clients.events.put_rule(Name=f"watch-{machine_name}", EventPattern=json.dumps(pattern))
    clients.events.put_targets(Rule=f"watch-{machine_name}", Targets=[{"Id": "q", "Arn": attributes["QueueArn"]}])
    return queue


def two(clients: Clients, queue: str) -> list[dict[str, Any]] | None:
    """The two messages of a queue, once both are there."""
    messages = clients.sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, VisibilityTimeout=0)
    bodies = [json.loads(message["Body"]) for message in messages.get("Messages", [])]
    return sorted(bodies, key=lambda body: body["detail"]["stopDate"] or 0) if len(bodies) == 2 else None
