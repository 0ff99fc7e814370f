"""Full disks, a small /dev/shm, damaged checkpoints and records."""

import shutil
from pathlib import Path

import pytest

from container.bootstrap.errors import TRAINING_FAILED
from tests.faults.conftest import FaultUnderTest
from tests.faults.jobs import CHECKPOINT_EVERY, GPU_ALONE, run
from training import checkpoints

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

IMAGES = Path(__file__).parents[1] / "cases" / "images"
FULL = "mount -t tmpfs -o size=64k full {}"


@pytest.mark.thorough
@pytest.mark.fault("F13")
def test_a_small_shared_memory_moves_objects_to_the_disk(tmp_path: Path, fault: FaultUnderTest) -> None:
    """Case C18."""
    job = run(tmp_path, groups=GPU_ALONE, shm_bytes=64 << 20)
    job.check_completed()
    assert job.events("object_store_on_disk")
    fault.took(job.outcome["last_step_to_end_seconds"])


@pytest.mark.thorough
@pytest.mark.fault("F13")
def test_a_checkpoint_without_room_is_left_out(tmp_path: Path, fault: FaultUnderTest) -> None:
    job = run(tmp_path, groups=GPU_ALONE, before=FULL.format("/opt/ml/checkpoints"))
    job.check_completed()
    reasons = [event["fields"]["reason"] for event in job.events("checkpoint_failed")]
    assert reasons
    assert all("/opt/ml/checkpoints" in reason and "No space left" in reason for reason in reasons)
    assert not job.events("checkpoint")
    fault.took(job.outcome["last_step_to_end_seconds"], reasons[0])


@pytest.mark.fault("F13")
def test_a_model_without_room_fails_the_job(tmp_path: Path, fault: FaultUnderTest) -> None:
    job = run(tmp_path, groups=GPU_ALONE, before=FULL.format("/opt/ml/model"))
    job.check_failed(TRAINING_FAILED, "OSError: /opt/ml/model")
    assert "No space left on device" in job.failure
    fault.took(job.outcome["last_step_to_end_seconds"], job.failure)


@pytest.mark.thorough
@pytest.mark.fault("F17")
def test_a_damaged_newest_checkpoint_is_passed_over(tmp_path: Path, fault: FaultUnderTest) -> None:
    """Case C22."""
    failed = run(tmp_path / "first", fault=f"raise {2 * CHECKPOINT_EVERY + 10} 0", groups=GPU_ALONE)
    kept = failed.job_dir / "algo-1" / "ml" / "checkpoints"
    newest = checkpoints.files(kept)[-1]
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    job = run(tmp_path / "second", groups=GPU_ALONE, kept=kept)
    assert job.exit_codes == {"algo-1": 0}, job.output
    (resumed,) = job.events("resumed")
    assert resumed["fields"]["step"] == str(CHECKPOINT_EVERY)
    (damaged,) = job.events("checkpoint_damaged")
    assert damaged["fields"]["file"] == newest.name
    fault.took(job.at("first_step") - job.at("training_started"), damaged["fields"]["file"])


@pytest.mark.thorough
@pytest.mark.fault("F18")
def test_a_record_that_cannot_be_read_is_named_and_skipped(tmp_path: Path, fault: FaultUnderTest) -> None:
    """Case C16."""
    folder = tmp_path / "images"
    for number in range(10):
        (folder / f"class{number % 2}").mkdir(parents=True, exist_ok=True)
        shutil.copy(IMAGES / f"ok_00{number % 4}.jpg", folder / f"class{number % 2}" / f"{number}.jpg")
    shutil.copy(IMAGES / "truncated.jpg", folder / "class0" / "truncated.jpg")
    job = run(
        tmp_path / "job",
        groups=GPU_ALONE,
        channels={"training": str(folder)},
        training={"dataset": "image_folder", "steps": 11, "max_bad_share": 0.1, "report_every_steps": 1},
    )
    assert set(job.exit_codes.values()) == {0}, job.output
    (unreadable,) = job.events("unreadable")
    assert "class0/truncated.jpg" in unreadable["fields"]["reason"]
    assert sorted(job.rows()) == sorted(list(range(11)) * 4), "four passes over 11 files, the damaged one among them"
    fault.took(job.outcome["last_step_to_end_seconds"], unreadable["fields"]["reason"])
