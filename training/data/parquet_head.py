"""What is read of Parquet files before training: how their rows are grouped, and the classes."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from numpy.typing import NDArray

from training.contract import ContractError
from training.data.decoding import one_line
from training.data.parquet_columns import Columns, find_columns
from training.data.storage import Storage

MAX_GROUP_BYTES = 256 << 20
"""Images of one row group. A data worker holds whole row groups, and every CPU of a host is a data worker."""
MAX_CLASSES = 1_000_000
"""As many as training.num_classes may be."""
_READS_AT_ONCE = 16
"""Row groups of one file whose classes are fetched at once where that takes tens of milliseconds each."""


@dataclass(frozen=True)
class FileHead:
    """One file without its images."""

    file: str
    group_rows: NDArray[np.int64]
    """Rows of each row group."""
    columns: Columns
    codes: NDArray[np.int32]
    """Of each row the class number, or the place of its class name in `names`."""
    names: Sequence[str]
    """The class names in the file; none where classes are numbers."""


def read_head(storage: Storage, path: bytes, file: str, image_column: str, label_column: str) -> FileHead:
    """Read the metadata and the label column of a file; `file` is what messages call it.

    Raises ContractError in one line for what cannot be read, for rows without a class and for row groups too large.
    """
    try:
        with storage.open(path) as opened:
            metadata = pq.read_metadata(opened)
            columns = find_columns(metadata.schema.to_arrow_schema(), image_column, label_column, file)
            group_rows = _group_rows(metadata, image_column, file)
            num_threads = _READS_AT_ONCE if storage.is_remote else 1
            labels = _read_column(opened, metadata, label_column, num_threads)
    except ContractError:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ContractError(
            [f"{storage}: {file} cannot be read as Parquet ({one_line(error)}); write it anew"]
        ) from error
    if labels.null_count:
        row = pc.index(pc.is_null(labels), True).as_py()
        raise ContractError([f"training.label_column: '{label_column}' is null in {file} row {row}; drop such rows"])
    if columns.label_form == "numbers":
        return FileHead(file, group_rows, columns, _numbers(labels, label_column, file), ())
    encoded = labels.cast(pa.string()).dictionary_encode().combine_chunks()
    return FileHead(file, group_rows, columns, encoded.indices.to_numpy(), encoded.dictionary.to_pylist())


def merge_labels(heads: Sequence[FileHead]) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Return the class of every row, file after file, and the names of the classes.

    Names are those in the metadata, else the numbers 0 to the largest as text, else the texts in sorted order. Raises
    ContractError where a number has no name, or the files or their names disagree.
    """
    first = heads[0]
    for head in heads[1:]:
        if head.columns != first.columns:
            differing = f"{head.file} holds {_forms(head.columns)}, {first.file} {_forms(first.columns)}"
            raise ContractError([f"dataset: {differing}; write all files with one schema"])
    if first.columns.label_form == "text":
        class_names = tuple(sorted({name for head in heads for name in head.names}))
        _check_count(len(class_names), "different texts")
        places = {name: place for place, name in enumerate(class_names)}
        codes = [np.array([places[name] for name in head.names], np.int32)[head.codes] for head in heads]
        return np.concatenate(codes), class_names
    labels = np.concatenate([head.codes for head in heads])
    num_classes = int(labels.max(initial=-1)) + 1
    names = first.columns.class_names
    if names is None:
        return labels, tuple(str(number) for number in range(num_classes))
    if num_classes > len(names):
        unnamed = f"class {num_classes - 1} has no name, {first.file} names {len(names)} classes in its metadata"
        raise ContractError([f"training.label_column: {unnamed}; correct the labels or the metadata"])
    return labels, names


def _read_column(opened: pa.NativeFile, metadata: pq.FileMetaData, column: str, num_threads: int) -> pa.ChunkedArray:
    """Read a column in as many parts at once; a reader alone fetches one row group after the other."""
    parts = np.array_split(np.arange(metadata.num_row_groups), num_threads)

    def read(groups: NDArray[np.int64]) -> pa.Table:
        parquet = pq.ParquetFile(opened, metadata=metadata)  # a reader each: only the file may be shared
        return parquet.read_row_groups(groups.tolist(), columns=[column], use_threads=False)

    with ThreadPoolExecutor(num_threads) as threads:
        return pa.concat_tables(threads.map(read, parts)).column(0)


def _group_rows(metadata: pq.FileMetaData, image_column: str, file: str) -> NDArray[np.int64]:
    paths = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    leaves = [n for n, path in enumerate(paths) if path == image_column or path.startswith(f"{image_column}.")]
    group_rows = np.empty(metadata.num_row_groups, np.int64)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        group_rows[number] = group.num_rows
        num_bytes = sum(group.column(leaf).total_uncompressed_size for leaf in leaves)
        if num_bytes > MAX_GROUP_BYTES:
            size = f"row group {number} has {num_bytes >> 20} MiB of images in {group.num_rows} rows"
            advice = f"at most {MAX_GROUP_BYTES >> 20} MiB; write the file with smaller row groups, best 16 to 64 rows"
            raise ContractError([f"dataset: {file}: {size}; allowed: {advice}"])
    return group_rows


def _numbers(labels: pa.ChunkedArray, label_column: str, file: str) -> NDArray[np.int32]:
    bounds = pc.min_max(labels).as_py()
    if bounds["min"] is not None and bounds["min"] < 0:
        row = pc.index(pc.less(labels, 0), True).as_py()
        found = f"'{label_column}' is {labels[row]} in {file} row {row}"
        raise ContractError(
            [f"training.label_column: {found}; expected class numbers from 0, drop or renumber such rows"]
        )
    if bounds["max"] is not None:
        _check_count(bounds["max"] + 1, f"class numbers from 0 in '{label_column}' of {file}")
    numbers: NDArray[np.int32] = labels.to_numpy().astype(np.int32)
    return numbers


def _check_count(num_classes: int, what: str) -> None:
    if num_classes > MAX_CLASSES:
        raise ContractError(
            [f"training.label_column: {num_classes} {what}; allowed: 1 to {MAX_CLASSES}; name another column"]
        )


def _forms(columns: Columns) -> str:
    names = "" if columns.class_names is None else f" with {len(columns.class_names)} names"
    return f"images as {columns.image_form} and classes as {columns.label_form}{names}"
