"""The container engine of this machine: docker, podman or finch, and how each builds, names and pushes an image."""

import os
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from infra.client.errors import BadInput, JobFailed

ENGINES = ("docker", "podman", "finch")
PLATFORM = "linux/amd64"
_KEPT_LINES = 40  # of a failed command's output, where its reason is looked for

# What an engine prints when the reason is the machine's, and what helps. The first that matches is told.
_REASONS = (
    ("no space left on device", "the disk is full; free some: `{engine} system prune`, `df -h`"),
    ("cannot connect to the docker daemon", "the engine is not running; start it: `sudo systemctl start docker`"),
    (
        "permission denied while trying to connect",
        "this user may not use docker; allow it: `sudo usermod -aG docker $USER`",
    ),
    ("finch vm", "finch's virtual machine is not running; start it: `finch vm start`"),
    ("no basic auth credentials", "the login did not last; see credsStore and credHelpers in ~/.docker/config.json"),
    ("authorization token has expired", "the login has expired; repeat the command, which logs in again"),
)


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One engine: its kind, and what to call; `has_buildx` is for docker, which then builds with BuildKit."""

    kind: str
    program: str
    has_buildx: bool = False

    def build_command(self, image: str, dockerfile: Path, folder: Path) -> list[str]:
        """Builds one manifest for linux/amd64 in Docker's media types, without provenance or SBOM.

        BuildKit adds both by itself and makes an OCI index of them, which SageMaker was seen to refuse
        (github.com/aws/amazon-sagemaker-feedback issue 180).
        """
        if self.has_buildx:
            plain = ["--provenance=false", "--sbom=false", "--output", "type=docker,oci-mediatypes=false"]
            build = ["buildx", "build", *plain]
        elif self.kind == "podman":
            build = ["build", "--format", "docker"]
        elif self.kind == "finch":
            build = ["build", "--provenance=false", "--sbom=false"]
        else:  # docker without BuildKit knows no attestations and no other media types
            build = ["build"]
        place = ["--platform", PLATFORM, "--tag", image, "--file", str(dockerfile), str(folder)]
        return [self.program, *build, *place]

    def login_command(self, registry: str) -> list[str]:
        """Logs in to ECR; the password comes on standard input, where no process list shows it."""
        return [self.program, "login", "--username", "AWS", "--password-stdin", registry]

    def tag_command(self, image: str, remote: str) -> list[str]:
        """Gives a local image the name that it is pushed under."""
        return [self.program, "tag", image, remote]

    def push_command(self, remote: str) -> list[str]:
        """Pushes an image under its name."""
        return [self.program, "push", *(["--format", "v2s2"] if self.kind == "podman" else []), remote]

    def image_id(self, image: str) -> str | None:
        """The id of a local image, `sha256:...` of its config or of its manifest; None if there is none."""
        command = [self.program, "image", "inspect", "--format", "{{.Id}}", image]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        digest = ended.stdout.strip().removeprefix("sha256:")  # podman leaves the algorithm out
        return f"sha256:{digest}" if ended.returncode == 0 else None

    def failure(self, what: str, output: Sequence[str]) -> JobFailed:
        """The error for a command of the engine that failed, by what it printed."""
        text = "\n".join(output).lower()
        advice = next((advice for sign, advice in _REASONS if sign in text), None)
        if advice:
            return JobFailed(f"{what} failed: {advice.format(engine=self.kind)}")
        last = next((line.strip() for line in reversed(output) if line.strip()), "it printed nothing")
        return JobFailed(f"{what} failed: {last}")


def find_engine(wanted: str | None) -> Engine:
    """The engine that the user names, else the first on PATH.

    Raises:
        BadInput: it is not there.
    """
    kinds = (wanted,) if wanted else ENGINES
    for kind in kinds:
        program = shutil.which(kind)
        if program:
            return Engine(kind=kind, program=program, has_buildx=kind == "docker" and _has_buildx(program))
    raise BadInput(f"no container engine: {', '.join(kinds)} not on PATH; install one, for example docker")


def _has_buildx(program: str) -> bool:
    return subprocess.run([program, "buildx", "version"], capture_output=True, check=False).returncode == 0


def run(command: Sequence[str], show: Callable[[str], None], *, stdin: str | None = None) -> tuple[int, list[str]]:
    """Run a command and show its output as it comes; returns its exit code and its last lines."""
    kept: deque[str] = deque(maxlen=_KEPT_LINES)
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=os.environ | {"BUILDX_NO_DEFAULT_ATTESTATIONS": "1"},
    ) as process:
        if stdin is not None and process.stdin:
            with suppress(BrokenPipeError):  # it has ended already; its output says why
                process.stdin.write(stdin)
                process.stdin.close()
        for line in process.stdout or ():
            kept.append(line.rstrip("\n"))
            show(line.rstrip("\n"))
    return process.returncode, list(kept)
