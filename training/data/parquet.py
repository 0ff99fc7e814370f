"""Parquet files with a column of images and a column of classes."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from training.contract import ContractError
from training.data.decoding import decode_image, one_line
from training.data.parquet_groups import RowGroups, to_pixels
from training.data.parquet_head import merge_labels, read_head
from training.data.runs import run_of, start_of
from training.data.sources import UnreadableRow
from training.data.storage import Storage

_ENDINGS = (b".parquet",)
_HIDDEN = (b".", b"_")  # _metadata, _SUCCESS, _temporary and the like
_LAYOUT = "expected files that end in .parquet"
_NUM_THREADS = 8
"""Files whose heads are read at once; most of it is waiting where they are far away."""


class Parquet:
    """Every row of every *.parquet file below `storage`; files are numbered in the order of their names.

    Files and folders that begin with "." or "_" are left out. Construction reads metadata and classes, no image, and
    raises ContractError in one line. Images are read a row group at a time.
    """

    def __init__(self, storage: Storage, image_size: int, image_column: str, label_column: str) -> None:
        self.storage = storage
        self.image_size = image_size
        self._paths = storage.list_files(_ENDINGS, _HIDDEN, _LAYOUT).files
        if not self._paths:
            raise ContractError([f"{storage}: has no Parquet files; {_LAYOUT}"])
        with ThreadPoolExecutor(_NUM_THREADS) as threads:
            heads = list(
                threads.map(
                    lambda path: read_head(storage, path, self._shown(path), image_column, label_column), self._paths
                )
            )
        self._labels, self.class_names = merge_labels(heads)
        if not self._labels.size:
            raise ContractError([f"{storage}: its Parquet files have no rows; add some"])
        self._group_ends = np.cumsum(np.concatenate([head.group_rows for head in heads]))
        self._file_ends = np.cumsum([head.group_rows.size for head in heads], dtype=np.int64)
        self._form = heads[0].columns.image_form
        self._column = f"{image_column}.bytes" if self._form == "struct" else image_column

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_groups"}

    @property
    def num_rows(self) -> int:
        """Rows of all files."""
        return self._labels.size

    @property
    def num_classes(self) -> int:
        """Classes that have a name."""
        return len(self.class_names)

    def label(self, row: int) -> int:
        """Return the class of a row."""
        return int(self._labels[row])

    def known_labels(self) -> NDArray[np.int64]:
        """Return the label of every row, int64 (num_rows,)."""
        return self._labels.astype(np.int64)

    def read_groups(self) -> NDArray[np.int64]:
        """Return the ends of the row groups."""
        return self._group_ends

    def describe(self, row: int) -> str:
        """Return a row's file and its number in there, from 0."""
        file = run_of(self._file_ends, run_of(self._group_ends, row))
        first = start_of(self._group_ends, start_of(self._file_ends, file))
        return f"{self._shown(self._paths[file])} row {row - first}"

    def expect(self, rows: NDArray[np.int64]) -> None:
        """Begin to read row groups that are far away."""
        groups = np.searchsorted(self._group_ends, rows, side="right")
        self._groups.expect(list(dict.fromkeys(groups.tolist())))

    def read(self, row: int) -> NDArray[np.uint8]:
        """Return the image as `decode_image` or `fit_pixels` does; raises UnreadableRow with file and row."""
        group = run_of(self._group_ends, row)
        try:
            found = self._groups.get(group)[row - start_of(self._group_ends, group)]
        except (OSError, ValueError, IndexError, pa.ArrowException) as error:
            raise UnreadableRow(self.describe(row), one_line(error)) from error
        if self._form == "struct" and found.is_valid:
            found = found["bytes"]
        if not found.is_valid:
            raise UnreadableRow(self.describe(row), "has no image (null)")
        if self._form == "array":
            return to_pixels(found.values, self.image_size, self.describe(row))
        return decode_image(found.as_py(), self.image_size, self.describe(row))

    @cached_property
    def _groups(self) -> RowGroups:
        """This process's own."""
        return RowGroups(self.storage, self._paths, self._file_ends, self._column)

    def _shown(self, path: bytes) -> str:
        return os.fsdecode(path) or str(self.storage).rpartition("/")[2]
