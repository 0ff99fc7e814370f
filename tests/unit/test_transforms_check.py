"""The contract of a transform, on one row and on the first batch: what is wrong is told in one line."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from training.contract import ContractError
from training.data.sources import UnreadableRow
from training.data.synthetic import Synthetic
from training.data.transforms import Draw, GaussianBlurStack, Normalize, Transform, check_batch, check_transform
from training.data.transforms.check import MAX_ROWS_TRIED

SIZE = 16
IMAGES = torch.rand(4, 3, 8, 8)
LABELS = torch.tensor([0, 1, 2, 1])


@dataclass(frozen=True)
class PartlyReadable(Synthetic):
    """Rows before `first_good` cannot be read."""

    first_good: int = 0

    def read(self, row: int) -> NDArray[np.uint8]:
        if row < self.first_good:
            raise UnreadableRow(f"row {row}", "empty file")
        return super().read(row)


@dataclass(frozen=True)
class AnyPixels(GaussianBlurStack):
    """Leaves whatever `pixels` gives."""

    pixels: Callable[[], float] = float

    def on_host(self, image: NDArray[np.uint8], draw: Draw, out: NDArray[np.generic]) -> None:  # noqa: ARG002
        out[...] = self.pixels()


SOURCE = PartlyReadable(num_rows=200, num_classes=5, image_size=SIZE, seed=0)


def refusal(transform: Transform, source: PartlyReadable = SOURCE) -> str:
    with pytest.raises(ContractError) as caught:
        check_transform(transform, source, SIZE)
    (line,) = caught.value.problems
    return line


@pytest.mark.parametrize("transform", [GaussianBlurStack(0), GaussianBlurStack(0, "fused"), Normalize()])
def test_built_in_transforms_pass_without_a_word(transform: Transform) -> None:
    assert check_transform(transform, SOURCE, SIZE) == []


def test_pixels_that_no_model_takes_are_refused() -> None:
    assert refusal(AnyPixels(0, pixels=lambda: 127.5)).startswith("batch images: mean 127.5; expected between -10 and")
    assert refusal(AnyPixels(0, pixels=lambda: np.nan)).startswith("batch images: not finite")


def test_random_numbers_that_cannot_be_repeated_are_told() -> None:
    (note,) = check_transform(AnyPixels(0, pixels=np.random.default_rng().random), SOURCE, SIZE)
    assert "gives the same row other pixels each time" in note


def test_the_first_readable_row_is_enough() -> None:
    check_transform(Normalize(), replace(SOURCE, first_good=199), SIZE)


def test_a_dataset_that_cannot_be_read_is_refused() -> None:
    line = refusal(Normalize(), replace(SOURCE, first_good=200))
    assert line == f"dataset: none of {MAX_ROWS_TRIED} rows tried can be read; the first is row 0: empty file"
    line = refusal(Normalize(), replace(SOURCE, num_rows=2, first_good=2))
    assert line == "dataset: none of 2 rows tried can be read; the first is row 0: empty file"


def test_images_of_another_size_are_refused() -> None:
    line = refusal(Normalize(), replace(SOURCE, image_size=20))
    assert line == "dataset: row 0 is uint8 of shape (20, 20, 3); expected uint8 (16, 16, 3)"


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
