"""Whether SageMaker can run an image, by its manifest: one image for linux/amd64 in Docker's own format."""

from collections.abc import Mapping
from typing import Any

DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
KNOWN_TYPES = (DOCKER_MANIFEST, DOCKER_LIST, OCI_MANIFEST, OCI_INDEX)

_DOCKER_PREFIX = "application/vnd.docker."
_ATTESTATION = ("vnd.docker.reference.type", "attestation-manifest")
_BUILD_AGAIN = "build it as one image in Docker's format without attestations, as `counterpoise image build` does"


def manifest_problem(manifest: Mapping[str, Any]) -> str | None:
    """Why SageMaker may refuse an image with this manifest, in one line; None if nothing speaks against it."""
    entries = manifest.get("manifests")
    if entries is not None:
        key, value = _ATTESTATION
        is_attested = any(entry.get("annotations", {}).get(key) == value for entry in entries)
        kind = "an index with an attestation entry" if is_attested else f"an index of {len(entries)} manifests"
        return f"the image is {kind}; {_BUILD_AGAIN}"
    parts = [manifest, manifest.get("config", {}), *manifest.get("layers", [])]
    foreign = [part.get("mediaType") for part in parts if not str(part.get("mediaType")).startswith(_DOCKER_PREFIX)]
    if foreign:
        return f"the image has a part of media type {foreign[0]}; {_BUILD_AGAIN}"
    return None
