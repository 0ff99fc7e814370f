"""The project's real template on an embedded AWS."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.local.aws.deploy import CdkProject
from infra.local.aws.server import EmbeddedAws
from infra.local.aws.stand_in_image import register_image

SHORT_WAITS = {"counterpoise:poll_seconds": "1", "counterpoise:retry_seconds": "1"}


@dataclass(frozen=True)
class Deployment:
    """A deployed stack with a current image."""

    aws: EmbeddedAws
    project: CdkProject
    outputs: Mapping[str, str]

    @classmethod
    def create(cls, aws: EmbeddedAws, work_dir: Path) -> "Deployment":
        """Bootstraps the account, deploys the stack and registers the stand-in for its image."""
        project = CdkProject(aws.environment, work_dir, SHORT_WAITS)
        project.bootstrap()
        outputs = project.deploy()
        register_image(aws.environment, outputs["StateMachineArn"].rpartition(":")[2])
        return cls(aws, project, outputs)

    def job_arn(self, name: str) -> str:
        """The ARN of a training job in the account of this stack."""
        parts = self.outputs["StateMachineArn"].split(":")
        return f"arn:aws:sagemaker:{parts[3]}:{parts[4]}:training-job/{name}"
