"""Parquet is read by row group: each once where the plan is followed, kept within bounds, a bad one alone."""

import pickle
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from tests.unit.parquet_files import BLOBS, FORMS, open_folder, readable, write
from training.data.parquet import Parquet
from training.data.parquet_groups import RowGroups
from training.data.plan import RowPlan, split_rows
from training.data.sources import UnreadableRow
from training.data.storage import LocalFolder


@dataclass(frozen=True)
class CountingFolder(LocalFolder):
    opened: list[bytes] = field(default_factory=list)

    def open(self, path: bytes) -> pa.NativeFile:
        self.opened.append(path)
        return super().open(path)


def test_in_the_order_of_a_plan_every_row_group_is_read_once(tmp_path: Path) -> None:
    for name in "abcd":
        write(tmp_path / f"{name}.parquet", pa.array(BLOBS * 100, pa.binary()), [0, 1] * 200, row_group_size=50)
    storage = CountingFolder(tmp_path)
    source = Parquet(storage, 16, "image", "label")
    labels = source.known_labels()
    subset = split_rows(source.num_rows, 0.2, 0, labels).training
    plan = RowPlan(len(subset), 0, shuffle=True, subset=subset, read_groups=source.read_groups())
    storage.opened.clear()
    for row in plan.rows(0, len(subset)).tolist():
        source.read(row)
    assert len(storage.opened) == 4 + 4 * 8  # metadata of four files, and their row groups


def test_row_groups_are_kept_up_to_a_number_of_bytes(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pa.array([b"x" * 1000] * 8, pa.binary()), [0] * 8, row_group_size=2)
    storage = CountingFolder(tmp_path)
    groups = RowGroups(storage, [b"a.parquet"], np.array([4]), "image", max_bytes=2 * 2100)
    num_opened = []
    for group in (0, 1, 0, 2, 0, 1, 3, 3):
        assert groups.get(group)[1].as_py() == b"x" * 1000
        num_opened.append(len(storage.opened))
    assert num_opened == [2, 3, 3, 4, 4, 5, 6, 6]


def test_a_row_group_larger_than_what_is_kept_is_read_all_the_same(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", FORMS["binary"], [0] * 4, row_group_size=2)
    groups = RowGroups(LocalFolder(tmp_path), [b"a.parquet"], np.array([2]), "image", max_bytes=1)
    assert [groups.get(group)[0].as_py() for group in (0, 1, 0)] == [BLOBS[0], BLOBS[2], BLOBS[0]]


def test_a_damaged_row_group_takes_its_rows_and_no_other(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", FORMS["binary"], [0] * 4, row_group_size=2, use_dictionary=False)
    column = pq.read_metadata(tmp_path / "a.parquet").row_group(1).column(0)
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    content[column.data_page_offset : column.data_page_offset + 100] = b"\xff" * 100
    (tmp_path / "a.parquet").write_bytes(content)
    storage = CountingFolder(tmp_path)
    source = Parquet(storage, 16, "image", "label")
    assert readable(source) == [True, True, False, False]
    num_opened = len(storage.opened)
    with pytest.raises(UnreadableRow, match=r"^a\.parquet row 3: "):
        source.read(3)
    assert len(storage.opened) == num_opened  # it is known to be damaged


def test_a_file_that_is_gone_takes_its_rows_and_no_other(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / f"{name}.parquet", FORMS["binary"], [0] * 4)
    source = open_folder(tmp_path)
    (tmp_path / "a.parquet").unlink()
    assert readable(source) == [False] * 4 + [True] * 4
    with pytest.raises(UnreadableRow) as caught:
        source.read(1)
    assert "\n" not in str(caught.value)


def test_a_source_pickles_small_and_without_what_it_has_read(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pa.array(BLOBS * 250, pa.binary()), [0, 1] * 500, row_group_size=100)
    source = open_folder(tmp_path)
    source.read(0)
    text = pickle.dumps(source)
    assert len(text) < 4 * 1000 + 2000
    assert np.array_equal(pickle.loads(text).read(999), source.read(999))
