"""The embedded AWS from outside: starts the emulator's process, says how to reach it and ends all that it started."""

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

from infra.local.aws.settings import ACCOUNT, HOST, PROJECT_ROOT, REGION, ROOT_CREDENTIALS, EmulatorSettings

EMULATOR_PYTHON = PROJECT_ROOT / ".venv-aws" / "bin" / "python"
LOCAL_RUNNER = (sys.executable, "-m", "infra.local", "job")
START_SECONDS = 30.0  # half a second on a quiet machine
STOP_SECONDS = 15.0  # more than the emulator gives its runners
_POLL_SECONDS = 0.05


class EmulatorError(RuntimeError):
    """The emulator does not start or does not answer; one line."""


class EmbeddedAws:
    """A context manager: inside it, an AWS of its own runs on a loopback port of this machine."""

    def __init__(
        self,
        *,
        runner_command: Sequence[str] = LOCAL_RUNNER,
        wait_scale: float = 1.0,
        is_iam_enforced: bool = False,
        work_dir: Path | None = None,
        port: int = 0,
    ) -> None:
        self._runner_command, self._wait_scale, self._is_iam_enforced = runner_command, wait_scale, is_iam_enforced
        self._given_dir, self._port = work_dir, port
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if not EMULATOR_PYTHON.exists():
            raise EmulatorError(f"{EMULATOR_PYTHON} does not exist; run: make setup")
        self.work_dir = self._given_dir or Path(tempfile.mkdtemp(prefix="counterpoise-aws-"))
        self.work_dir.mkdir(parents=True, exist_ok=True)
        self.settings = EmulatorSettings(
            port=self._port or _free_port(),
            runner_command=list(self._runner_command),
            work_dir=str(self.work_dir.absolute()),
            is_iam_enforced=self._is_iam_enforced,
            certificate=str(self.work_dir.absolute() / "ministack-tls" / "server.crt")
            if self._is_iam_enforced
            else None,
        )
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()  # its runners die with it
                self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()
        if self._given_dir is None:
            shutil.rmtree(self.work_dir, ignore_errors=True)

    @property
    def endpoint(self) -> str:
        """Where every service answers."""
        return self.settings.endpoint

    @property
    def log_file(self) -> Path:
        """What the emulator says; everything it was asked is not in there."""
        return self.work_dir / "emulator.log"

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs to take this for AWS: boto3, the AWS and CDK command lines, `counterpoise`."""
        variables = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ROOT_CREDENTIALS["aws_access_key_id"],
            "AWS_SECRET_ACCESS_KEY": ROOT_CREDENTIALS["aws_secret_access_key"],
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": ",".join(filter(None, (os.environ.get("NO_PROXY"), HOST))),
            "CDK_DEFAULT_ACCOUNT": ACCOUNT,
            "CDK_DEFAULT_REGION": REGION,
            "CDK_HOME": str(self.work_dir.absolute() / "cdk-home"),  # the CDK keeps there whose key is which account's
        }
        if self.settings.certificate is not None:
            variables |= {
                "AWS_CA_BUNDLE": self.settings.certificate,
                "NODE_EXTRA_CA_CERTS": self.settings.certificate,
            }
        return variables

    def inject(self, **fault: Any) -> None:
        """Lets calls of SageMaker fail; see control.Fault for the fields."""
        self._request("faults", json.dumps(fault).encode())

    def calls(self, operation: str = "", job_name: str = "") -> list[dict[str, Any]]:
        """The calls of SageMaker so far, with the code of the error that each answered, or None."""
        calls: list[dict[str, Any]] = self._request(
            f"calls?{urlencode({'operation': operation, 'job_name': job_name})}"
        )
        return calls

    def assume(self, role_arn: str, job_name: str) -> dict[str, str]:
        """The credentials that a job of this role has, as boto3's keyword arguments."""
        wish = {"role_arn": role_arn, "job_name": job_name}
        credentials: dict[str, str] = self._request("sessions", json.dumps(wish).encode())
        return credentials

    def _start(self) -> None:
        with self.log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [str(EMULATOR_PYTHON), "-m", "infra.local.aws.emulator", self.settings.to_json()],
                stdin=subprocess.PIPE,  # held open: its end tells the emulator that we are gone, however that happens
                stdout=log,
                stderr=log,
                cwd=PROJECT_ROOT,
                env=self._emulator_environment(),
                start_new_session=True,  # Ctrl-C reaches us alone
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._is_healthy():
            if self._process.poll() is not None:
                raise EmulatorError(f"the embedded AWS ended at its start: {_last_line(self.log_file)}")
            if time.monotonic() > deadline:
                raise EmulatorError(f"the embedded AWS did not answer in {START_SECONDS:.0f} s; see {self.log_file}")
            time.sleep(_POLL_SECONDS)

    def _emulator_environment(self) -> Mapping[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return {
            **kept,
            "PYTHONPATH": str(PROJECT_ROOT),
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": self.settings.work_dir,
            "AWS_ACCESS_KEY_ID": ROOT_CREDENTIALS["aws_access_key_id"],
            "AWS_SECRET_ACCESS_KEY": ROOT_CREDENTIALS["aws_secret_access_key"],
            "AWS_DEFAULT_REGION": REGION,
            "MINISTACK_REGION": REGION,
            "MINISTACK_ACCOUNT_ID": ACCOUNT,
            "GATEWAY_PORT": str(self.settings.port),
            "SFN_WAIT_SCALE": str(self._wait_scale),
            "AUTH": str(self._is_iam_enforced).lower(),
            "USE_SSL": "1" if self._is_iam_enforced else "0",
            "LOG_LEVEL": "WARNING",
            # Nothing but the one port on loopback: no MQTT, no SFTP, no container engine.
            "IOT_MTLS_ENABLED": "0",
            "SFTP_ENABLED": "0",
            "DOCKER_HOST": f"unix://{self.settings.work_dir}/no-docker.sock",
        }

    def _is_healthy(self) -> bool:
        """Whether it is our process that answers, and not another one on the same port."""
        assert self._process is not None
        try:
            return bool(self._request("health") == {"pid": self._process.pid})
        except (OSError, ValueError):
            return False

    def _request(self, path: str, body: bytes | None = None) -> Any:
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]  # loopback needs no proxy
        if self.settings.certificate is not None:
            trust = ssl.create_default_context(cafile=self.settings.certificate)
            handlers.append(urllib.request.HTTPSHandler(context=trust))
        url = f"{self.endpoint}/_counterpoise/{path}"
        with urllib.request.build_opener(*handlers).open(url, body, timeout=10) as answer:
            return json.load(answer)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _last_line(file: Path) -> str:
    lines = file.read_text(errors="replace").splitlines()
    return lines[-1] if lines else "it said nothing"
