"""A stand-in for the image of the training jobs, for a machine without a container engine.

The local runner starts hosts from this checkout, so nobody pulls the image. But the workflow wants one that exists, by
digest, as on AWS. The stand-in is a manifest without layers whose digest changes with the files that an image holds.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from infra.local.aws.settings import PROJECT_ROOT, REGION, ROOT_CREDENTIALS
from infra.settings import CURRENT_TAG_PREFIX

_MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG_TYPE = "application/vnd.docker.container.image.v1+json"
_PARTS = ("container", "training")
_SUFFIXES = (".py", ".txt", ".json")


class NoStack(RuntimeError):
    """There is no embedded AWS, or no stack in it; one line."""


def register_image(environment: Mapping[str, str], stack: str) -> str:
    """Puts the stand-in into the repository of a stack, makes it the current image, and returns its URI by digest.

    `environment` leads to the embedded AWS. A second call with the same files changes nothing. Raises NoStack.
    """
    if "AWS_ENDPOINT_URL" not in environment:
        raise NoStack("AWS_ENDPOINT_URL is not set; paste the lines that `python -m infra.local.aws serve` prints")
    outputs = _outputs(client(environment, "cloudformation"), stack)
    ecr, ssm = (client(environment, service) for service in ("ecr", "ssm"))
    content = _content_digest()
    manifest = json.dumps(_manifest(content), indent=1)
    # The same files were registered before; where ECR says so, MiniStack complains about the tag.
    known = ecr.exceptions.ImageAlreadyExistsException, ecr.exceptions.ImageTagAlreadyExistsException
    with contextlib.suppress(*known):
        ecr.put_image(
            repositoryName=outputs["RepositoryName"],
            imageManifest=manifest,
            imageManifestMediaType=_MANIFEST_TYPE,
            imageTag=f"{CURRENT_TAG_PREFIX}stand-in-{content[:16]}",
        )
    uri = f"{outputs['RepositoryUri']}@sha256:{hashlib.sha256(manifest.encode()).hexdigest()}"
    ssm.put_parameter(Name=outputs["ImageParameterName"], Value=uri, Type="String", Overwrite=True)
    return uri


def _outputs(cloudformation: Any, stack: str) -> dict[str, str]:
    try:
        (found,) = cloudformation.describe_stacks(StackName=stack)["Stacks"]
    except ClientError as error:
        raise NoStack(f"the embedded AWS has no stack {stack}; deploy it: make deploy") from error
    return {output["OutputKey"]: output["OutputValue"] for output in found["Outputs"]}


def client(environment: Mapping[str, str], service: str) -> Any:
    """A boto3 client of the root user of the embedded AWS that `environment` leads to."""
    return boto3.client(
        service,
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        region_name=REGION,
        verify=environment.get("AWS_CA_BUNDLE"),
        config=Config(proxies={}),  # loopback needs none
        **ROOT_CREDENTIALS,
    )


def _manifest(content: str) -> dict[str, Any]:
    config = {"mediaType": _CONFIG_TYPE, "size": 0, "digest": f"sha256:{content}"}
    return {"schemaVersion": 2, "mediaType": _MANIFEST_TYPE, "config": config, "layers": []}


def _content_digest() -> str:
    total = hashlib.sha256()
    for file in _files():
        total.update(f"{file.relative_to(PROJECT_ROOT)}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def _files() -> Iterator[Path]:
    for part in _PARTS:
        found = (file for file in (PROJECT_ROOT / part).rglob("*") if file.suffix in _SUFFIXES)
        yield from sorted(file for file in found if "__pycache__" not in file.parts)
