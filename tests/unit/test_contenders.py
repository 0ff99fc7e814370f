"""The contenders of the benchmarks do the same work as the product: its pixels, and one host's loaders in its order."""

import importlib

import numpy as np
import pytest
import torch

from tests.benchmarks.contenders.article.data import make_images, make_transform, preprocess
from tests.benchmarks.contenders.work import BATCH_SIZE, IMAGE_SIZE, Work
from training.contract import TrainingConfig
from training.data.prepare import prepare_rows
from training.data.synthetic import Synthetic
from training.data.transforms import Normalize, create_transform
from training.models import model_mean_and_std

ROWS = np.array([0, 5, 999])


@pytest.mark.parametrize("transform", ["gaussian_blur_stack", "normalize"])
def test_the_article_trains_on_the_products_pixels(transform: str) -> None:
    config = TrainingConfig(transform=transform, image_size=64, seed=3)
    source = Synthetic(1000, 10, config.image_size, config.seed)
    own = create_transform(config, *model_mean_and_std(config.model))
    images = np.empty((len(ROWS), *own.wire_shape(config.image_size)), own.wire_dtype)
    labels, valid = np.empty(len(ROWS), np.int64), np.empty(len(ROWS), np.bool_)
    prepare_rows(source, own, ROWS, np.zeros_like(ROWS), images, labels, valid)

    theirs = preprocess(make_images({"id": ROWS}, source), make_transform(config), config.seed)

    assert theirs["image"].dtype == np.float32
    np.testing.assert_allclose(theirs["image"], own.on_device(torch.from_numpy(images)).numpy(), atol=1e-6)
    np.testing.assert_array_equal(theirs["label"], labels)


@pytest.mark.parametrize("contender", ["dataloader", "spdl_loader"])
def test_a_loader_brings_the_rows_in_order(contender: str) -> None:
    source = Synthetic(1000, 10, IMAGE_SIZE, 0)
    work = Work(source=source, transform=Normalize(), num_batches=3, num_workers=2)
    rows = iter(work.rows().tolist())
    num_batches = 0
    for images, labels in importlib.import_module(f"tests.benchmarks.contenders.{contender}").batches(work):
        num_batches += 1
        assert images.shape == (BATCH_SIZE, IMAGE_SIZE, IMAGE_SIZE, 3)
        for image, label in zip(images.numpy(), labels.tolist(), strict=True):
            row = next(rows)
            np.testing.assert_array_equal(image, source.read(row))
            assert label == source.label(row)
    assert num_batches == work.num_batches
