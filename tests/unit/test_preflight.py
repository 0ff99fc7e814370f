"""The check before anything is paid for: each mistake is one line, and exit code 2."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from training.contract import ContractError, TrainingConfig
from training.preflight import EXIT_BAD_INPUT, check, main, read_hyperparameters

ROOT = Path(__file__).resolve().parents[2]
GOOD_IMAGE = ROOT / "tests" / "cases" / "images" / "ok_000.jpg"
FOLDER = {"dataset": "image_folder", "model": "test_vit", "image_size": "160", "transform": "normalize"}

SMALL = {"model": "test_vit", "image_size": "160", "num_records": "10"}

Refusals = Callable[[Mapping[str, str]], list[str]]


@pytest.fixture
def refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refusals:
    """The lines with which the command refuses these hyperparameters; the data folder is `tmp_path`/data."""

    def run(hyperparameters: Mapping[str, str]) -> list[str]:
        file = tmp_path / "hyperparameters.json"
        file.write_text(json.dumps(hyperparameters))
        assert main([f"--hyperparameters={file}", f"--data-dir={tmp_path / 'data'}"]) == EXIT_BAD_INPUT
        output = capsys.readouterr()
        assert output.out == ""
        return output.err.splitlines()

    return run


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "training"
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in range(3):
            (folder / name / f"{number}.jpg").symlink_to(GOOD_IMAGE)
    return folder


def test_an_unknown_model_comes_with_the_nearest_names(refusals: Refusals) -> None:
    (line,) = refusals({"model": "vit_bse_patch16_224"})
    assert line.startswith("model: 'vit_bse_patch16_224' is not a model of timm; nearest: vit_base_patch16_224")


def test_an_image_size_that_does_not_fit(refusals: Refusals) -> None:
    (line,) = refusals({"image_size": "225"})
    assert line.startswith("training.image_size: 225 is no multiple of the 16-pixel patches")
    assert "use 224 or 240" in line


def test_a_missing_folder(refusals: Refusals, tmp_path: Path) -> None:
    (line,) = refusals(FOLDER)
    assert line.startswith(f"dataset folder {tmp_path / 'data' / 'training'}: does not exist")


def test_an_empty_folder(refusals: Refusals, tmp_path: Path) -> None:
    (tmp_path / "data" / "training").mkdir(parents=True)
    (line,) = refusals(FOLDER)
    assert "has no folders" in line


def test_images_without_class_folders(refusals: Refusals, tmp_path: Path) -> None:
    (tmp_path / "data" / "training").mkdir(parents=True)
    (tmp_path / "data" / "training" / "0.jpg").symlink_to(GOOD_IMAGE)
    (line,) = refusals(FOLDER)
    assert "has images, but no folders" in line


def test_a_class_folder_without_images(refusals: Refusals, images: Path) -> None:
    (images / "owl").mkdir()
    (images / "owl" / "notes.txt").touch()
    (line,) = refusals(FOLDER)
    assert "class folder 'owl' has no images" in line


def test_fewer_classes_than_the_folder_has(refusals: Refusals, images: Path) -> None:
    (images / "owl").mkdir()
    (images / "owl" / "0.jpg").symlink_to(GOOD_IMAGE)
    (line,) = refusals({**FOLDER, "num_classes": "2"})
    assert line.startswith("training.num_classes: 2 is fewer than the 3 classes of the dataset")


def test_an_own_function_is_run_before_anything_is_paid_for(
    refusals: Refusals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    code = tmp_path / "data" / "code"
    code.mkdir(parents=True)
    (code / "unscaled_float.py").write_text("def work(image):\n    return image.float()\n")
    settings = {**SMALL, "transform": "unscaled_float:work", "code_channel": "code"}
    (line,) = refusals(settings)
    assert line.startswith("batch images: mean 12")
    (line,) = refusals({**settings, "transform": "unscaled_float:wark"})
    assert line == "training.transform: module unscaled_float has no function 'wark'; known: work"


def test_wrong_steps_have_a_line_each(refusals: Refusals) -> None:
    lines = refusals({**SMALL, "transform": "torchvision", "transform_steps": json.dumps(["Blur(3)", "Resize"])})
    assert [line.partition(": ")[0] for line in lines] == ["training.transform_steps[0]", "training.transform_steps[1]"]


def test_every_wrong_setting_has_its_line(refusals: Refusals) -> None:
    lines = refusals({"stepz": "3", "batch_size": "0", "learning_rate": "fast"})
    assert [line.partition(":")[0] for line in lines] == ["batch_size", "learning_rate", "stepz"]


@pytest.mark.usefixtures("images")
def test_a_run_that_can_start_is_laid_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {**FOLDER, "validation_share": "0.34"}
    file = tmp_path / "hyperparameters.json"
    file.write_text(json.dumps(settings))
    assert main([f"--hyperparameters={file}", f"--data-dir={tmp_path / 'data'}"]) == 0
    assert capsys.readouterr() == ("", "")
    plan = check(TrainingConfig.from_hyperparameters(settings), tmp_path / "data")
    assert (plan.num_training_rows, plan.num_validation_rows) == (4, 2)
    assert plan.description.class_names == ("cat", "dog")
    assert plan.description.num_classes == 2
    rows = [part.rows(0, part.num_rows).tolist() for part in (plan.training, plan.validation) if part]
    assert sorted(rows[0] + rows[1]) == list(range(6))


def test_a_run_without_a_held_out_share_has_no_validation(tmp_path: Path) -> None:
    plan = check(TrainingConfig(model="test_vit", image_size=160, num_records=10), tmp_path)
    assert (plan.num_training_rows, plan.num_validation_rows, plan.validation) == (10, 0, None)
    assert plan.description.num_classes == 1000


@pytest.mark.parametrize("text", ["{", "[1]", "7", "\xff"], ids=["broken", "list", "number", "not UTF-8"])
def test_hyperparameters_that_are_no_object_are_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hyperparameters.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ContractError, match=r"hyperparameters") as refusal:
        read_hyperparameters(path)
    assert len(refusal.value.problems) == 1
    assert "\n" not in str(refusal.value)


def test_a_job_without_hyperparameters_runs_the_defaults(tmp_path: Path) -> None:
    assert read_hyperparameters(tmp_path / "missing.json") == {}


def test_the_command_refuses_without_a_traceback(tmp_path: Path) -> None:
    file = tmp_path / "hyperparameters.json"
    file.write_text(json.dumps({"model": "resnet500", "image_size": "64"}))
    command = [sys.executable, "-m", "training.preflight", f"--hyperparameters={file}", f"--data-dir={tmp_path}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stdout) == (EXIT_BAD_INPUT, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("model: 'resnet500' is not a model of timm; nearest: resnet50")
