"""The token of a job's cluster, derived from a secret that Secrets Manager keeps."""

from pathlib import Path

import pytest

from container.bootstrap.errors import HostError
from container.bootstrap.token import JOB_NAME_VARIABLE, SECRET_VARIABLE, derive, load_token
from infra.local.aws.server import EmbeddedAws
from tests.embedded.clients import Clients

SECRET = "nobody needs to know this"


@pytest.fixture
def secret_arn(clients: Clients, embedded_aws: EmbeddedAws, monkeypatch: pytest.MonkeyPatch) -> str:
    """A secret, in an environment that leads to it as a training job's does."""
    for name, value in embedded_aws.environment.items():
        monkeypatch.setenv(name, value)
    listed = clients.secretsmanager.list_secrets()["SecretList"]
    known = {secret["Name"]: secret["ARN"] for secret in listed}
    if "cluster" in known:
        return str(known["cluster"])
    return str(clients.secretsmanager.create_secret(Name="cluster", SecretString=SECRET)["ARN"])


def token_of(arn: str, job: str, directory: Path) -> str:
    directory.mkdir(exist_ok=True)
    environ = {SECRET_VARIABLE: arn, JOB_NAME_VARIABLE: job}
    return load_token(environ, runtime_dir=directory, makes_own=False).value


def test_all_hosts_of_a_job_derive_one_token_and_another_job_another(secret_arn: str, tmp_path: Path) -> None:
    first, second = (token_of(secret_arn, "train-1", tmp_path / host) for host in ("algo-1", "algo-2"))
    assert first == second == derive(SECRET, "train-1")
    assert token_of(secret_arn, "train-2", tmp_path / "algo-1") != first


def test_a_secret_that_cannot_be_read_is_named_with_what_to_do(secret_arn: str, tmp_path: Path) -> None:
    arn = secret_arn.replace("cluster", "stranger")
    with pytest.raises(HostError) as caught:
        token_of(arn, "train-1", tmp_path)
    assert caught.value.exit_code == 3
    assert caught.value.reason.startswith(f"COUNTERPOISE_CLUSTER_SECRET_ARN: cannot read {arn}: ")
    assert "secretsmanager:GetSecretValue" in caught.value.reason
    assert "\n" not in caught.value.reason
