"""`counterpoise doctor`: every check in its order, and with each that fails the command that mends it."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.client.aws import Aws
from infra.client.doctor import doctor
from infra.client.listing import list_executions
from infra.client.logs import logs
from infra.client.pace import Pace
from infra.client.permissions import needed_actions
from infra.client.report import report
from infra.client.stack import find_stack
from infra.client.start import Wish, start
from infra.client.stop import stop
from infra.client.waiting import wait
from tests.client.conftest import Ended
from tests.client.deployed import ACCOUNT, DIGEST, REPOSITORY, Deployed, FakeExecution
from tests.client.fake_aws import Fault, Parameters
from training.contract import RunConfig

Call = Callable[..., Ended]
USER = f"arn:aws:iam::{ACCOUNT}:user/ci"
QUOTAS = {"ml.g5.xlarge for training job usage": 2.0, "ml.c5.4xlarge for training job usage": 4.0}


@pytest.fixture
def healthy(deployed: Deployed) -> Deployed:
    """Everything in order for the article's experiment."""
    deployed.fake.answers |= {
        "GetCallerIdentity": {"Arn": USER, "Account": ACCOUNT, "UserId": "x"},
        "ListServiceQuotas": quotas(QUOTAS),
        "SimulatePrincipalPolicy": simulate(denied=()),
    }
    return deployed


def quotas(values: dict[str, float]) -> Callable[[Parameters], dict[str, Any]]:
    """A quota a page, among others."""
    listed = [{"QuotaName": name, "QuotaCode": f"L-{len(name)}", "Value": value} for name, value in values.items()]

    def answer(asked: Parameters) -> dict[str, Any]:
        assert asked["ServiceCode"] == "sagemaker"
        page = int(asked.get("NextToken", 0))
        more = {"NextToken": str(page + 1)} if page + 1 < len(listed) else {}
        return {"Quotas": listed[page : page + 1], **more}

    return answer


def simulate(denied: tuple[str, ...]) -> Callable[[Parameters], dict[str, Any]]:
    def answer(asked: Parameters) -> dict[str, Any]:
        actions = [value for key, value in asked.items() if key.startswith("ActionNames")]
        decisions = [("explicitDeny" if action in denied else "allowed", action) for action in actions]
        results = [{"EvalActionName": action, "EvalDecision": decision} for decision, action in decisions]
        return {"EvaluationResults": results, "IsTruncated": False}

    return answer


def checks(call: Call, **config: Any) -> tuple[Ended, dict[str, tuple[str, str]]]:
    ended = call(doctor, RunConfig.parse(config), as_json=True)
    found = json.loads(ended.stdout)
    assert found["ok"] == (ended.exit_code == 0)
    return ended, {check["check"]: (check["state"], check["detail"]) for check in found["checks"]}


def test_a_healthy_set_up_passes_every_check(call: Call, healthy: Deployed) -> None:
    ended, found = checks(call)
    assert ended.exit_code == 0
    assert found == {
        "credentials": ("ok", f"{USER} in us-east-1"),
        "bootstrap": ("ok", "version 30"),
        "stack": ("ok", "counterpoise is deployed"),
        "image": ("ok", f"{REPOSITORY}@{DIGEST}"),
        "quota": ("ok", "ml.g5.xlarge for training job usage: 2, ml.c5.4xlarge for training job usage: 4"),
        "permissions": ("ok", f"{USER} may start, watch and stop jobs and push images"),
    }
    assert call(doctor, RunConfig()).stdout.splitlines()[1] == "ok      bootstrap: version 30"
    assert healthy.fake.called("PutParameter") == []


SMALL = {"ml.g5.xlarge for training job usage": 0.0, "ml.c5.4xlarge for training job usage": 1.0}
BREAKAGES = [
    (
        "GetParameter",
        Fault("ParameterNotFound"),
        "bootstrap",
        "the CDK has not been set up in this account and region: `npx aws-cdk bootstrap aws://123456789012/us-east-1`",
    ),
    (
        "DescribeImages",
        Fault("ImageNotFoundException"),
        "image",
        (
            f"image: {REPOSITORY}@{DIGEST} is not in the repository {REPOSITORY}; build and push one with:"
            " counterpoise image build && counterpoise image push"
        ),
    ),
    (
        "ListServiceQuotas",
        quotas(SMALL),
        "quota",
        (
            "ml.g5.xlarge for training job usage is 0, the run needs 1; ask for more: `aws service-quotas"
            " request-service-quota-increase --service-code sagemaker --quota-code L-35 --desired-value 1`"
        ),
    ),
    (
        "SimulatePrincipalPolicy",
        simulate(denied=("states:StopExecution",)),
        "permissions",
        (
            f"{USER} may not states:StopExecution on arn:aws:states:us-east-1:{ACCOUNT}:execution:counterpoise:doctor;"
            " allow it, for example with `aws iam put-user-policy`"
        ),
    ),
]


@pytest.mark.parametrize(("operation", "answer", "check", "line"), BREAKAGES, ids=[check for *_, check, _ in BREAKAGES])
def test_what_is_broken_is_named_with_what_mends_it(
    call: Call, healthy: Deployed, operation: str, answer: Any, check: str, line: str
) -> None:
    healthy.fake.answers[operation] = answer
    ended, found = checks(call)
    assert ended.exit_code == 3
    assert found[check] == ("failed", line)
    # One broken parameter answer breaks the image's parameter as well; nothing else.
    assert {name for name, (state, _) in found.items() if state == "failed"} <= {check, "image"}
    assert len(found) == 6


