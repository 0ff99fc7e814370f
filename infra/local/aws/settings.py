"""What the emulator's process is told when it starts."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parents[3]
HOST = "127.0.0.1"
ACCOUNT = "000000000000"
REGION = "us-east-1"
ROOT_CREDENTIALS = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
"""MiniStack's root user, which every policy allows everything; they open nothing outside the emulator."""


@dataclass(frozen=True, kw_only=True)
class EmulatorSettings:
    """One emulator; travels as JSON on its command line."""

    port: int
    runner_command: Sequence[str]
    """Starts the runner of a job; gets `--request`, `--job-dir` and `--channel` added."""
    work_dir: str
    """Gets a folder for each job, and the emulator's own temporary files."""
    is_iam_enforced: bool
    """Every call needs a signature and a policy that allows it, over TLS."""
    certificate: str | None
    """The certificate that clients must trust, where TLS is used."""

    @property
    def endpoint(self) -> str:
        """Where every service answers."""
        return f"{'https' if self.is_iam_enforced else 'http'}://{HOST}:{self.port}"

    @property
    def jobs_dir(self) -> Path:
        """The folder of the training jobs' folders."""
        return Path(self.work_dir) / "jobs"

    def to_json(self) -> str:
        """This value as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "EmulatorSettings":
        """The inverse of `to_json`."""
        return cls(**json.loads(text))
