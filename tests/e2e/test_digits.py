"""Real input through the command line: 1,797 scanned digits as PNG class folders, learned over two hosts."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

PROJECT_ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {
    "model": "test_vit",
    "model_arguments": {"patch_size": 4, "depth": 2, "embed_dim": 64, "num_heads": 2},
    "image_size": 16,
    "batch_size": 64,
    "steps": 800,
    "learning_rate": 0.05,
    "validation_share": 0.2,
    "report_every_steps": 100,
}


def export_digits(folder: Path) -> int:
    """Write scikit-learn's digits as 8-bit PNG files, one folder per digit; returns their number."""
    digits = load_digits()
    for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        (folder / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 255 / 16).astype(np.uint8)).save(folder / str(label) / f"{number:04d}.png")
    return len(digits.images)


def test_a_small_vit_learns_the_digits_over_two_hosts(tmp_path: Path) -> None:
    assert export_digits(tmp_path / "digits") == 1797
    settings = [
        f"--set={name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in SETTINGS.items()
    ]
    command = [sys.executable, "-m", "infra.local", "train", "--images", str(tmp_path / "digits"), *settings]
    run = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(PROJECT_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    results = json.loads((tmp_path / "runs/train/algo-1/ml/output/data/results.json").read_text())
    assert results["validation_rows"] == pytest.approx(1797 * 0.2, abs=10)
    assert results["validation_accuracy"] >= 0.90
    assert {host["name"] for host in results["hosts"] if host["rows"] > 0} == {"algo-1", "algo-2"}
    assert (tmp_path / "runs/train/algo-1/ml/model/model.safetensors").exists()
