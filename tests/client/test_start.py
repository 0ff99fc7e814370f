"""`counterpoise start`: the input is checked before AWS is asked, and a name stands for one execution for ever."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from infra.client.names import execution_name
from infra.client.pace import Pace
from infra.client.start import Wish, start
from tests.client.conftest import Ended
from tests.client.deployed import DIGEST, MACHINE, POINTER, REPOSITORY, ROLE, Deployed, FakeExecution, execution_arn
from tests.client.fake_aws import FakeAws, Fault

Call = Callable[..., Ended]

pytestmark = pytest.mark.usefixtures("deployed")


def wish(source: str | None = None, name: str | None = None, **more: Any) -> Wish:
    return Wish(**{"source": source, "mode": None, "settings": (), "name": name, "stdin": None, **more})


def run(
    call: Call, wanted: Wish, *, as_json: bool = False, is_dry_run: bool = False, pace: Pace | None = None
) -> Ended:
    return call(start, wanted, pace, is_dry_run=is_dry_run, as_json=as_json)


def test_an_execution_is_started_with_the_input_as_it_was_given(call: Call, fake: FakeAws) -> None:
    ended = run(call, wish('{"training": {"steps": 5}}', name="nightly"), as_json=True)
    assert ended.exit_code == 0
    assert fake.called("StartExecution") == [
        {"stateMachineArn": MACHINE, "name": "nightly", "input": '{"training": {"steps": 5}}'}
    ]
    assert json.loads(ended.stdout) | {"console_link": ""} == {
        "execution_arn": execution_arn("nightly"),
        "name": "nightly",
        "status": "RUNNING",
        "console_link": "",
    }
    assert "counterpoise logs nightly --follow" in ended.stderr


def test_without_a_name_every_start_is_a_new_execution(call: Call, deployed: Deployed) -> None:
    assert [run(call, wish(mode="compare")).exit_code for _ in range(2)] == [0, 0]
    assert len(deployed.executions) == 2
    assert all(name.startswith("compare-") for name in deployed.executions)


@pytest.mark.parametrize("looks", [0, 100], ids=["has ended", "still runs"])
@pytest.mark.parametrize("second", ["{}", '{ "mode": "train" }'], ids=["same text", "same run in other words"])
def test_the_same_name_and_run_are_one_execution(call: Call, deployed: Deployed, looks: int, second: str) -> None:
    deployed.start_looks = looks
    first = run(call, wish("{}", name="abc"), as_json=True)
    again = run(call, wish(second, name="abc"), as_json=True)
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert json.loads(again.stdout)["execution_arn"] == json.loads(first.stdout)["execution_arn"]
    assert list(deployed.executions) == ["abc"]


def test_another_input_under_the_same_name_is_refused_in_one_line(call: Call, deployed: Deployed) -> None:
    deployed.add(FakeExecution("abc", '{"training": {"steps": 5}}'))
    ended = run(call, wish("{}", name="abc"), as_json=True)
    assert ended.exit_code == 2
    line = (
        "--name: abc is an execution with another input (succeeded); take another name, or see it:"
        " `counterpoise status abc`"
    )
    assert ended.stderr == line + "\n"
    assert json.loads(ended.stdout) == {"error": {"exit_code": 2, "lines": [line]}}


def test_a_name_that_step_functions_refuses_is_mapped_and_shown(call: Call, deployed: Deployed) -> None:
    wanted = "Mein Lauf: größer/" + "x" * 90
    mapped = execution_name(wanted)
    for _ in range(2):
        ended = run(call, wish(name=wanted))
        assert ended.exit_code == 0
        assert f"is called {mapped} by Step Functions" in ended.stderr
    assert list(deployed.executions) == [mapped]


def test_a_dry_run_prints_exactly_what_would_be_sent_and_sends_nothing(call: Call, fake: FakeAws) -> None:
    ended = run(call, wish("{}", name="abc"), is_dry_run=True)
    assert fake.called("StartExecution") == []
    request = json.loads(ended.stdout)
    assert json.loads(run(call, wish("{}", name="abc"), is_dry_run=True, as_json=True).stdout) == [request]
    run(call, wish("{}", name="abc"))
    assert request == {
        "service": "stepfunctions",
        "operation": "StartExecution",
        "parameters": fake.called("StartExecution")[0],
    }


def test_wrong_input_costs_no_call_of_aws(call: Call, fake: FakeAws) -> None:
    ended = run(call, wish('{"trainin": {}, "training": {"steps": 0}}'))
    assert ended.exit_code == 2
    assert ended.stderr.splitlines() == [
        "training.steps: 0 is out of range; allowed: 1 to 10000000 or null; set it in that range",
        "trainin: unknown setting; nearest: training; see docs/settings.md",
    ]
    assert fake.calls == []


def test_the_image_has_to_be_there(call: Call, deployed: Deployed, fake: FakeAws) -> None:
    push = "build and push one with: counterpoise image build && counterpoise image push"
    fake.answers["DescribeImages"] = Fault("ImageNotFoundException")
    ended = run(call, wish())
    assert (ended.exit_code, ended.stderr) == (
        2,
        f"image: {REPOSITORY}@{DIGEST} is not in the repository {REPOSITORY}; {push}\n",
    )
    deployed.parameters[POINTER] = "none"
    ended = run(call, wish())
    assert ended.stderr == f"image: none has been pushed to the repository {REPOSITORY}; {push}\n"
    assert deployed.executions == {}


def test_who_may_not_look_at_the_image_may_start(call: Call, fake: FakeAws) -> None:
    fake.answers["GetParameter"] = Fault("AccessDeniedException")
    assert run(call, wish()).exit_code == 0


CHANNEL = '{"channels": [{"name": "training", "s3_uri": "s3://pictures/cats/"}]}'


@pytest.fixture
def data(fake: FakeAws) -> FakeAws:
    """Data that is there, in the stack's region, and that the training role may read."""
    fake.answers |= {
        "HeadBucket": {"BucketRegion": "us-east-1"},
        "ListObjectsV2": {"KeyCount": 1, "Contents": {"Key": "cats/1.jpg"}},
        "SimulatePrincipalPolicy": simulation("allowed"),
    }
    return fake


