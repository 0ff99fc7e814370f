"""A fake endpoint with a deployed stack, and the two ways to call a command: as a process and as a function."""

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from infra.client.aws import Aws
from infra.client.errors import CommandError, ExitCode
from infra.client.screen import Screen, Streams
from infra.client.session import Session
from tests.client.deployed import REGION, Deployed
from tests.client.fake_aws import FakeAws, serving

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it printed."""

    exit_code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class LoopbackSession:
    """A boto3 session all of whose clients go to the fake endpoint and repeat nothing."""

    boto: boto3.Session
    url: str

    def client(self, service: str, config: Config) -> Any:
        once = config.merge(Config(retries={"total_max_attempts": 1}))
        return self.boto.client(service, config=once, endpoint_url=self.url)


@pytest.fixture
def fake() -> Iterator[FakeAws]:
    with serving() as endpoint:
        yield endpoint


@pytest.fixture
def deployed(fake: FakeAws) -> Deployed:
    return Deployed(fake)


@pytest.fixture(scope="session")
def boto_session() -> boto3.Session:
    """One for all tests: it keeps the service models, which take longest to load."""
    return boto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name=REGION)


@pytest.fixture
def aws(fake: FakeAws, boto_session: boto3.Session) -> Aws:
    return Aws(LoopbackSession(boto_session, fake.url), REGION)


@pytest.fixture
def call(aws: Aws) -> Callable[..., Ended]:
    """Calls `command(session, ...)` on the fake endpoint."""
    return caller(aws)


def caller(aws: Aws) -> Callable[..., Ended]:
    """Calls `command(session, ...)` in this process, with `as_json` as --json."""

    def run(command: Callable[..., ExitCode], *arguments: Any, as_json: bool = False, **options: Any) -> Ended:
        stdout, stderr = io.StringIO(), io.StringIO()
        screen = Screen(Streams(stdin=io.StringIO(), stdout=stdout, stderr=stderr), as_json=as_json)
        session = Session(screen=screen, stack_name="counterpoise", connect=lambda: aws)
        try:
            exit_code = command(session, *arguments, **options)
        except CommandError as error:
            exit_code = screen.fail(error)
        return Ended(exit_code, stdout.getvalue(), stderr.getvalue())

    return run


@pytest.fixture
def environment(fake: FakeAws, tmp_path: Path) -> dict[str, str]:
    """The environment of a process that knows nothing of this machine's AWS configuration."""
    kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    return kept | {
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "AWS_ENDPOINT_URL": fake.url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
    }


@pytest.fixture
def counterpoise(environment: dict[str, str], tmp_path: Path) -> Callable[..., Ended]:
    """Runs `counterpoise ...` as a user does, in a folder of the test."""

    def run(*arguments: str, stdin: str = "", **variables: str | None) -> Ended:
        own = {key: value for key, value in (environment | variables).items() if value is not None}
        command = [sys.executable, "-W", "error", "-m", "infra.client", *arguments]
        ended = subprocess.run(
            command, cwd=tmp_path, env=own, input=stdin, capture_output=True, text=True, timeout=60, check=False
        )
        assert "Traceback" not in ended.stderr
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    return run
