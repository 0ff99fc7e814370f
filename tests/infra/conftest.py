"""What the tests of the stack share: each combination of settings, synthesized once in a session."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.infra.synthesis import Synthesis


def synthesized(combination: str) -> "Synthesis":
    from tests.infra.synthesis import synthesis  # starts the CDK's Node process, which most tests here do not need

    return synthesis(combination)


@pytest.fixture(scope="session")
def defaults() -> "Synthesis":
    return synthesized("defaults")


@pytest.fixture(scope="session")
def everything() -> "Synthesis":
    return synthesized("everything")


@pytest.fixture(scope="session")
def vpc() -> "Synthesis":
    return synthesized("vpc")


@pytest.fixture(scope="session")
def existing() -> "Synthesis":
    return synthesized("existing")


@pytest.fixture(scope="session", params=["defaults", "everything", "vpc", "existing"])
def any_combination(request: pytest.FixtureRequest) -> "Synthesis":
    return synthesized(request.param)
