"""Parquet: images in every form that is accepted, classes, rows by their file and number."""

from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from tests.unit.parquet_files import BLOBS, FORMS, GRAY, STRUCT, nested, open_folder, png, readable, write
from training.contract import TrainingConfig
from training.data.decoding import decode_image
from training.data.sources import Source, UnreadableRow, open_source

# --- images ---


@pytest.mark.parametrize("form", FORMS)
def test_an_image_is_the_same_in_every_form(tmp_path: Path, form: str) -> None:
    write(tmp_path / "a.parquet", FORMS[form], [0, 1, 2, 3], row_group_size=3)
    source: Source = open_folder(tmp_path)
    for row, blob in enumerate(BLOBS):
        assert np.array_equal(source.read(row), decode_image(blob, 16, ""))
        assert source.read(row).flags.writeable


def test_gray_lists_are_read(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", nested(pa.list_, [GRAY]), [0])
    assert np.array_equal(open_folder(tmp_path).read(0), decode_image(png(GRAY), 16, ""))


@pytest.mark.parametrize(
    ("images", "reason"),
    [
        (pa.array([None], pa.binary()), "has no image (null)"),
        (pa.array([None], STRUCT), "has no image (null)"),
        (pa.array([{"bytes": None, "path": "x.png"}], STRUCT), "has no image (null)"),
        (pa.array([None], FORMS["lists"].type), "has no image (null)"),
        (pa.array([b""], pa.binary()), "empty file"),
        (pa.array([b"no image"], pa.binary()), "not a JPEG or PNG image"),
        (pa.array([[[1, 2], [3]]], FORMS["lists"].type.value_type), "has lines or pixels of different lengths"),
        (pa.array([[[1, 2], None]], FORMS["lists"].type.value_type), "has lines or pixels of different lengths"),
        (pa.array([[[1, 2], [3, None]]], FORMS["lists"].type.value_type), "has pixels that are null"),
        (pa.array([[]], FORMS["lists"].type), "has shape (0, 0, 0); expected"),
        (pa.array([[[[1, 2]]]], FORMS["lists"].type), "has shape (1, 1, 2); expected"),
    ],
)
def test_a_row_without_an_image_says_file_number_and_reason(tmp_path: Path, images: pa.Array, reason: str) -> None:
    write(tmp_path / "a.parquet", images, [0])
    write(tmp_path / "b.parquet", images, [0])
    source = open_folder(tmp_path)
    with pytest.raises(UnreadableRow) as caught:
        source.read(1)
    assert str(caught.value).startswith(f"b.parquet row 0: {reason}")
    assert (caught.value.path, source.describe(1)) == ("b.parquet row 0",) * 2


def test_the_rows_beside_an_unreadable_one_are_read(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pa.array([BLOBS[0], b"no image", None, BLOBS[1]], pa.binary()), [0] * 4)
    assert readable(open_folder(tmp_path)) == [True, False, False, True]


# --- files, rows and classes ---


def test_rows_are_numbered_by_file_and_hidden_files_are_left_out(tmp_path: Path) -> None:
    images = FORMS["binary"]
    for name in ("b.parquet", "a/z.PARQUET"):
        write(tmp_path / name, images, [3, 0, 1, 2], row_group_size=3)
    write(tmp_path / "c.parquet", images[:0], pa.array([], pa.int64()))
    for name in ("_metadata", "_temporary/x.parquet", ".hidden.parquet", "notes.txt", "a/.trash/x.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("no Parquet")
    source: Source = open_folder(tmp_path)
    assert (source.num_rows, source.num_classes, source.class_names) == (8, 4, ("0", "1", "2", "3"))
    assert [source.describe(row) for row in (0, 3, 4, 7)] == [
        "a/z.PARQUET row 0",
        "a/z.PARQUET row 3",
        "b.parquet row 0",
        "b.parquet row 3",
    ]
    assert [source.label(row) for row in range(8)] == [3, 0, 1, 2] * 2
    labels, groups = source.known_labels(), source.read_groups()
    assert labels is not None
    assert groups is not None
    assert (labels.tolist(), str(labels.dtype)) == ([3, 0, 1, 2] * 2, "int64")
    assert (groups.tolist(), str(groups.dtype)) == ([3, 4, 7, 8, 8], "int64")
    for row in range(8):
        assert np.array_equal(source.read(row), decode_image(BLOBS[row % 4], 16, ""))


def test_the_channel_may_be_one_file(tmp_path: Path) -> None:
    write(tmp_path / "train.parquet", FORMS["binary"], [0, 1, 2, 3])
    source = open_folder(tmp_path / "train.parquet")
    assert (source.describe(2), source.read(2).shape) == ("train.parquet row 2", (16, 16, 3))


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())], ids=["text", "large", "dictionary"]
)
def test_texts_are_classes_in_sorted_order_over_all_files(tmp_path: Path, kind: pa.DataType) -> None:
    write(tmp_path / "a.parquet", FORMS["binary"], pa.array(["dog", "ant", "dog", "cow"], kind), row_group_size=1)
    write(tmp_path / "b.parquet", FORMS["binary"], pa.array(["bee", "dog", "Zebu", "ant"], kind))
    source = open_folder(tmp_path)
    assert source.class_names == ("Zebu", "ant", "bee", "cow", "dog")
    assert [source.class_names[source.label(row)] for row in range(8)] == [
        *("dog", "ant", "dog", "cow"),
        *("bee", "dog", "Zebu", "ant"),
    ]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int64(), pa.uint64()])
def test_numbers_are_classes_from_0(tmp_path: Path, kind: pa.DataType) -> None:
    write(tmp_path / "a.parquet", FORMS["binary"], pa.array([2, 0, 2, 2], kind))
    source = open_folder(tmp_path)
    assert (source.class_names, [source.label(row) for row in range(4)]) == (("0", "1", "2"), [2, 0, 2, 2])


@pytest.mark.parametrize(
    ("metadata", "names"),
    [
        ('{"info": {"features": {"label": {"names": ["ant", "bee", "cow", "dog"], "_type": "ClassLabel"}}}}', "ant"),
        ('{"info": {"features": {"label": {"dtype": "int64", "_type": "Value"}}}}', "0"),
        ('{"info": {"features": {"label": {"names": [1, 2]}}}}', "0"),
        ("[1]", "0"),
        ("no JSON", "0"),
    ],
)
def test_hugging_face_names_its_classes_in_the_metadata(tmp_path: Path, metadata: str, names: str) -> None:
    table = pa.table({"image": FORMS["struct"], "label": [0, 1, 2, 1]})
    pq.write_table(table.replace_schema_metadata({"huggingface": metadata}), tmp_path / "a.parquet")
    source = open_folder(tmp_path)
    assert source.class_names[0] == names
    assert source.num_classes == (4 if names == "ant" else 3)


def test_columns_go_by_the_names_of_the_settings(tmp_path: Path) -> None:
    table = pa.table({"label": ["x"] * 4, "the.photo": FORMS["struct"], "breed": ["b", "a", "b", "b"]})
    (tmp_path / "training").mkdir()
    pq.write_table(table, tmp_path / "training" / "a.parquet")
    config = TrainingConfig(dataset="parquet", image_column="the.photo", label_column="breed", image_size=16)
    source = open_source(config, tmp_path)
    assert (source.class_names, source.label(1), source.read(0).shape) == (("a", "b"), 0, (16, 16, 3))