def simulation(decision: str) -> dict[str, Any]:
    return {
        "EvaluationResults": [{"EvalActionName": "s3:GetObject", "EvalDecision": decision}],
        "IsTruncated": False,
    }


@pytest.mark.usefixtures("data")
def test_data_that_can_be_read_is_no_obstacle(call: Call) -> None:
    ended = run(call, wish(CHANNEL))
    assert ended.exit_code == 0
    assert "pictures" not in ended.stderr


@pytest.mark.parametrize(
    ("operation", "answer", "line"),
    [
        (
            "HeadBucket",
            Fault("NoSuchBucket", http_status=404),
            "names a bucket that does not exist; the stack's own is s3://counterpoise-output/data/",
        ),
        (
            "HeadBucket",
            {"BucketRegion": "eu-west-1"},
            (
                "is in eu-west-1, the job in us-east-1;"
                " copy it: `aws s3 sync s3://pictures/cats/ s3://counterpoise-output/data/`"
            ),
        ),
        ("ListObjectsV2", {"KeyCount": 0}, "holds no object; list the bucket: `aws s3 ls s3://pictures/`"),
        (
            "SimulatePrincipalPolicy",
            simulation("implicitDeny"),
            (
                f"is not readable by the role {ROLE};"
                """ deploy with -c counterpoise:input_s3_uris='["s3://pictures/cats/"]'"""
            ),
        ),
    ],
)
def test_data_that_cannot_be_read_is_refused_before_anything_starts(
    call: Call, deployed: Deployed, data: FakeAws, operation: str, answer: Any, line: str
) -> None:
    data.answers |= {"GetBucketPolicy": Fault("NoSuchBucketPolicy", http_status=404), operation: answer}
    ended = run(call, wish(CHANNEL))
    assert (ended.exit_code, ended.stderr) == (2, f"channels[0].s3_uri: s3://pictures/cats/ {line}\n")
    training = {"dataset": "parquet", "data_uri": "s3://pictures/cats/"}
    ended = run(call, wish(json.dumps({"training": training})))
    assert (ended.exit_code, ended.stderr) == (2, f"training.data_uri: s3://pictures/cats/ {line}\n")
    assert deployed.executions == {}


def test_a_bucket_policy_may_let_the_role_in(call: Call, data: FakeAws) -> None:
    data.answers |= {
        "SimulatePrincipalPolicy": simulation("implicitDeny"),
        "GetBucketPolicy": {"Policy": json.dumps({"Principal": {"AWS": ROLE}})},
    }
    assert run(call, wish(CHANNEL)).exit_code == 0


def test_data_that_the_caller_may_not_see_is_left_to_the_job(call: Call, data: FakeAws) -> None:
    data.answers["HeadBucket"] = Fault("Forbidden", http_status=403)
    ended = run(call, wish(CHANNEL))
    assert ended.exit_code == 0
    assert "channels[0].s3_uri: s3://pictures/cats/ was not checked: no permission for HeadBucket" in ended.stderr
