"""Datasets: what is read is always RGB of the set size, and what cannot be read says so by its name."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from training.contract import ContractError, TrainingConfig
from training.data.image_folder import ImageFolder
from training.data.sources import Source, UnreadableRow, open_source
from training.data.storage import LocalFolder
from training.data.synthetic import Synthetic

ROOT = Path(__file__).parents[2]
CASE_IMAGES = ROOT / "tests" / "cases" / "images"
TRUTH = json.loads((CASE_IMAGES / "truth.json").read_text())
RNG = np.random.default_rng(0)


def noise(height: int, width: int) -> NDArray[np.uint8]:
    return RNG.integers(0, 256, (height, width, 3), np.uint8)


def save(path: Path, image: Image.Image, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)  # type: ignore[arg-type]
    return path


def fill(folder: Path, *names: str) -> Path:
    for name in names:
        save(folder / name, Image.fromarray(noise(12, 10)))
    return folder


@pytest.fixture
def case_folder(tmp_path: Path) -> Path:
    shutil.copytree(CASE_IMAGES, tmp_path / "data" / "only")
    return tmp_path / "data"


# --- synthetic ---


def test_synthetic_rows_depend_on_seed_and_row_alone() -> None:
    first, again = Synthetic(100, 10, 33, seed=1), Synthetic(7, 10, 33, seed=1)
    image = first.read(5)
    assert (image.shape, str(image.dtype), image.flags.writeable) == ((33, 33, 3), "uint8", True)
    assert np.array_equal(image, again.read(5))
    assert first.label(5) == again.label(5)
    for other in (first.read(6), Synthetic(100, 10, 33, seed=2).read(5)):
        assert np.mean(other == image) < 0.02


def test_a_synthetic_row_is_the_same_in_every_version_of_the_libraries() -> None:
    source = Synthetic(100, 1000, 8, seed=3)
    assert source.read(2**29)[0, 0].tolist() == [255, 42, 83]
    assert [source.label(row) for row in range(4)] == [472, 597, 169, 598]


def test_synthetic_pixels_and_labels_are_spread_evenly() -> None:
    source = Synthetic(2000, 4, 64, seed=0)
    counts = np.bincount(source.read(0).ravel(), minlength=256)
    assert abs(counts - 48).max() < 6 * 7  # 12,288 bytes over 256 values; standard deviation 7
    labels = np.bincount([source.label(row) for row in range(2000)], minlength=4)
    assert abs(labels - 500).max() < 6 * 20  # standard deviation 19.4


def test_synthetic_describes_itself() -> None:
    source: Source = Synthetic(5, 3, 8, seed=0)
    assert (source.num_rows, source.num_classes, source.class_names) == (5, 3, ("0", "1", "2"))
    assert (source.describe(4), source.known_labels()) == ("row 4", None)


# --- image folder: listing ---


def test_classes_and_files_are_numbered_by_name(tmp_path: Path) -> None:
    fill(tmp_path, "b/2.png", "b/10.JPG", "a/z/deep/1.jpeg", "a/y.PNG", "a/.hidden.jpg", "a/.cache/x.jpg", ".git/x.png")
    (tmp_path / "a" / "notes.txt").write_text("no image")
    fill(tmp_path, "stray.jpg")
    source: Source = ImageFolder(LocalFolder(tmp_path), 8)
    assert source.class_names == ("a", "b")
    assert [source.describe(row) for row in range(source.num_rows)] == [
        "a/y.PNG",
        "a/z/deep/1.jpeg",
        "b/10.JPG",
        "b/2.png",
    ]
    assert [source.label(row) for row in range(4)] == [0, 0, 1, 1]
    labels = source.known_labels()
    assert labels is not None
    assert (labels.tolist(), str(labels.dtype)) == ([0, 0, 1, 1], "int64")
    assert all(source.read(row).shape == (8, 8, 3) for row in range(4))


def test_names_that_are_no_utf_8_and_links_are_read(tmp_path: Path) -> None:
    fill(tmp_path / "data", "a/x.jpg")
    odd = os.fsencode(tmp_path / "data" / "a") + b"/\xff\xfe.png"
    shutil.copy(os.fsencode(tmp_path / "data" / "a" / "x.jpg"), odd)
    fill(tmp_path, "elsewhere/linked.jpg")
    (tmp_path / "data" / "b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "a" / "again").symlink_to(tmp_path / "data" / "a")  # would never end
    source = ImageFolder(LocalFolder(tmp_path / "data"), 8)
    assert [os.fsencode(source.describe(row)) for row in range(source.num_rows)] == [
        b"a/x.jpg",
        b"a/\xff\xfe.png",
        b"b/linked.jpg",
    ]
    assert source.read(1).shape == (8, 8, 3)


def test_a_folder_pickles_to_little_more_than_its_names(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for number in range(1000):
        (tmp_path / "a" / f"{number:04}.jpg").touch()
    source = ImageFolder(LocalFolder(tmp_path), 8)
    text = pickle.dumps(source)
    assert len(text) < 1000 * (len("a/0000.jpg") + 8) + 2000
    assert pickle.loads(text).describe(999) == "a/0999.jpg"


def test_what_is_no_class_layout_is_refused_in_one_line(tmp_path: Path) -> None:
    layout = "expected one folder per class with images inside, such as cat/001.jpg and dog/001.jpg"
    file = save(tmp_path / "file.png", Image.new("L", (9, 9)))
    empty = tmp_path / "empty"
    empty.mkdir()
    flat = fill(tmp_path / "flat", "1.jpg", "2.jpg")
    hollow = fill(tmp_path / "hollow", "cat/1.jpg")
    (hollow / "dog").mkdir()
    (hollow / "dog" / "readme.txt").touch()
    expected = {
        tmp_path / "missing": f"dataset folder {tmp_path}/missing: does not exist; {layout}",
        file: f"dataset folder {file}: is not a folder; {layout}",
        empty: f"dataset folder {empty}: has no folders; {layout}",
        flat: f"dataset folder {flat}: has images, but no folders; {layout}",
        hollow: f"dataset folder {hollow}: class folder 'dog' has no images (.jpg, .jpeg, .png); add some or remove it",
    }
    for folder, message in expected.items():
        with pytest.raises(ContractError) as refusal:
            ImageFolder(LocalFolder(folder), 8)
        assert str(refusal.value) == message


# --- image folder: reading ---


def test_files_are_readable_exactly_where_the_truth_says(case_folder: Path) -> None:
    source = ImageFolder(LocalFolder(case_folder), 32)
    readable = {}
    for row in range(source.num_rows):
        name = Path(source.describe(row)).name
        try:
            image = source.read(row)
            readable[name] = (image.shape, str(image.dtype)) == ((32, 32, 3), "uint8")
        except UnreadableRow:
            readable[name] = False
    assert readable == {entry["file"]: entry["readable"] for entry in TRUTH}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("truncated.jpg", "truncated"),
        ("zero_bytes.jpg", "empty file"),
        ("error_page.jpg", "not a JPEG or PNG image"),
    ],
)
def test_bad_files_say_their_name_and_reason(case_folder: Path, name: str, reason: str) -> None:
    source = ImageFolder(LocalFolder(case_folder), 32)
    row = [source.describe(row) for row in range(source.num_rows)].index(f"only/{name}")
    with pytest.raises(UnreadableRow) as caught:
        source.read(row)
    assert caught.value.path == f"only/{name}"
    assert reason in caught.value.reason
    assert str(pickle.loads(pickle.dumps(caught.value))) == f"only/{name}: {caught.value.reason}"
    assert "\n" not in str(caught.value)


def test_what_is_no_readable_file_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fill(tmp_path, "a/large.jpg") / "a"
    monkeypatch.setattr("training.data.storage.MAX_FILE_BYTES", (folder / "large.jpg").stat().st_size - 1)
    os.mkfifo(folder / "pipe.jpg")
    (folder / "dangling.jpg").symlink_to(tmp_path / "nowhere")
    source = ImageFolder(LocalFolder(tmp_path), 8)
    problems = []
    for row in range(source.num_rows):
        with pytest.raises(UnreadableRow) as caught:
            source.read(row)
        problems.append(str(caught.value))
    assert problems == [
        "a/dangling.jpg: No such file or directory",
        "a/large.jpg: larger than 0 MiB",
        "a/pipe.jpg: not a regular file",
    ]


# --- by configuration ---


def test_a_run_opens_its_dataset(tmp_path: Path) -> None:
    default = open_source(TrainingConfig(), tmp_path)
    assert (default.num_rows, default.num_classes, default.read(0).shape) == (64_000, 1000, (224, 224, 3))
    small = open_source(TrainingConfig(num_classes=3, num_records=5, image_size=8, seed=4), tmp_path)
    assert small == Synthetic(5, 3, 8, 4)
    fill(tmp_path / "pets", "cat/1.jpg", "dog/1.jpg")
    for num_classes in (None, 2, 5):
        config = TrainingConfig(dataset="image_folder", channel="pets", image_size=16, num_classes=num_classes)
        assert (open_source(config, tmp_path).num_rows, open_source(config, tmp_path).num_classes) == (2, 2)


def test_too_few_classes_are_refused(tmp_path: Path) -> None:
    fill(tmp_path / "training", "cat/1.jpg", "dog/1.jpg")
    with pytest.raises(ContractError) as refusal:
        open_source(TrainingConfig(dataset="image_folder", num_classes=1), tmp_path)
    assert str(refusal.value) == (
        "training.num_classes: 1 is fewer than the 2 classes of the dataset; leave it out or raise it"
    )


def test_sources_and_plan_load_neither_torch_nor_ray() -> None:
    code = (
        "import sys, training.data.image_folder, training.data.synthetic, training.data.plan;"
        "print([name for name in ('torch', 'ray', 'timm') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "[]\n"
