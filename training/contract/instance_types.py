"""The instance types that SageMaker trains on, from a dated list, and those near to a wrong one."""

import re
from collections.abc import Mapping
from types import MappingProxyType

SOURCE = "TrainingInstanceType in the SageMaker model of botocore 1.44.8, read 2026-11-30"
SIZES: Mapping[str, str] = MappingProxyType(
    {
        "c4": "xlarge 2xlarge 4xlarge 8xlarge",
        "c5": "xlarge 2xlarge 4xlarge 9xlarge 18xlarge",
        "c5n": "xlarge 2xlarge 4xlarge 9xlarge 18xlarge",
        "c6i": "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 32xlarge",
        "c7i": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 48xlarge",
        "c7i-flex": "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge",
        "c8i": "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 32xlarge 48xlarge 96xlarge",
        "c8i-flex": "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge",
        "g4dn": "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge",
        "g5": "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 48xlarge",
        "g6": "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 48xlarge",
        "g6e": "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 48xlarge",
        "g7": "2xlarge 4xlarge 8xlarge 12xlarge 24xlarge 48xlarge",
        "g7e": "2xlarge 4xlarge 8xlarge 12xlarge 24xlarge 48xlarge",
        "m4": "xlarge 2xlarge 4xlarge 10xlarge 16xlarge",
        "m5": "large xlarge 2xlarge 4xlarge 12xlarge 24xlarge",
        "m6i": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 32xlarge",
        "m7i": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 48xlarge",
        "m7i-flex": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge",
        "m8i": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 32xlarge 48xlarge 96xlarge",
        "m8i-flex": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge",
        "p2": "xlarge 8xlarge 16xlarge",
        "p3": "2xlarge 8xlarge 16xlarge",
        "p3dn": "24xlarge",
        "p4d": "24xlarge",
        "p4de": "24xlarge",
        "p5": "4xlarge 48xlarge",
        "p5e": "48xlarge",
        "p5en": "48xlarge",
        "p6-b200": "48xlarge",
        "p6-b300": "48xlarge",
        "p6e-gb200": "36xlarge",
        "r5": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge",
        "r5d": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge",
        "r6i": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 32xlarge",
        "r7i": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 48xlarge",
        "r8i": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 32xlarge 48xlarge 96xlarge",
        "r8i-flex": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge",
        "t3": "medium large xlarge 2xlarge",
        "trn1": "2xlarge 32xlarge",
        "trn1n": "32xlarge",
        "trn2": "48xlarge",
    }
)
"""By family: its sizes in rising order, one blank between two."""

INSTANCE_TYPES = frozenset(f"ml.{family}.{size}" for family, sizes in SIZES.items() for size in sizes.split())
INSTANCE_TYPE_PATTERN = r"^ml\.[a-z][a-z0-9]*(-[a-z0-9]+)*\.[a-z0-9]+(-[a-z0-9]+)*$"
ACCELERATED_TYPE_PATTERN = r"^ml\.(g|gr|p)[0-9]"


def _letters(family: str) -> str:
    return re.sub(r"[^a-z].*", "", family)


KIN: Mapping[str, str] = {
    letters: " ".join(family for family in SIZES if _letters(family) == letters)
    for letters in dict.fromkeys(map(_letters, SIZES))
}
"""By first letters: the families that begin with them, one blank between two."""


def instance_type_has_accelerator(instance_type: str) -> bool:
    """Whether a SageMaker instance type has NVIDIA GPUs, by its family: g, gr or p followed by a digit."""
    return re.search(ACCELERATED_TYPE_PATTERN, instance_type) is not None


def near_instance_types(instance_type: str) -> list[str]:
    """What a type `ml.<family>.<size>` that does not exist may have been meant to be.

    Every size of its family; of a family that does not exist, one type of each family of the same first letters, of
    the same size where there is one.
    """
    _, family, size = instance_type.split(".")
    if family in SIZES:
        return [f"ml.{family}.{other}" for other in SIZES[family].split()]
    kin = {other: SIZES[other].split() for other in KIN.get(_letters(family), "").split()}
    return [f"ml.{other}.{size if size in sizes else sizes[0]}" for other, sizes in kin.items()]
