"""Training runs as an ordinary user: process 1 prepares what that user writes to, and starts everything else as it."""

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from container.bootstrap.environment import JobPaths
from container.bootstrap.errors import BAD_INPUT, HostError

USER_VARIABLE = "COUNTERPOISE_USER"
"""A name or a number; the image sets it. Without it, and where process 1 is not root itself, nothing changes."""


@dataclass(frozen=True, kw_only=True)
class User:
    """Who Ray and the training run as. `home` is a folder of this run, so nothing of it is there next time."""

    uid: int
    gid: int
    home: Path

    def environment(self) -> dict[str, str]:
        """What programs ask for when they look for a place of their own."""
        return {"HOME": str(self.home), "USER": str(self.uid), "LOGNAME": str(self.uid)}

    def take_over(self, path: Path) -> None:
        """Become the owner of a file or folder of process 1's."""
        os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def process_options(self) -> dict[str, Any]:
        """Arguments of subprocess.Popen."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def prepare_user(environ: Mapping[str, str], paths: JobPaths, runtime_dir: Path) -> User | None:
    """The user that the environment names, owner of the folders that training writes to; None to stay who we are.

    Raises:
        HostError: there is no such user.
    """
    name = environ.get(USER_VARIABLE, "")
    if not name or os.geteuid() != 0:
        return None
    try:
        uid, gid = (int(name), int(name)) if name.isdecimal() else pwd.getpwnam(name)[2:4]
    except KeyError as error:
        raise HostError(BAD_INPUT, f"{USER_VARIABLE}: {name!r} is no user of this image; see /etc/passwd") from error
    user = User(uid=uid, gid=gid, home=runtime_dir)
    for folder in (paths.model_dir, paths.output_dir):
        folder.mkdir(parents=True, exist_ok=True)
    for folder in (runtime_dir, paths.model_dir, paths.output_dir, paths.checkpoint_dir):
        for path in (folder, *folder.glob("*")) if folder.is_dir() else ():
            user.take_over(path)
    return user
