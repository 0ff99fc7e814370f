"""`counterpoise image push`: brings the image of this checkout into the repository and makes jobs run it."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.client.aws import Aws
from infra.client.engine import Engine, run
from infra.client.errors import AwsError, BadInput, ExitCode, JobFailed
from infra.client.image_build import LOCAL_NAME
from infra.client.image_content import read_content
from infra.client.image_pointer import pointer_request, read_pointer
from infra.client.manifest import KNOWN_TYPES, manifest_problem
from infra.client.screen import Screen
from infra.client.session import Session
from infra.client.stack import Stack

_IMMUTABLE = "cannot be overwritten because"
"""What ECR says through every engine when the tag exists already."""


@dataclass(frozen=True)
class RemoteImage:
    """An image in the repository."""

    digest: str
    manifest: Mapping[str, Any]

    def is_made_of(self, image_id: str) -> bool:
        """Whether a local image with this id is the same: engines call it by its config or by its manifest."""
        return image_id in (self.digest, self.manifest.get("config", {}).get("digest"))


def push_image(session: Session, project: Path, find_engine: Callable[[], Engine], *, is_dry_run: bool) -> ExitCode:
    """Push the image of the files in `project`, unless it is there, and point the stack's parameter at it.

    Raises:
        BadInput: no Dockerfile, no engine, or the image is not built.
        JobFailed: the push failed, or SageMaker could not run what was pushed.
        AwsError: AWS refused.
    """
    aws, stack, screen = session.aws, session.stack, session.screen
    tag = read_content(project).tag
    found = find_image(aws, stack, tag)
    if is_dry_run:
        screen.plan(_plan(stack, tag, None if found else find_engine(), found))
        return ExitCode.OK
    image = found or _upload(aws, stack, find_engine(), tag, screen)
    problem = manifest_problem(image.manifest)
    if problem:
        delete = f"aws ecr batch-delete-image --repository-name {stack.repository_name} --image-ids imageTag={tag}"
        raise JobFailed(f"{problem}; then delete this one, `{delete}`, and push again")
    reference = f"{stack.repository_uri}@{image.digest}"
    is_current = read_pointer(aws, stack) == reference
    if not is_current:
        aws.send(pointer_request(stack, reference))
    screen.result({"image": reference, "tag": tag, "is_pushed": not found, "is_pointer_changed": not is_current})
    screen.show(f"{'there already' if found else 'pushed'}: {reference}")
    screen.note("jobs run it already" if is_current else "jobs run it from now on; next: `counterpoise start`")
    return ExitCode.OK


def find_image(aws: Aws, stack: Stack, tag: str) -> RemoteImage | None:
    """The image with this tag in the stack's repository; raises AwsError."""
    answer = aws.call(
        "ecr",
        "BatchGetImage",
        repositoryName=stack.repository_name,
        imageIds=[{"imageTag": tag}],
        acceptedMediaTypes=list(KNOWN_TYPES),
    )
    if not answer["images"]:
        return None
    image = answer["images"][0]
    return RemoteImage(image["imageId"]["imageDigest"], json.loads(image["imageManifest"]))


def _upload(aws: Aws, stack: Stack, engine: Engine, tag: str, screen: Screen) -> RemoteImage:
    local, remote = f"{LOCAL_NAME}:{tag}", f"{stack.repository_uri}:{tag}"
    image_id = engine.image_id(local)
    if image_id is None:
        raise BadInput(f"the image {local} is not built; build it: `counterpoise image build`")
    exit_code, output = run(engine.login_command(stack.registry), screen.note, stdin=_password(aws))
    if exit_code != 0:
        raise engine.failure(f"login to {stack.registry}", output)
    exit_code, output = run(engine.tag_command(local, remote), screen.note)
    if exit_code != 0:
        raise engine.failure(f"naming the image {remote}", output)
    exit_code, output = run(engine.push_command(remote), screen.note)
    image = find_image(aws, stack, tag)
    if exit_code != 0:
        _accept_only_the_same(engine, output, image, image_id, tag)
    if image is None:
        raise AwsError(f"{remote} was pushed, but the repository does not have it; push it again")
    return image


def _accept_only_the_same(
    engine: Engine, output: list[str], image: RemoteImage | None, image_id: str, tag: str
) -> None:
    """A failed push is none if somebody else has pushed the very same image under the tag meanwhile."""
    if not any(_IMMUTABLE in line for line in output):
        raise engine.failure("image push", output)
    if image is None or not image.is_made_of(image_id):
        line = f"image push: the tag {tag} was given to another build of the same files meanwhile"
        raise JobFailed(f"{line}; take that one: `counterpoise image push`")


def _password(aws: Aws) -> str:
    token = aws.call("ecr", "GetAuthorizationToken")["authorizationData"][0]["authorizationToken"]
    return base64.b64decode(token).decode().partition(":")[2]


def _plan(stack: Stack, tag: str, engine: Engine | None, found: RemoteImage | None) -> list[dict[str, Any]]:
    local, remote = f"{LOCAL_NAME}:{tag}", f"{stack.repository_uri}:{tag}"
    commands: list[list[str]] = []
    if engine:
        commands = [
            engine.login_command(stack.registry),
            engine.tag_command(local, remote),
            engine.push_command(remote),
        ]
    digest = found.digest if found else "(the digest that the repository gives it)"
    request = pointer_request(stack, f"{stack.repository_uri}@{digest}")
    return [*({"command": command} for command in commands), request.to_json()]
