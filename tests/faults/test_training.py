"""The training itself fails: with an error, without progress, with a loss that is no number."""

from pathlib import Path
from typing import Any

import pytest

from container.bootstrap.errors import STALLED, TRAINING_FAILED
from tests.faults.conftest import FaultUnderTest
from tests.faults.jobs import BATCH_SIZE, CHECKPOINT_EVERY, GPU_ALONE, NUM_ROWS, TWO_TRAINERS, EndedJob, run
from training import checkpoints

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

FAILING_STEP = 50
LAST_CHECKPOINT = FAILING_STEP // CHECKPOINT_EVERY * CHECKPOINT_EVERY


def kept_by(job: EndedJob) -> Path:
    """What the platform would give to the next job."""
    return job.job_dir / "algo-1" / "ml" / "checkpoints"


@pytest.mark.fault("F11")
def test_an_error_ends_every_host_and_the_next_job_goes_on(tmp_path: Path, fault: FaultUnderTest) -> None:
    """Case C09."""
    job = run(tmp_path / "first", fault=f"raise {FAILING_STEP} 0")
    job.check_failed(TRAINING_FAILED, "ArithmeticError: a step that must not be made")
    for host in job.exit_codes:
        text = (job.job_dir / host / "ml" / "output" / "failure").read_text()
        assert text.startswith("ArithmeticError: a step that must not be made"), host

    following = run(tmp_path / "second", groups=GPU_ALONE, kept=kept_by(job))
    assert following.exit_codes == {"algo-1": 0}, following.output
    (resumed,) = following.events("resumed")
    assert resumed["fields"]["step"] == str(LAST_CHECKPOINT)
    rows = job.rows()[: LAST_CHECKPOINT * BATCH_SIZE] + following.rows()
    assert sorted(rows) == list(range(NUM_ROWS)), "no row twice, none left out"
    fault.took(job.seconds - job.at("step", which=-1), job.failure)


@pytest.mark.fault("F14")
@pytest.mark.parametrize("place", [pytest.param("loop", marks=pytest.mark.thorough), "collective"])
def test_a_hang_fails_the_job(tmp_path: Path, fault: FaultUnderTest, place: str) -> None:
    """In the collective all ranks but one wait for it."""
    in_collective = place == "collective"
    order: dict[str, Any] = {"groups": TWO_TRAINERS} if in_collective else {}
    job = run(
        tmp_path,
        fault=f"hang 30 {int(in_collective)}",
        training={"stall_timeout_seconds": 30, "batch_size": BATCH_SIZE // 2 if in_collective else BATCH_SIZE},
        **order,
    )
    job.check_failed(STALLED, "no progress for 30 s (stall_timeout_seconds)")
    fault.took(job.seconds - job.at("step", which=-1) - 30, job.failure)


@pytest.mark.fault("F22")
def test_a_loss_that_is_no_number_ends_the_job_and_is_in_no_checkpoint(tmp_path: Path, fault: FaultUnderTest) -> None:
    job = run(tmp_path, fault=f"nan {FAILING_STEP} 0", groups=GPU_ALONE)
    job.check_failed(TRAINING_FAILED, f"LossNotFinite: the loss of step {FAILING_STEP} is not a finite number")
    newest = checkpoints.find(kept_by(job)).newest
    assert newest is not None
    assert newest.step == LAST_CHECKPOINT
    fault.took(job.seconds - job.at("step", which=-1), job.failure)
