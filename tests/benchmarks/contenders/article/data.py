"""The data pipeline of the article's program: numbers become images, images are preprocessed, on every CPU.

The images are the product's rows and a row's random numbers the product's, so that both train on the same pixels.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import ray.data
import torch
from torchvision import transforms  # type: ignore[import-untyped]

from training.contract import TrainingConfig
from training.data.sources import Source, open_source
from training.data.transforms.transform import random_words

DATA_DIR = Path("/opt/ml/input/data")


def make_dataset(config: TrainingConfig) -> ray.data.Dataset:
    """Row numbers, made into images, preprocessed: every option is Ray Data's default."""
    dataset: Any = ray.data.range(config.num_records)
    dataset = dataset.map_batches(make_images, fn_args=(open_source(config, DATA_DIR),))
    made: ray.data.Dataset = dataset.map_batches(preprocess, fn_args=(make_transform(config), config.seed))
    return made


def make_transform(config: TrainingConfig) -> Callable[[Any], torch.Tensor]:
    """The article's blurs, or in the place of something light what every program has."""
    steps = [transforms.GaussianBlur(11)] * 10
    if config.transform == "normalize":
        from training.models import model_mean_and_std  # not in every data worker

        steps = [transforms.Normalize(*model_mean_and_std(config.model))]
    made: Callable[[Any], torch.Tensor] = transforms.Compose([transforms.ToTensor(), *steps])
    return made


def make_images(batch: dict[str, Any], source: Source) -> dict[str, Any]:
    """The product's noise and class for each row: `image` uint8 (rows, size, size, 3), `label` int64 (rows,)."""
    rows = batch["id"].tolist()
    return {
        "row": batch["id"],
        "image": np.stack([source.read(row) for row in rows]),
        "label": np.array([source.label(row) for row in rows], np.int64),
    }


def preprocess(batch: dict[str, Any], transform: Callable[[Any], torch.Tensor], seed: int) -> dict[str, Any]:
    """The transform over a batch (once a BatchMapper): `image` becomes float32 (rows, 3, size, size)."""
    images = []
    for row, image in zip(batch["row"].tolist(), batch["image"], strict=True):
        torch.manual_seed(random_words(seed, (0, row))[0])  # the article seeds nothing
        images.append(transform(image).numpy())
    return {"image": np.stack(images), "label": batch["label"]}
