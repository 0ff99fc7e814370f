"""The command as a process: help, exit codes, and what is on which stream."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.client.cli import app, main
from infra.client.errors import MEANINGS, ExitCode
from tests.client.conftest import ROOT, Ended
from tests.client.deployed import Deployed, FakeExecution

Counterpoise = Callable[..., Ended]
LOADED_BY_HELP = """
import sys
from infra.client.cli import main
assert main(sys.argv[1:]) == 0
print("loaded:", *sorted({name.partition(".")[0] for name in sys.modules}))
"""


@pytest.mark.parametrize("arguments", [["--help"], ["start", "--help"], ["image", "push", "--help"]])
def test_help_loads_neither_aws_nor_the_training(arguments: list[str]) -> None:
    command = [sys.executable, "-W", "error", "-c", LOADED_BY_HELP, *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    loaded = set(ended.stdout.rpartition("loaded:")[2].split())
    assert loaded & {"boto3", "botocore", "aws_cdk", "torch", "ray", "numpy", "container"} == set()


def test_help_lists_every_command_and_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    for command in app.registered_commands:
        assert f" {command.name} " in words
    for code in ExitCode:
        assert f"{code.value}: {MEANINGS[code]}" in words


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["stat"], "No such command 'stat'"),
        (["status", "--jsn"], "No such option: --jsn"),
        (["wait", "--timeout", "soon"], "Invalid value for '--timeout': Input should be a valid number, "),
        (["list", "--limit", "0"], "Invalid value for '--limit': Input should be greater than or equal to 1"),
        (
            ["image", "push", "--engine", "rkt"],
            "Invalid value for '--engine': Value error, 'rkt' is not one of 'docker', 'podman', 'finch'",
        ),
    ],
)
def test_wrong_usage_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], line: str) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(line)
    assert printed.err.endswith("; see `counterpoise --help`\n")
    assert printed.err.count("\n") == 1


def test_wrong_usage_is_json_where_json_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--jsn", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["exit_code"] == 2


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    printed = capsys.readouterr()
    assert "Usage: counterpoise" in printed.out
    assert printed.err == ""


def test_a_job_is_started_awaited_and_fails(counterpoise: Counterpoise, deployed: Deployed) -> None:
    job = deployed.add_job("counterpoise-ci-0123456789-t1", "Failed", FailureReason="no space")
    end = {"status": "FAILED", "error": "JobFailed", "cause": f"training job {job} failed: no space; logs: https://x"}
    deployed.add(FakeExecution("ci", '{"training":{"steps":5}}', end=end, looks_left=2, jobs=[job]))
    start = ("start", "--name", "ci", "--set", "training.steps=5", "--wait", "--poll", "0.1", "--json")
    ended = counterpoise(*start)
    assert ended.exit_code == 1
    shown = json.loads(ended.stdout)
    assert (shown["status"], shown["jobs"][0]["failure_reason"]) == ("FAILED", "no space")
    assert f"execution ci failed: {end['cause']}" in ended.stderr.splitlines()


def test_an_input_comes_through_a_pipe_and_another_stack_by_its_variable(
    counterpoise: Counterpoise, deployed: Deployed
) -> None:
    ended = counterpoise("start", "--input", "-", "--json", stdin='{"spot": 1}', COUNTERPOISE_STACK="mine")
    assert ended.exit_code == 2
    assert json.loads(ended.stdout)["error"]["lines"] == ["spot: 1 is not true or false; allowed: true or false"]
    counterpoise("status", COUNTERPOISE_STACK="mine")
    assert [asked["StackName"] for asked in deployed.fake.called("DescribeStacks")] == ["mine"]


def test_a_time_out_is_124(counterpoise: Counterpoise, deployed: Deployed) -> None:
    deployed.add(FakeExecution("x", looks_left=10_000))
    ended = counterpoise("wait", "x", "--timeout", "0.2", "--poll", "0.1")
    assert ended.exit_code == 124
    assert ended.stderr.splitlines()[-1] == "execution x still runs, and goes on, after 0.2 s"


def test_a_reader_that_leaves_is_no_error(environment: dict[str, str], deployed: Deployed) -> None:
    job = deployed.add_job("counterpoise-x-0123456789-t1")
    deployed.add(FakeExecution("x", jobs=[job]))
    deployed.logs[f"{job}/algo-1-1"] = [(index, "x" * 60_000) for index in range(4)]
    command = [sys.executable, "-W", "error", "-m", "infra.client", "logs", "x"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == f"job {job}\n"
    assert process.returncode == 141


def test_without_an_engine_there_is_one_line(counterpoise: Counterpoise, deployed: Deployed, tmp_path: Path) -> None:
    deployed.fake.answers["BatchGetImage"] = {"images": [], "failures": []}
    ended = counterpoise("image", "push", PATH=str(tmp_path))
    assert ended.exit_code == 2
    assert ended.stderr.count("\n") == 1
    has_dockerfile = (ROOT / "container" / "Dockerfile").exists()
    assert ended.stderr.startswith("no container engine: " if has_dockerfile else "container/Dockerfile does not exist")
