"""The project's stack on an embedded AWS, by the real CDK command line."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from infra.local.aws.settings import ACCOUNT, PROJECT_ROOT, REGION

CDK = PROJECT_ROOT / "node_modules" / "aws-cdk" / "bin" / "cdk"
COMMAND_SECONDS = 300.0  # the slowest, a deploy, takes 10 to 20 s


class DeployError(RuntimeError):
    """A CDK command failed; the text is what it said."""


@dataclass(frozen=True)
class CdkProject:
    """The CDK command line in this project; its output goes to a file and into errors, and no command asks anything."""

    environment: Mapping[str, str]
    """What leads to the AWS that is meant, with its credentials."""
    work_dir: Path
    """Gets the CDK's cloud assembly and its log."""
    context: Mapping[str, str] = field(default_factory=dict)
    """Settings of the deploy, as `-c` takes them."""

    @property
    def log_file(self) -> Path:
        """What every command said."""
        return self.work_dir / "cdk.log"

    @property
    def _assembly(self) -> Path:
        return self.work_dir / "cdk.out"

    @property
    def _app(self) -> tuple[str, str]:
        return "--app", str(self._assembly)

    def bootstrap(self) -> None:
        """Prepares account and region for the CDK. Raises DeployError."""
        # Not in the project's folder, whose app it would run for nothing.
        self._run("bootstrap", f"aws://{ACCOUNT}/{REGION}", directory=self.work_dir)

    def synthesize(self) -> None:
        """Makes the cloud assembly that the other commands take, instead of an earlier one. Raises DeployError."""
        context = [part for key, value in self.context.items() for part in ("-c", f"{key}={value}")]
        self._run("synth", "--quiet", "--output", str(self._assembly), *context)

    def deploy(self) -> dict[str, str]:
        """Creates or updates the stack and returns its outputs; synthesizes if nobody did. Raises DeployError."""
        if not self._assembly.exists():
            self.synthesize()
        file = self.work_dir / "outputs.json"
        file.unlink(missing_ok=True)
        self._run("deploy", *self._app, "--require-approval", "never", "--outputs-file", str(file))
        outputs: dict[str, dict[str, str]] = json.loads(file.read_text())
        return next(iter(outputs.values()))

    def differs(self) -> bool:
        """Whether `cdk diff` finds anything that a deploy would change. Raises DeployError."""
        return self._run("diff", "--fail", *self._app, accepted=(0, 1)) == 1

    def destroy(self) -> None:
        """Deletes the stack, all but what it retains. Raises DeployError."""
        self._run("destroy", "--force", *self._app)

    def _run(
        self, command: str, *arguments: str, accepted: tuple[int, ...] = (0,), directory: Path = PROJECT_ROOT
    ) -> int:
        self.work_dir.mkdir(parents=True, exist_ok=True)
        words = [str(_node()), str(CDK), command, *arguments, "--ci"]
        # It ends with us, even if we are killed.
        bound = [sys.executable, "-S", "-m", "infra.local.aws.bound", str(os.getpid())]
        with self.log_file.open("a+") as log:
            start = log.tell()
            ended = subprocess.run(
                [*bound, *words],
                cwd=directory,
                env=self._variables(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=COMMAND_SECONDS,
                check=False,
            )
            log.seek(start)
            if ended.returncode not in accepted:
                raise DeployError(f"cdk {command} ended with {ended.returncode}:\n{log.read().strip()}")
        return ended.returncode

    def _variables(self) -> dict[str, str]:
        return {
            **os.environ,
            **self.environment,
            "PYTHONPATH": str(PROJECT_ROOT),
            "PATH": f"{_node().parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "JSII_NODE": str(_node()),
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            "CDK_DISABLE_VERSION_CHECK": "true",
        }


def _node() -> Path:
    return Path(sys.prefix) / "bin" / "node"
