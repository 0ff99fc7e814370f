"""The commands on the real template in an embedded AWS, whose workflow, jobs and logs nobody wrote for this suite."""

import io
import json
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from infra.client.aws import Aws
from infra.client.doctor import doctor
from infra.client.executions import console_link, execution_arn
from infra.client.logs import logs
from infra.client.pace import Pace
from infra.client.report import report
from infra.client.stack import find_stack
from infra.client.start import Wish, start
from infra.client.status import status
from infra.client.stop import stop
from infra.client.waiting import wait
from infra.local.aws.server import EmbeddedAws
from tests.client.conftest import Ended, LoopbackSession, caller
from tests.embedded import fake_runner
from tests.embedded.clients import until
from tests.embedded.deployment import Deployment
from tests.embedded.scenarios import Scenarios
from training.contract import ContractError, RunConfig

Call = Callable[..., Ended]
WAIT_SCALE = 0.02  # a poll of 1 s takes 20 ms
PACE = Pace(poll_seconds=0.1, timeout_seconds=60)
RESULT = "counterpoise: event=result images_per_second={} step_seconds=0.30000000000000004 steps=12 loss=6.9e-05"
RESULTS_FILE = {"images_per_second": 47.22384758312345}


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Scenarios:
    """Says what jobs do; without a word from a test they complete at once."""
    return Scenarios(tmp_path_factory.mktemp("scenarios"))


