"""Transforms: the pixels are torchvision's, on any host the same, and what reaches the model is what it takes."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torchvision import transforms as vision  # type: ignore[import-untyped]

from training.contract import ContractError
from training.data.image_folder import ImageFolder
from training.data.sources import UnreadableRow
from training.data.synthetic import Synthetic
from training.data.transforms import (
    GaussianBlurStack,
    Normalize,
    Transform,
    check_batch,
    create_transform,
    prepare_batch,
)

CASE_IMAGES = Path(__file__).parents[1] / "cases" / "images"
TRUTH = json.loads((CASE_IMAGES / "truth.json").read_text())
TRANSFORMS: list[Transform] = [GaussianBlurStack(seed=0), Normalize()]
SOURCE = Synthetic(num_rows=20, num_classes=5, image_size=24, seed=0)


def on_host(transform: Transform, image: NDArray[np.uint8], row: int = 0) -> NDArray[np.generic]:
    out = np.zeros(transform.wire_shape(len(image)), transform.wire_dtype)
    transform.on_host(image, row, out)
    return out


def test_the_blur_stack_is_to_tensor_and_ten_gaussian_blurs() -> None:
    transform = GaussianBlurStack(seed=9)
    reference = vision.Compose([vision.ToTensor(), *[vision.GaussianBlur(kernel_size=11) for _ in range(10)]])
    for row in (0, 3):
        image = SOURCE.read(row)
        with torch.random.fork_rng():
            # torchvision draws from the global generator: put the row's own stream there.
            torch.manual_seed(transform.generator(row).initial_seed())
            expected = reference(image).numpy()
        found = on_host(transform, image, row)
        assert (str(found.dtype), found.shape) == ("float32", (3, 24, 24))
        assert np.array_equal(found, expected)


def test_blur_depends_on_seed_and_row_and_not_on_the_host() -> None:
    image = SOURCE.read(0)
    torch.manual_seed(1)
    first = on_host(GaussianBlurStack(seed=1), image, row=7)
    torch.manual_seed(2)
    state = torch.random.get_rng_state()
    assert np.array_equal(first, on_host(GaussianBlurStack(seed=1), image, row=7))
    assert torch.equal(state, torch.random.get_rng_state())  # nothing else in the process is disturbed
    assert not np.array_equal(first, on_host(GaussianBlurStack(seed=1), image, row=8))
    assert not np.array_equal(first, on_host(GaussianBlurStack(seed=2), image, row=7))


def test_sigmas_fill_the_range_of_torchvision() -> None:
    sigmas = np.array([GaussianBlurStack(seed=3).draw_sigmas(row) for row in range(300)])
    assert sigmas.shape == (300, 10)
    assert 0.1 <= sigmas.min() < 0.12
    assert 1.98 < sigmas.max() <= 2.0
    assert abs(sigmas.mean() - 1.05) < 0.05  # 5 standard deviations of the mean of 3,000


def test_normalise_crosses_as_bytes_and_computes_on_the_device() -> None:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    transform = Normalize(mean, std)
    images = np.stack([SOURCE.read(row) for row in range(3)])
    wire = np.stack([on_host(transform, image) for image in images])
    assert wire.dtype == np.uint8
    assert np.array_equal(wire, images)
    found = transform.on_device(torch.from_numpy(wire))
    expected = torch.stack([vision.Normalize(mean, std)(vision.ToTensor()(image)) for image in images])
    assert (found.dtype, found.shape, found.is_contiguous()) == (torch.float32, (3, 3, 24, 24), True)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_the_ends_of_the_range_are_minus_one_and_one_by_default() -> None:
    pixels = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 1, 1, 3)
    assert Normalize().on_device(pixels).squeeze().tolist() == [[-1.0] * 3, [1.0] * 3]


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_batch_holds_the_rows_asked_for_in_their_order(transform: Transform) -> None:
    rows = np.array([4, 19, 4, 0])
    batch = prepare_batch(SOURCE, transform, rows, image_size=24)
    assert {name: (values.shape, values.dtype) for name, values in batch.items()} == {
        "image": ((4, *transform.wire_shape(24)), transform.wire_dtype),
        "label": ((4,), np.int64),
        "row": ((4,), np.int64),
        "valid": ((4,), np.bool_),
    }
    assert batch["row"].tolist() == rows.tolist()
    assert batch["valid"].all()
    assert batch["label"].tolist() == [SOURCE.label(row) for row in rows.tolist()]
    for place, row in enumerate(rows.tolist()):
        assert np.array_equal(batch["image"][place], on_host(transform, SOURCE.read(row), row))


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_c15_c16_mixed_and_unreadable_files_make_one_full_batch(tmp_path: Path, transform: Transform) -> None:
    shutil.copytree(CASE_IMAGES, tmp_path / "only")
    source = ImageFolder(tmp_path, 16)
    told: dict[str, str] = {}

    def tell(row: int, problem: UnreadableRow) -> None:
        told[source.describe(row)] = problem.reason

    batch = prepare_batch(source, transform, np.arange(source.num_rows), 16, on_unreadable=tell)
    valid = {Path(source.describe(row)).name: bool(batch["valid"][row]) for row in range(source.num_rows)}
    assert valid == {entry["file"]: entry["readable"] for entry in TRUTH}
    assert sorted(told) == ["only/error_page.jpg", "only/truncated.jpg", "only/zero_bytes.jpg"]
    assert not batch["image"][~batch["valid"]].any()
    images = transform.on_device(torch.from_numpy(batch["image"]))
    assert (images.shape, images.dtype) == ((len(TRUTH), 3, 16, 16), torch.float32)
    check_batch(images, torch.from_numpy(batch["label"]), num_classes=1)
    readable = images[torch.from_numpy(batch["valid"])]
    assert (readable.shape, bool((readable.flatten(1).std(dim=1) > 0).all())) == ((6, 3, 16, 16), True)


IMAGES = torch.rand(4, 3, 8, 8)
LABELS = torch.tensor([0, 1, 2, 1])


def test_c17_a_right_batch_passes() -> None:
    check_batch(IMAGES, LABELS, num_classes=3)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (
            (IMAGES * 255).to(torch.uint8),
            LABELS,
            "batch images: uint8; expected float32, convert in the transform's device part",
        ),
        (
            torch.full((4, 3, 8, 8), 127.5),
            LABELS,
            "batch images: mean 127.5; expected between -10 and 10, scale pixels to 0..1 or normalise them",
        ),
        (IMAGES.double(), LABELS, "batch images: float64; expected float32, convert in the transform's device part"),
        (IMAGES / 0, LABELS, "batch images: not finite (NaN or infinity); look at the transform's output"),
        (IMAGES.movedim(1, 3), LABELS, "batch images: shape (4, 8, 8, 3); expected (batch, 3, height, width)"),
        (IMAGES, LABELS.int(), "batch labels: int32; expected int64, class numbers from 0"),
        (IMAGES, LABELS.float(), "batch labels: float32; expected int64, class numbers from 0"),
        (IMAGES, LABELS.view(4, 1), "batch labels: shape (4, 1); expected (batch,), one class number per row"),
        (IMAGES, LABELS + 1, "batch labels: 1 to 3; expected 0 to 2, see training.num_classes"),
        (IMAGES, LABELS[:2], "batch: 4 images but 2 labels; the transform must keep every row"),
        (IMAGES[:0], LABELS[:0], "batch: no rows; at least one is needed"),
    ],
)
def test_c17_a_wrong_batch_is_refused_in_one_line(images: torch.Tensor, labels: torch.Tensor, message: str) -> None:
    with pytest.raises(ContractError) as refusal:
        check_batch(images, labels, num_classes=3)
    assert refusal.value.problems == [message]


def test_every_problem_of_a_batch_is_told() -> None:
    with pytest.raises(ContractError) as refusal:
        check_batch(IMAGES.double(), LABELS.int(), num_classes=3)
    assert len(refusal.value.problems) == 2


def test_transforms_are_found_by_name() -> None:
    assert create_transform("gaussian_blur_stack", 3) == GaussianBlurStack(seed=3)
    assert create_transform("normalize", 3) == Normalize()
    assert create_transform("normalize", 3, (0.4,) * 3, (0.2,) * 3) == Normalize((0.4,) * 3, (0.2,) * 3)
    with pytest.raises(ContractError) as refusal:
        create_transform("sharpen", 0)
    assert str(refusal.value) == ("training.transform: 'sharpen' is unknown; allowed: gaussian_blur_stack, normalize")


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_transform_pickles(transform: Transform) -> None:
    assert pickle.loads(pickle.dumps(transform)) == transform
