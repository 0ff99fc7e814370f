"""One embedded AWS for all tests of this folder, its clients and what its jobs do."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local.aws.server import EmbeddedAws
from tests.embedded.clients import Clients
from tests.embedded.deployment import Deployment
from tests.embedded.jobs import Jobs
from tests.embedded.machines import Machines
from tests.embedded.scenarios import Scenarios

FAKE_RUNNER = Path(__file__).with_name("fake_runner.py")
WAIT_SCALE = 0.02  # a poll of 1 s takes 20 ms


@pytest.fixture(scope="session")
def scenario_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the fake runner looks for what its job shall do."""
    return tmp_path_factory.mktemp("scenarios")


@pytest.fixture(scope="session")
def embedded_aws(scenario_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAws]:
    """The emulator with the fake runner; waits of state machines are short."""
    runner = [sys.executable, "-S", str(FAKE_RUNNER), "--scenarios", str(scenario_dir)]
    with EmbeddedAws(
        runner_command=runner, wait_scale=WAIT_SCALE, work_dir=tmp_path_factory.mktemp("embedded-aws")
    ) as aws:
        yield aws


@pytest.fixture(scope="session")
def clients(embedded_aws: EmbeddedAws) -> Clients:
    """Clients of the emulator's root user."""
    return Clients.of(embedded_aws)


@pytest.fixture
def scenarios(scenario_dir: Path) -> Iterator[Scenarios]:
    """Says what the jobs of a test do; without a word from it they complete at once."""
    yield Scenarios(scenario_dir)
    for file in scenario_dir.iterdir():
        file.unlink()


@pytest.fixture(scope="session")
def jobs(clients: Clients) -> Jobs:
    """Makes training jobs."""
    return Jobs.prepare(clients)


@pytest.fixture(scope="session")
def machines(clients: Clients) -> Machines:
    """Makes state machines."""
    return Machines.prepare(clients)


@pytest.fixture(scope="session")
def cdk_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the stack is synthesized once for every emulator."""
    return tmp_path_factory.mktemp("cdk")


@pytest.fixture(scope="session")
def deployment(embedded_aws: EmbeddedAws, cdk_dir: Path) -> Deployment:
    """The project's stack, deployed by the CDK's command line, with an image."""
    return Deployment.create(embedded_aws, cdk_dir)
