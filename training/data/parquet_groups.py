"""Row groups of images, read whole and kept while they are in use; each process has its own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from numpy.typing import NDArray

from training.data.decoding import fit_pixels
from training.data.read_ahead import ReadAhead
from training.data.runs import run_of, start_of
from training.data.sources import UnreadableRow
from training.data.storage import Storage

MAX_CACHED_BYTES = 256 << 20
"""Of one process. The window of a plan (training.data.locality) fits where images have up to 110 KB."""
_GROUPS_AHEAD = 4
_KNOWN_FILES = 64
"""Files whose metadata is kept: parsing it costs a few milliseconds, and over a network two round trips."""


class RowGroups:
    """Reads the image column `column` of row groups, numbered through all files; keeps those last used.

    Args:
        storage: where the files lie.
        paths: the files in the order of their rows.
        file_ends: the number of row groups up to the end of each file.
        column: the column, with a dot before a field of a struct.
    """

    def __init__(
        self,
        storage: Storage,
        paths: Sequence[bytes],
        file_ends: NDArray[np.int64],
        column: str,
        max_bytes: int = MAX_CACHED_BYTES,
    ) -> None:
        self._storage, self._paths, self._file_ends, self._column = storage, paths, file_ends, column
        self._max_bytes = max_bytes
        self._kept: OrderedDict[int, pa.ChunkedArray | Exception] = OrderedDict()
        self._num_bytes = 0
        self._metadata = lru_cache(maxsize=_KNOWN_FILES)(self._read_metadata)
        self._ahead = ReadAhead(self._read, _GROUPS_AHEAD)

    def expect(self, groups: Sequence[int]) -> None:
        """Begin to read those of `groups` that are far away and not kept."""
        if self._storage.is_remote:
            self._ahead.expect(group for group in groups if group not in self._kept)

    def get(self, group: int) -> pa.ChunkedArray:
        """Return a row group's images; raises what reading it raised, also the next time."""
        kept: pa.ChunkedArray | Exception | None = self._kept.get(group)
        if kept is None:
            kept = self._keep(group)
        self._kept.move_to_end(group)
        if isinstance(kept, Exception):
            raise kept
        return kept

    def _keep(self, group: int) -> pa.ChunkedArray | Exception:
        try:
            found = self._ahead.take(group)
        except MemoryError:
            raise  # the host's trouble, not the file's
        except (OSError, ValueError, IndexError, pa.ArrowException) as error:
            found = error  # or each of its rows would try again, with all the patience there is for a network
        self._kept[group] = found
        self._num_bytes += _num_bytes(found)
        while self._num_bytes > self._max_bytes and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._num_bytes -= _num_bytes(oldest)
        return found

    def _read(self, group: int) -> pa.ChunkedArray:
        number = run_of(self._file_ends, group)
        # Opened anew, since two threads must not share a reader; with the metadata at hand that reads nothing.
        with self._storage.open(self._paths[number]) as opened:
            parquet = pq.ParquetFile(opened, metadata=self._metadata(number))
            place = group - start_of(self._file_ends, number)
            return parquet.read_row_group(place, columns=[self._column], use_threads=False).column(0)

    def _read_metadata(self, number: int) -> pq.FileMetaData:
        with self._storage.open(self._paths[number]) as opened:
            return pq.read_metadata(opened)


def to_pixels(lists: pa.Array, image_size: int, name: str) -> NDArray[np.uint8]:
    """Turn the nested lists of one image, uint8, into an image as `fit_pixels` does; raises UnreadableRow."""
    shape = [len(lists)]
    while not pa.types.is_uint8(lists.type):
        lengths = set(pc.list_value_length(lists).unique().to_pylist()) or {0}
        if len(lengths) != 1 or None in lengths:
            raise UnreadableRow(name, "has lines or pixels of different lengths")
        shape.append(lengths.pop())
        lists = lists.flatten()
    if lists.null_count:
        raise UnreadableRow(name, "has pixels that are null")
    return fit_pixels(lists.to_numpy().reshape(shape), image_size, name)


def _num_bytes(found: pa.ChunkedArray | Exception) -> int:
    return 0 if isinstance(found, Exception) else int(found.nbytes)
