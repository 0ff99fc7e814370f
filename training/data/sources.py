"""What every dataset offers: rows that can be read one by one, on any host, in any order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from training.contract import ContractError, TrainingConfig

if TYPE_CHECKING:
    from training.data.storage import Storage

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

    def read_groups(self) -> NDArray[np.int64] | None:
        """Return the ends (excluded) of the runs of rows that are read at once, int64, ascending.

        None where any row is as cheap to read as another.
        """
        ...

    def expect(self, rows: NDArray[np.int64]) -> None:
        """Say which rows will be read next, in their order, so that what is far away can be fetched meanwhile.

        A hint, for one reading thread a process: what was said before counts no more, and any row can still be read.
        """
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
    # Imported here: a run of synthetic rows needs no image decoder, and only Parquet and S3 need pyarrow (0.4 s).
    if config.dataset == "synthetic":
        from training.data.synthetic import Synthetic

        num_classes = config.num_classes or DEFAULT_NUM_CLASSES
        return Synthetic(config.num_records, num_classes, config.image_size, config.seed)
    storage = _open_storage(config, data_folder)
    source: Source
    if config.dataset == "image_folder":
        from training.data.image_folder import ImageFolder

        source = ImageFolder(storage, config.image_size)
    else:
        from training.data.parquet import Parquet

        source = Parquet(storage, config.image_size, config.image_column, config.label_column)
    check_num_classes(config.num_classes, source)
    return source


def _open_storage(config: TrainingConfig, data_folder: Path) -> Storage:
    if config.data_uri is None:
        from training.data.storage import LocalFolder

        return LocalFolder(data_folder / config.channel)
    from training.data.s3 import S3Folder

    return S3Folder.at(config.data_uri)


def check_num_classes(num_classes: int | None, source: Source) -> None:
    """Raise ContractError where the model would have fewer outputs than the dataset has classes."""
    if num_classes is not None and num_classes < source.num_classes:
        excess = f"{num_classes} is fewer than the {source.num_classes} classes of the dataset"
        raise ContractError([f"training.num_classes: {excess}; leave it out or raise it"])
