"""What every dataset offers: rows that can be read one by one, on any host, in any order."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from training.contract import ContractError, TrainingConfig

DEFAULT_NUM_CLASSES = 1000
"""Classes of the synthetic set where the run names no number, as ImageNet has."""


class UnreadableRow(Exception):
    """A row whose image cannot be had; `path` says which, `reason` why, in a few words without a line break."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class Source(Protocol):
    """A dataset of `num_rows` images. It is pickled to every worker, so it holds no open file and little memory."""

    @property
    def num_rows(self) -> int:
        """Rows that can be asked for: 0..num_rows-1."""
        ...

    @property
    def num_classes(self) -> int:
        """Classes that labels come from: 0..num_classes-1."""
        ...

    @property
    def class_names(self) -> tuple[str, ...]:
        """One name per class, in the order of the labels."""
        ...

    def label(self, row: int) -> int:
        """Return the class of a row, 0..num_classes-1, without reading its image."""
        ...

    def known_labels(self) -> NDArray[np.int64] | None:
        """Return the classes of all rows, int64, where they cost nothing to know; None elsewhere."""
        ...

    def read(self, row: int) -> NDArray[np.uint8]:
        """Return the image, uint8 of shape (image_size, image_size, 3), RGB, writable; raises UnreadableRow."""
        ...

    def describe(self, row: int) -> str:
        """Name a row so that a person finds it: the file's path, or the row's number."""
        ...


def open_source(config: TrainingConfig, data_folder: Path) -> Source:
    """Return the dataset that a run asks for; `data_folder` is where the input channels lie (/opt/ml/input/data).

    Raises ContractError in one line where the folder is not what it should be.
    """
    # Imported here: a run of synthetic rows needs no image decoder.
    from training.data.image_folder import ImageFolder
    from training.data.synthetic import Synthetic

    if config.dataset == "synthetic":
        num_classes = config.num_classes or DEFAULT_NUM_CLASSES
        return Synthetic(config.num_records, num_classes, config.image_size, config.seed)
    source = ImageFolder(data_folder / config.channel, config.image_size)
    check_num_classes(config.num_classes, source)
    return source


def check_num_classes(num_classes: int | None, source: Source) -> None:
    """Raise ContractError where the model would have fewer outputs than the dataset has classes."""
    if num_classes is not None and num_classes < source.num_classes:
        excess = f"{num_classes} is fewer than the {source.num_classes} classes of the dataset"
        raise ContractError([f"training.num_classes: {excess}; leave it out or raise it"])
