"""The cluster token, read once: for Ray's token authentication and for the control channel."""

import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from container.bootstrap.errors import BAD_INPUT, CLUSTER_NOT_FORMED, HostError

TOKEN_FILE_VARIABLE = "COUNTERPOISE_TOKEN_FILE"
SECRET_VARIABLE = "COUNTERPOISE_CLUSTER_SECRET_ARN"
ISOLATED_VARIABLE = "COUNTERPOISE_ISOLATED"
"""Set where hosts cannot call AWS: the head makes a token up and hands it to the others."""
TOKEN_PATTERN = "[0-9a-f]{64}"
JOB_NAME_VARIABLE = "TRAINING_JOB_NAME"
"""What SageMaker tells a container."""
SECRET_SECONDS = 5
"""Longest wait for a connection to Secrets Manager and for its answer, each; it is asked three times."""


@dataclass(frozen=True, kw_only=True)
class Token:
    """A secret that all hosts of one job share; never printed, not even by repr()."""

    value: str = field(repr=False)
    path: Path

    def ray_environment(self) -> dict[str, str]:
        """What every Ray process of this host must see; set even where a stray ~/.ray/auth_token exists."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.path)}

    def proof(self, *parts: str) -> str:
        """An HMAC-SHA256 over `parts`, in hex: shows that the sender has the token without sending it."""
        message = json.dumps(parts)  # keeps the parts apart, and takes any text that a stranger may send
        return hmac.new(self.value.encode(), message.encode(), hashlib.sha256).hexdigest()

    def accepts(self, proof: str, *parts: str) -> bool:
        """Whether `proof` was made with this token over `parts`."""
        return hmac.compare_digest(proof.encode(errors="replace"), self.proof(*parts).encode())


def load_token(environ: Mapping[str, str], *, runtime_dir: Path, makes_own: bool) -> Token:
    """The job's token, in a file of this host's own with mode 0600.

    It comes from a file that the environment names, or is derived from a secret in Secrets Manager and the name of the
    job, so that no two jobs have the same. A job of one host needs nobody else to know it and `makes_own`; so does a
    head that hands it over.

    Raises:
        HostError: several hosts and no token, a token file that others can read or that holds no token, or a secret
            that Secrets Manager does not give away.
    """
    if given := environ.get(TOKEN_FILE_VARIABLE):
        value = _read(Path(given))
    elif makes_own:
        value = secrets.token_hex(32)
    elif secret_arn := environ.get(SECRET_VARIABLE):
        value = derive(_secret(secret_arn), environ.get(JOB_NAME_VARIABLE, ""))
    else:
        raise HostError(
            BAD_INPUT,
            f"{TOKEN_FILE_VARIABLE}, {SECRET_VARIABLE}: neither is set, but this job has several hosts; "
            "name a 0600 file with their token, or the secret that it is derived from",
        )
    return keep_token(value, runtime_dir)


def keep_token(value: str, runtime_dir: Path) -> Token:
    """The token with this value, in a file of this host's own with mode 0600."""
    path = runtime_dir / "ray_token"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(value)
    return Token(value=value, path=path)


def comes_from_head(environ: Mapping[str, str]) -> bool:
    """Whether the head hands the token over."""
    return bool(environ.get(ISOLATED_VARIABLE)) and not environ.get(TOKEN_FILE_VARIABLE)


def derive(secret: str, job_name: str) -> str:
    """The token of one job: an HMAC-SHA256 over its name, in hex. Raises HostError where the job has no name."""
    if not job_name:
        raise HostError(
            BAD_INPUT, f"{JOB_NAME_VARIABLE}: not set; the platform tells the job's name, and a token needs it"
        )
    return hmac.new(secret.encode(), job_name.encode(), hashlib.sha256).hexdigest()


def _secret(arn: str) -> str:
    import boto3  # not where a file has the token
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    fields = arn.split(":")
    if len(fields) != 7 or fields[2] != "secretsmanager":
        raise HostError(BAD_INPUT, f"{SECRET_VARIABLE}: {arn!r} is not the ARN of a secret")
    config = Config(connect_timeout=SECRET_SECONDS, read_timeout=SECRET_SECONDS, retries={"total_max_attempts": 3})
    try:
        client = boto3.client("secretsmanager", region_name=fields[3], config=config)
        value = client.get_secret_value(SecretId=arn).get("SecretString")
    except (BotoCoreError, ClientError) as error:
        raise HostError(
            CLUSTER_NOT_FORMED,
            f"{SECRET_VARIABLE}: cannot read {arn}: {error}; the job's role needs secretsmanager:GetSecretValue on it, "
            "and its subnets a way to Secrets Manager",
        ) from error
    if not value:
        raise HostError(BAD_INPUT, f"{SECRET_VARIABLE}: {arn} holds no text")
    return str(value)


def _read(path: Path) -> str:
    try:
        mode = path.stat().st_mode & 0o777
        value = path.read_text(errors="replace").strip()
    except OSError as error:
        raise HostError(BAD_INPUT, f"{TOKEN_FILE_VARIABLE}: cannot read {path} ({error.strerror})") from error
    if mode & 0o077:
        raise HostError(BAD_INPUT, f"{TOKEN_FILE_VARIABLE}: {path} has mode {mode:o}; allowed: 600; chmod 600 it")
    if not re.fullmatch(TOKEN_PATTERN, value):
        raise HostError(BAD_INPUT, f"{TOKEN_FILE_VARIABLE}: {path} does not hold 64 hexadecimal characters")
    return value
