"""Transforms by their settings, and rows through them: in order, whole, and what the model takes."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torchvision import transforms as vision  # type: ignore[import-untyped]

from training.contract import TrainingConfig
from training.data.image_folder import ImageFolder
from training.data.prepare import prepare_rows
from training.data.sources import Source
from training.data.storage import LocalFolder
from training.data.synthetic import Synthetic
from training.data.transforms import GaussianBlurStack, Normalize, Transform, check_batch, create_transform
from training.data.transforms.number_format import BFLOAT16, FLOAT16, FLOAT32, UINT8, NumberFormat

CASE_IMAGES = Path(__file__).parents[1] / "cases" / "images"
TRUTH = json.loads((CASE_IMAGES / "truth.json").read_text())
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZE = 24
SOURCE = Synthetic(num_rows=20, num_classes=5, image_size=SIZE, seed=0)


def transform_of(**settings: object) -> Transform:
    config = TrainingConfig.model_validate({"image_size": SIZE, **settings})
    return create_transform(config, MEAN, STD)


TRANSFORMS = {
    "blur": transform_of(),
    "fused": transform_of(transform_implementation="fused"),
    "blur in bfloat16": transform_of(precision="bf16"),
    "normalize": transform_of(transform="normalize"),
    "steps": transform_of(transform="torchvision", transform_steps=["RandomHorizontalFlip"]),
}
every_transform = pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=list(TRANSFORMS))


def prepared(
    source: Source, transform: Transform, rows: NDArray[np.int64], image_size: int
) -> tuple[NDArray[np.generic], NDArray[np.int64], NDArray[np.bool_], dict[int, str]]:
    images = np.ones((len(rows), *transform.wire_shape(image_size)), transform.wire_dtype)
    labels, valid = np.full(len(rows), -1, np.int64), np.zeros(len(rows), np.bool_)
    problems = prepare_rows(source, transform, rows, np.full(len(rows), 3), images, labels, valid)
    return images, labels, valid, problems


def test_transforms_are_found_by_name() -> None:
    assert transform_of(seed=3) == GaussianBlurStack(3)
    assert transform_of(transform_implementation="fused") == GaussianBlurStack(0, "fused")
    assert transform_of(transform="normalize") == Normalize(MEAN, STD)


@pytest.mark.parametrize(
    ("precision", "wire"), [("fp32", FLOAT32), ("tf32", FLOAT32), ("bf16", BFLOAT16), ("fp16", FLOAT16)]
)
def test_floats_cross_as_wide_as_the_model_takes_them(precision: str, wire: NumberFormat) -> None:
    scaled = {"transform": "torchvision", "transform_steps": ["ToDtype(torch.float32, scale=True)"]}
    assert transform_of(precision=precision).wire_dtype == wire.carrier
    assert transform_of(precision=precision, **scaled).wire_dtype == wire.carrier
    assert transform_of(precision=precision, transform="normalize").wire_dtype == UINT8.carrier


@every_transform
def test_a_batch_holds_the_rows_asked_for_in_their_order(transform: Transform) -> None:
    rows = np.array([4, 19, 4, 0])
    images, labels, valid, problems = prepared(SOURCE, transform, rows, SIZE)
    assert (valid.tolist(), problems) == ([True] * 4, {})
    assert labels.tolist() == [SOURCE.label(row) for row in rows.tolist()]
    for place, row in enumerate(rows.tolist()):
        alone = np.zeros(transform.wire_shape(SIZE), transform.wire_dtype)
        transform.on_host(SOURCE.read(row), (3, row), alone)
        assert np.array_equal(images[place], alone)


@every_transform
def test_c15_c16_mixed_and_unreadable_files_make_one_full_batch(tmp_path: Path, transform: Transform) -> None:
    shutil.copytree(CASE_IMAGES, tmp_path / "only")
    source = ImageFolder(LocalFolder(tmp_path), 16)
    images, labels, valid, problems = prepared(source, transform, np.arange(source.num_rows), 16)
    found = {Path(source.describe(row)).name: bool(valid[row]) for row in range(source.num_rows)}
    assert found == {entry["file"]: entry["readable"] for entry in TRUTH}
    assert [source.describe(row) for row in problems] == [
        "only/error_page.jpg",
        "only/truncated.jpg",
        "only/zero_bytes.jpg",
    ]
    assert not images[~valid].any()
    model_input = transform.on_device(torch.from_numpy(images))
    assert (model_input.shape, model_input.dtype) == ((len(TRUTH), 3, 16, 16), torch.float32)
    check_batch(model_input, torch.from_numpy(labels), num_classes=1)
    readable = model_input[torch.from_numpy(valid)]
    assert (readable.shape, bool((readable.flatten(1).std(dim=1) > 0).all())) == ((6, 3, 16, 16), True)


@every_transform
def test_a_transform_pickles(transform: Transform) -> None:
    assert pickle.loads(pickle.dumps(transform)) == transform


def test_normalise_crosses_as_bytes_and_computes_on_the_device() -> None:
    transform = Normalize(MEAN, STD)
    images = np.stack([SOURCE.read(row) for row in range(3)])
    wire, *_ = prepared(SOURCE, transform, np.arange(3), SIZE)
    assert wire.dtype == np.uint8
    assert np.array_equal(wire, images)
    found = transform.on_device(torch.from_numpy(wire))
    expected = torch.stack([vision.Normalize(MEAN, STD)(vision.ToTensor()(image)) for image in images])
    assert (found.dtype, found.shape, found.is_contiguous()) == (torch.float32, (3, 3, SIZE, SIZE), True)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_the_ends_of_the_range_are_minus_one_and_one_by_default() -> None:
    pixels = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 1, 1, 3)
    assert Normalize().on_device(pixels).squeeze().tolist() == [[-1.0] * 3, [1.0] * 3]