def test_what_the_caller_may_not_see_fails_nothing(call: Call, healthy: Deployed) -> None:
    healthy.fake.answers |= dict.fromkeys(
        ("ListServiceQuotas", "SimulatePrincipalPolicy"), Fault("AccessDeniedException", "User: me is not authorized")
    )
    ended, found = checks(call)
    assert ended.exit_code == 0
    assert [state for state, _ in found.values()] == ["ok", "ok", "ok", "ok", "unknown", "unknown"]
    assert found["quota"][1] == (
        "the account's quotas could not be read: the caller has no permission for servicequotas:ListServiceQuotas"
    )


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault("400", ""), "the answer was 400 without a reason"),
        (
            Fault("ThrottlingException", "Rate exceeded"),
            "AWS is throttling ListServiceQuotas (Rate exceeded); repeat the command in a minute",
        ),
    ],
)
def test_quotas_that_nobody_can_read_are_told_in_a_sentence(
    call: Call, healthy: Deployed, fault: Fault, reason: str
) -> None:
    healthy.fake.answers["ListServiceQuotas"] = fault
    ended, found = checks(call)
    assert ended.exit_code == 0
    assert found["quota"] == ("unknown", f"the account's quotas could not be read: {reason}")


@pytest.mark.parametrize(
    ("operation", "num_checks"), [("GetCallerIdentity", 1), ("DescribeStacks", 3)], ids=["credentials", "stack"]
)
def test_what_everything_else_needs_ends_the_round(
    call: Call, healthy: Deployed, operation: str, num_checks: int
) -> None:
    healthy.fake.answers[operation] = Fault("ExpiredToken", "The security token is expired")
    ended, found = checks(call)
    assert ended.exit_code == 3
    assert len(found) == num_checks
    assert [state for state, _ in found.values()][-1] == "failed"


def test_the_quotas_are_those_of_the_run(call: Call, healthy: Deployed) -> None:
    groups = [{"name": name, "instance_type": "ml.g5.2xlarge", "instance_count": 2} for name in ("a", "b")]
    healthy.fake.answers["ListServiceQuotas"] = quotas({"ml.g5.2xlarge for spot training job usage": 3})
    _, found = checks(call, instance_groups=groups, spot=True, max_wait_seconds=7200)
    state, detail = found["quota"]
    assert state == "failed"
    assert detail.startswith("ml.g5.2xlarge for spot training job usage is 3, the run needs 4; ")


def test_a_session_is_judged_by_its_role_and_root_by_nothing(call: Call, healthy: Deployed) -> None:
    role = f"arn:aws:iam::{ACCOUNT}:role/teams/vision/trainer"
    session = f"arn:aws:sts::{ACCOUNT}:assumed-role/trainer/me"
    healthy.fake.answers |= {
        "GetCallerIdentity": {"Arn": session, "Account": ACCOUNT, "UserId": "x"},
        "GetRole": {"Role": {"Arn": role, "Path": "/teams/vision/", "RoleName": "trainer"}},
    }
    _, found = checks(call)
    assert found["permissions"][0] == "ok"
    assert {asked["PolicySourceArn"] for asked in healthy.fake.called("SimulatePrincipalPolicy")} == {role}
    healthy.fake.calls.clear()
    healthy.fake.answers["GetCallerIdentity"] = {"Arn": f"arn:aws:iam::{ACCOUNT}:root", "Account": ACCOUNT}
    _, found = checks(call)
    assert found["permissions"] == ("ok", "the account's root may do everything")
    assert healthy.fake.called("SimulatePrincipalPolicy") == []


def test_every_call_of_a_command_is_among_the_permissions_asked_for(call: Call, deployed: Deployed, aws: Aws) -> None:
    job = deployed.add_job("counterpoise-x-0123456789-t1")
    report_uri = {"report": "s3://counterpoise-output/reports/x.json"}
    deployed.fake.answers["GetObject"] = {"Body": json.dumps({"arms": {}}).encode()}
    deployed.logs[f"{job}/algo-1-1"] = [(1, "line")]
    deployed.add(FakeExecution("x", jobs=[job], end={"status": "SUCCEEDED", "output": json.dumps(report_uri)}))
    deployed.add(FakeExecution("y", looks_left=99))
    pace = Pace(poll_seconds=0.01, timeout_seconds=9)
    wish = Wish(source=None, mode=None, settings=(), name=None, stdin=io.StringIO())
    endings = [
        call(start, wish, None, is_dry_run=False),
        call(list_executions, 2),
        call(wait, "x", pace),
        call(logs, "x", pace, is_following=True),
        call(report, "x", Path(os.devnull)),
        call(stop, "y", pace, is_dry_run=False),
    ]
    assert [ended.exit_code for ended in endings] == [0, 0, 0, 0, 2, 0]
    called = {operation for operation, _ in deployed.fake.calls} - {"DescribeStacks"}  # the check before
    actions = [
        action for each in needed_actions(find_stack(aws, "counterpoise"), aws.region).values() for action in each
    ]
    assert called <= {action.partition(":")[2] for action in actions}
