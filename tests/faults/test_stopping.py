"""SIGTERM: to every host as SageMaker sends it, at bad moments, more than once, and to one host alone."""

from pathlib import Path
from typing import Any

import pytest

from container.bootstrap.errors import STOPPED
from tests.faults.conftest import FaultUnderTest
from tests.faults.jobs import BATCH_SIZE, NUM_ROWS, EndedJob, during_training, run

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

GRACE_SECONDS = 110.0
"""The local runner kills after so long, where SageMaker takes 120 s."""


def check_stopped_in_order(job: EndedJob) -> None:
    """Every host ended by itself; the last step that was made has its checkpoint, and the model is there."""
    job.check_failed(STOPPED, "stopped by SIGTERM")
    (stopped,) = job.events("stopped")
    assert job.events("checkpoint")[-1]["fields"]["step"] == stopped["fields"]["step"]
    rows = job.rows()
    assert len(rows) == len(set(rows)) == int(stopped["fields"]["step"]) * BATCH_SIZE < NUM_ROWS
    assert job.has_model()


@pytest.mark.fault("F9")
def test_every_host_is_stopped(tmp_path: Path, fault: FaultUnderTest) -> None:
    """Case C10."""
    job = run(tmp_path, stop_at=("step", 3, GRACE_SECONDS))
    check_stopped_in_order(job)
    fault.took(job.seconds - job.at("step", which=2), job.failure)


@pytest.mark.fault("F10")
def test_stopped_during_the_start(tmp_path: Path, fault: FaultUnderTest) -> None:
    job = run(tmp_path, stop_at=("start", 2, GRACE_SECONDS))
    job.check_failed(STOPPED, "stopped by SIGTERM before training started")
    fault.took(job.seconds - job.at("start", which=1), job.failure)


IN_EVERY_RUN = "one host alone"
MOMENTS: dict[str, dict[str, Any]] = {
    "while a checkpoint is written": {
        "training": {"checkpoint_every_steps": 1},
        "stop_at": ("checkpoint", 5, GRACE_SECONDS),
    },
    "twice": {"faults": [during_training(host, "terminate", s) for s in (0.0, 0.3) for host in ("algo-1", "algo-2")]},
    IN_EVERY_RUN: {"faults": [during_training("algo-2", "terminate")]},
}


@pytest.mark.fault("F10")
@pytest.mark.parametrize(
    "moment", [pytest.param(name, marks=[] if name == IN_EVERY_RUN else pytest.mark.thorough) for name in MOMENTS]
)
def test_stopped_at_a_bad_moment(tmp_path: Path, fault: FaultUnderTest, moment: str) -> None:
    order = dict(MOMENTS[moment])
    job = run(tmp_path, *order.pop("faults", ()), **order)
    check_stopped_in_order(job)
    began = job.at("fault") if job.events("fault") else job.at("checkpoint", which=4)
    fault.took(job.seconds - began, job.failure)
