"""When a job fails for its data or its settings, every host says so, and the cause comes first."""

import shutil
from pathlib import Path

import pytest

from tests.cluster import local_runner

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

IMAGES = Path(__file__).parents[1] / "cases" / "images"
ON_IMAGES = {
    "model": "test_vit",
    "image_size": 160,
    "dataset": "image_folder",
    "transform": "normalize",
    "batch_size": 4,
    "steps": 3,
    "report_every_steps": 1,
    "join_timeout_seconds": 120,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes: good, grey and transparent images in one, three unreadable files in the other beside a good one."""
    good, bad = tmp_path / "images" / "good", tmp_path / "images" / "mixed"
    good.mkdir(parents=True)
    bad.mkdir()
    for name in ("ok_000.jpg", "ok_001.jpg", "ok_002.jpg", "gray.png", "rgba.png"):
        shutil.copy(IMAGES / name, good)
    for name in ("ok_003.jpg", "truncated.jpg", "zero_bytes.jpg", "error_page.jpg"):
        shutil.copy(IMAGES / name, bad)
    return tmp_path / "images"


def test_an_exception_in_training_ends_every_host_and_leads_the_failure_file(tmp_path: Path, folder: Path) -> None:
    """Cases C09 and C16: with no bad file allowed the first one is an exception in the training function."""
    outcome, output = local_runner.run(
        tmp_path / "job", training={**ON_IMAGES, "max_bad_share": 0.0}, channels={"training": str(folder)}
    )
    assert outcome["status"] == "Failed", output
    assert outcome["exit_codes"] == {"algo-1": 1, "algo-2": 1}
    assert outcome["failure"].startswith("BadFiles: 1 of 9 images are unreadable")
    assert "mixed/" in outcome["failure"]
    assert len(outcome["failure"]) <= 1024
    for host in ("algo-1", "algo-2"):
        assert (tmp_path / "job" / "job0" / host / "ml" / "output" / "failure").read_text().startswith("BadFiles: ")


def test_bad_input_ends_every_host_with_2_before_a_cluster_forms(tmp_path: Path) -> None:
    outcome, output = local_runner.run(tmp_path, training={**ON_IMAGES, "dataset": "synthetic", "image_size": 161})
    assert outcome["exit_codes"] == {"algo-1": 2, "algo-2": 2}, output
    assert outcome["failure"].startswith("training.image_size: 161 is no multiple of the 16-pixel patches")
    assert "\n" not in outcome["failure"].strip()
