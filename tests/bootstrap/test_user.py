"""Who Ray and the training run as."""

import os
import pwd
import subprocess
from pathlib import Path

import pytest

from container.bootstrap.environment import JobPaths
from container.bootstrap.errors import BAD_INPUT, HostError
from container.bootstrap.user import USER_VARIABLE, prepare_user

NOBODY = pwd.getpwnam("nobody")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as another user")


@pytest.fixture
def paths(tmp_path: Path) -> JobPaths:
    return JobPaths(base=tmp_path / "ml")


@pytest.fixture
def runtime_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "runtime"
    directory.mkdir(mode=0o700)
    (directory / "ray_token").touch(mode=0o600)
    return directory


def test_without_a_name_nothing_changes(paths: JobPaths, runtime_dir: Path) -> None:
    assert prepare_user({}, paths, runtime_dir) is None
    assert not paths.model_dir.exists()


@needs_root
def test_an_unknown_user_is_refused_in_one_line(paths: JobPaths, runtime_dir: Path) -> None:
    with pytest.raises(HostError) as caught:
        prepare_user({USER_VARIABLE: "somebody"}, paths, runtime_dir)
    assert caught.value.exit_code == BAD_INPUT
    assert caught.value.reason == "COUNTERPOISE_USER: 'somebody' is no user of this image; see /etc/passwd"


@needs_root
@pytest.mark.parametrize("name", ["nobody", str(NOBODY.pw_uid)])
def test_the_user_owns_what_training_writes_to_and_can_read_the_token(
    paths: JobPaths, runtime_dir: Path, name: str
) -> None:
    paths.checkpoint_dir.mkdir(parents=True)
    (paths.checkpoint_dir / "step-1").touch(mode=0o600)
    user = prepare_user({USER_VARIABLE: name}, paths, runtime_dir)
    assert user is not None
    for path in (paths.model_dir, paths.output_dir, paths.checkpoint_dir / "step-1", runtime_dir / "ray_token"):
        assert path.stat().st_uid == NOBODY.pw_uid, path
    assert not paths.failure_file.parent.stat().st_uid, "process 1 writes there"
    told = subprocess.run(
        ["id", "-u"], capture_output=True, text=True, check=True, env=user.environment(), **user.process_options()
    )
    assert told.stdout.strip() == str(NOBODY.pw_uid)
    assert user.environment()["HOME"] == str(runtime_dir)
