"""The job's token: taken from a file that nobody else can read, handed on the same way, and never shown."""

import re
import stat
from dataclasses import asdict
from pathlib import Path

import pytest

from container.bootstrap.errors import HostError
from container.bootstrap.token import (
    JOB_NAME_VARIABLE,
    SECRET_VARIABLE,
    TOKEN_FILE_VARIABLE,
    Token,
    derive,
    load_token,
)
from tests.bootstrap.job import TOKEN


def token_file(directory: Path, content: str | bytes = TOKEN, mode: int = 0o600) -> Path:
    path = directory / "given"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(mode)
    return path


def load(source: Path | None, runtime_dir: Path, *, makes_own: bool = False) -> Token:
    environ = {} if source is None else {TOKEN_FILE_VARIABLE: str(source)}
    return load_token(environ, runtime_dir=runtime_dir, makes_own=makes_own)


def refusal(source: Path | None, runtime_dir: Path) -> str:
    with pytest.raises(HostError) as caught:
        load(source, runtime_dir)
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.reason
    return caught.value.reason


def test_the_token_is_copied_for_this_host_alone(tmp_path: Path) -> None:
    token = load(token_file(tmp_path, f"{TOKEN}\n"), tmp_path)
    assert token.value == token.path.read_text() == TOKEN
    assert stat.S_IMODE(token.path.stat().st_mode) == 0o600
    assert token.ray_environment() == {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token.path)}


def test_a_single_host_makes_its_own(tmp_path: Path) -> None:
    first, second = (load(None, tmp_path, makes_own=True).value for _ in range(2))
    assert len(first) == len(second) == 64
    assert first != second
    assert stat.S_IMODE((tmp_path / "ray_token").stat().st_mode) == 0o600


def test_several_hosts_need_a_token(tmp_path: Path) -> None:
    assert refusal(None, tmp_path) == (
        "COUNTERPOISE_TOKEN_FILE, COUNTERPOISE_CLUSTER_SECRET_ARN: neither is set, but this job has several hosts; "
        "name a 0600 file with their token, or the secret that it is derived from"
    )


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o660, 0o644])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = token_file(tmp_path, mode=mode)
    assert refusal(path, tmp_path) == (f"COUNTERPOISE_TOKEN_FILE: {path} has mode {mode:o}; allowed: 600; chmod 600 it")


@pytest.mark.parametrize("content", ["", "0123", TOKEN.upper(), TOKEN + "0", f"{TOKEN}\n{TOKEN}", b"\xff" * 64])
def test_what_is_no_token_is_refused_without_being_shown(tmp_path: Path, content: str | bytes) -> None:
    path = token_file(tmp_path, content)
    assert refusal(path, tmp_path) == f"COUNTERPOISE_TOKEN_FILE: {path} does not hold 64 hexadecimal characters"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert "No such file or directory" in refusal(tmp_path / "absent", tmp_path)
    assert "Is a directory" in refusal(tmp_path, tmp_path)


def test_the_token_of_a_job_is_derived_from_the_secret_and_its_name() -> None:
    tokens = {derive(secret, job) for secret in ("one", "two") for job in ("train-1", "train-2")}
    assert len(tokens) == 4
    assert all(re.fullmatch("[0-9a-f]{64}", token) for token in tokens)
    assert derive("one", "train-1") in tokens
    with pytest.raises(HostError, match="TRAINING_JOB_NAME: not set"):
        derive("one", "")


def test_a_single_host_does_not_ask_for_the_secret(tmp_path: Path) -> None:
    environ = {SECRET_VARIABLE: "arn:aws:secretsmanager:nowhere:1:secret:x"}
    assert len(load_token(environ, runtime_dir=tmp_path, makes_own=True).value) == 64


@pytest.mark.parametrize("arn", ["secret", "arn:aws:s3:::bucket", "arn:aws:secretsmanager:eu-west-1:1:secret"])
def test_what_is_no_secret_is_refused(tmp_path: Path, arn: str) -> None:
    with pytest.raises(HostError) as caught:
        load_token({SECRET_VARIABLE: arn, JOB_NAME_VARIABLE: "x"}, runtime_dir=tmp_path, makes_own=False)
    assert caught.value.reason == f"COUNTERPOISE_CLUSTER_SECRET_ARN: {arn!r} is not the ARN of a secret"


def test_a_token_is_never_shown(tmp_path: Path) -> None:
    token = load(token_file(tmp_path), tmp_path)
    shown = f"{token} {token!r} {token.ray_environment()} {token.proof('a')} {[token]}"
    assert TOKEN not in shown
    assert asdict(token)["value"] == TOKEN  # the test would see it


def test_a_proof_is_bound_to_the_token_and_to_every_part(tmp_path: Path) -> None:
    token = Token(value=TOKEN, path=tmp_path)
    other = Token(value="f" * 64, path=tmp_path)
    proof = token.proof("worker", "a", "b")
    assert token.accepts(proof, "worker", "a", "b")
    for parts in (
        ("head", "a", "b"),
        ("worker", "b", "a"),
        ("worker", "a"),
        ("worker", "a\nb"),
        ("worker", "a", "b", ""),
    ):
        assert not token.accepts(proof, *parts)
    assert not other.accepts(proof, "worker", "a", "b")


@pytest.mark.parametrize("sent", ["", "None", "é", "\ud800", "0" * 64])
def test_any_text_can_be_refused(tmp_path: Path, sent: str) -> None:
    assert not Token(value=TOKEN, path=tmp_path).accepts(sent, "worker", sent)