@pytest.fixture(scope="module")
def deployment(scenarios: Scenarios, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """An AWS of this suite's own, so that nobody else's executions are in it."""
    folder = tmp_path_factory.mktemp("aws")
    runner = [sys.executable, "-S", fake_runner.__file__, "--scenarios", str(scenarios.directory)]
    with EmbeddedAws(runner_command=runner, wait_scale=WAIT_SCALE, work_dir=folder) as aws:
        yield Deployment.create(aws, folder / "cdk")


@pytest.fixture
def aws(deployment: Deployment) -> Aws:
    variables = deployment.aws.environment
    keys = {name.lower(): variables[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    region = variables["AWS_REGION"]
    return Aws(LoopbackSession(boto3.Session(region_name=region, **keys), deployment.aws.endpoint), region)


@pytest.fixture
def call(aws: Aws) -> Call:
    return caller(aws)


@pytest.fixture
def name() -> str:
    """A name that no execution of this session has."""
    return f"client-{uuid.uuid4().hex[:8]}"


def begin(call: Call, name: str, *settings: str, source: str = "{}") -> Ended:
    wish = Wish(source=source, mode=None, settings=settings, name=name, stdin=io.StringIO())
    return call(start, wish, None, is_dry_run=False, as_json=True)


def lines_of(*lines: str | dict[str, str]) -> list[str | dict[str, str]]:
    """What two hosts print, of which the first is a GPU host."""
    first = "counterpoise: event=start host={0} group={1} type=x role=y"
    return [first.format("algo-1", "gpu"), {"host": "algo-2", "line": first.format("algo-2", "cpu")}, *lines]


def test_a_comparison_is_started_once_awaited_and_reported_to_the_digit(
    call: Call, aws: Aws, scenarios: Scenarios, name: str, tmp_path: Path
) -> None:
    baseline, heterogeneous = 20.000000000000004, 47.22384758312345
    output = {"data/results.json": json.dumps(RESULTS_FILE)}
    jobs: list[dict[str, Any]] = [
        {"lines": lines_of(RESULT.format(baseline))},
        {"lines": lines_of(RESULT.format(heterogeneous)), "output": output},
    ]
    scenarios.set(name, *jobs)
    first = begin(call, name, "mode=compare")
    assert first.exit_code == 0, first.stderr
    assert call(wait, name, PACE).exit_code == 0
    again = begin(call, name, source='{"mode": "compare"}')
    assert json.loads(again.stdout)["execution_arn"] == json.loads(first.stdout)["execution_arn"]
    other = begin(call, name)
    assert (other.exit_code, "another input" in other.stderr) == (2, True)

    shown = json.loads(call(status, name, as_json=True).stdout)
    assert [(job["arm"], job["status"]) for job in shown["jobs"]] == [
        ("baseline", "Completed"),
        ("heterogeneous", "Completed"),
    ]
    reported = call(report, name, tmp_path, as_json=True)
    assert json.loads(reported.stdout) == json.loads((tmp_path / "report.json").read_text()) == shown["output"]
    assert json.loads((tmp_path / "heterogeneous" / "results.json").read_text()) == RESULTS_FILE
    arms = shown["output"]["arms"]
    assert [arms[arm]["metrics"]["images_per_second"] for arm in arms] == [baseline, heterogeneous]
    assert shown["output"]["results"]["speedup"] == pytest.approx(heterogeneous / baseline)
    assert "2.36" in reported.stderr, "the table"
    arn = shown["execution_arn"]
    assert arn == execution_arn(find_stack(aws, "counterpoise"), name)
    assert shown["console_link"] == console_link(arn)


def test_a_failed_job_shows_its_logs_and_its_reason(call: Call, scenarios: Scenarios, name: str) -> None:
    lines = lines_of({"host": "algo-2", "line": "out of memory"})
    scenarios.set(name, {"lines": lines, "status": "Failed", "failure": "algo-2: out of memory", "exit_code": 1})
    assert begin(call, name).exit_code == 0
    ended = call(logs, name, PACE, is_following=True)
    assert ended.exit_code == 1
    assert "cpu/algo-2 | out of memory" in ended.stdout.splitlines()
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(f"execution {name} failed: training job counterpoise-{name}-")
    assert "failed: AlgorithmError: algo-2: out of memory" in last
    assert call(wait, name, PACE).exit_code == 1


def test_stopping_an_execution_stops_its_job(call: Call, scenarios: Scenarios, name: str) -> None:
    scenarios.set(name, {"lines": lines_of("working"), "is_held": True, "status_after_stop": "Stopped"})
    begin(call, name)
    short = Pace(poll_seconds=0.1, timeout_seconds=0)
    until(lambda: "working" in call(logs, name, short, is_following=False).stdout, "the job says that it works")
    assert call(wait, name, short).exit_code == 124
    ended = call(stop, name, PACE, is_dry_run=False, as_json=True)
    assert ended.exit_code == 0, ended.stderr
    stopped = json.loads(ended.stdout)
    assert stopped["status"] == "ABORTED"
    assert [job["status"] in ("Stopping", "Stopped") for job in stopped["jobs"]] == [True]
    assert call(wait, name, PACE).exit_code == 1


def test_an_execution_refuses_in_the_words_of_the_command(
    call: Call, deployment: Deployment, aws: Aws, name: str
) -> None:
    bad = '{"trainin": {}, "training": {"steps": 0}, "spot": true}'
    with pytest.raises(ContractError) as refused:
        RunConfig.parse_json(bad)
    # As somebody in the console would: without this command's check.
    aws.call(
        "stepfunctions", "StartExecution", stateMachineArn=deployment.outputs["StateMachineArn"], name=name, input=bad
    )
    ended = call(wait, name, PACE)
    assert ended.exit_code == 1
    assert "\n".join(refused.value.problems) in ended.stderr
    assert json.loads(call(status, name, as_json=True).stdout)["jobs"] == []


def test_data_outside_the_roles_reach_is_refused_before_a_job_exists(
    call: Call, aws: Aws, deployment: Deployment
) -> None:
    bucket, own = f"data-{uuid.uuid4().hex[:8]}", deployment.outputs["BucketName"]
    aws.call("s3", "CreateBucket", Bucket=bucket)
    aws.call("s3", "PutObject", Bucket=bucket, Key="cats/1.jpg", Body=b"x")
    aws.call("s3", "PutObject", Bucket=own, Key="data/cats/1.jpg", Body=b"x")

    def tried(uri: str) -> Ended:
        channel = {"name": "training", "s3_uri": uri}
        wish = Wish(source=json.dumps({"channels": [channel]}), mode=None, settings=(), name=None, stdin=io.StringIO())
        return call(start, wish, None, is_dry_run=True)

    assert tried(f"s3://{own}/data/cats").exit_code == 0
    refused = tried(f"s3://{bucket}/cats")
    assert refused.exit_code == 2
    assert f"s3://{bucket}/cats is not readable by the role {deployment.outputs['TrainingRoleArn']}" in refused.stderr
    missing = tried(f"s3://{bucket}-none/cats")
    assert missing.exit_code == 2
    assert "names a bucket that does not exist" in missing.stderr


def test_the_doctor_finds_the_deployed_stack_in_order(call: Call) -> None:
    ended = call(doctor, RunConfig(), as_json=True)
    assert ended.exit_code == 0, ended.stdout
    found = {check["check"]: check for check in json.loads(ended.stdout)["checks"]}
    assert {name for name, check in found.items() if check["state"] != "ok"} == {"quota"}
    # The emulator has no quotas, and does not even say so.
    assert found["quota"]["detail"] == "the account's quotas could not be read: the answer was 400 without a reason"
