"""The list of instance types is SageMaker's, and a wrong type is told the near ones."""

import botocore.session
import pytest

from training.contract.instance_types import INSTANCE_TYPES, SIZES, instance_type_has_accelerator, near_instance_types


def test_the_list_is_the_one_of_the_installed_botocore() -> None:
    sagemaker = botocore.session.get_session().get_service_model("sagemaker")
    assert set(sagemaker.shape_for("TrainingInstanceType").enum) == INSTANCE_TYPES


def test_every_family_has_sizes_once_each() -> None:
    for family, sizes in SIZES.items():
        assert len(set(sizes.split())) == len(sizes.split()) >= 1, family


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("ml.p5.2xlarge", ["ml.p5.4xlarge", "ml.p5.48xlarge"]),
        (
            "ml.g9.xlarge",
            ["ml.g4dn.xlarge", "ml.g5.xlarge", "ml.g6.xlarge", "ml.g6e.xlarge", "ml.g7.2xlarge", "ml.g7e.2xlarge"],
        ),
        ("ml.trn9.large", ["ml.trn1.2xlarge", "ml.trn1n.32xlarge", "ml.trn2.48xlarge"]),
        ("ml.inf2.xlarge", []),
        ("ml.constructor.large", []),
    ],
)
def test_near_types(wrong: str, near: list[str]) -> None:
    assert near_instance_types(wrong) == near


def test_near_types_exist() -> None:
    for family in SIZES:
        for wrong in (f"ml.{family}.huge", f"ml.{family}x9.large"):
            assert set(near_instance_types(wrong)) <= INSTANCE_TYPES


def test_the_families_with_accelerators() -> None:
    families = {name.split(".")[1] for name in INSTANCE_TYPES if instance_type_has_accelerator(name)}
    assert families == {
        *("g4dn", "g5", "g6", "g6e", "g7", "g7e", "p2", "p3", "p3dn", "p4d", "p4de", "p5", "p5e", "p5en"),
        *("p6-b200", "p6-b300", "p6e-gb200"),
    }
