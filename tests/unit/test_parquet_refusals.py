"""What is wrong with Parquet files is said in one line before anything is read of their images."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from training.contract import ContractError
from training.data.parquet import Parquet
from training.data.storage import LocalFolder

BLOBS = pa.array([b"1", b"2", b"3"], pa.binary())
FORMS = "bytes of a JPEG or PNG, a struct with such bytes, or lists of uint8 as (H, W, 3), (3, H, W) or (H, W)"
LABELS = "class numbers as integers, or class names as text"


def write(folder: Path, name: str = "a.parquet", **columns: Any) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), folder / name)


def refusal(folder: Path, image_column: str = "image", label_column: str = "label") -> list[str]:
    with pytest.raises(ContractError) as caught:
        Parquet(LocalFolder(folder), 8, image_column, label_column)
    assert all("\n" not in problem for problem in caught.value.problems)
    return caught.value.problems


def test_a_folder_without_parquet_files(tmp_path: Path) -> None:
    layout = "expected files that end in .parquet"
    assert refusal(tmp_path / "nowhere") == [f"dataset folder {tmp_path}/nowhere: does not exist; {layout}"]
    (tmp_path / "data.csv").touch()
    assert refusal(tmp_path) == [f"dataset folder {tmp_path}: has no Parquet files; {layout}"]
    write(tmp_path, image=BLOBS[:0], label=pa.array([], pa.int32()))
    assert refusal(tmp_path) == [f"dataset folder {tmp_path}: its Parquet files have no rows; add some"]


def test_a_file_that_is_no_parquet(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"not Parquet at all")
    (problem,) = refusal(tmp_path)
    assert problem.startswith(
        f"dataset folder {tmp_path}: a.parquet cannot be read as Parquet (Parquet magic bytes not"
    )
    assert problem.endswith("); write it anew")


@pytest.mark.parametrize(
    ("columns", "problems"),
    [
        (
            ["img", "label_id"],
            [
                "training.image_column: 'image' is not a column of a.parquet; it has: img, label_id",
                "training.label_column: 'label' is not a column of a.parquet; nearest: label_id",
            ],
        ),
        (["images", "label"], ["training.image_column: 'image' is not a column of a.parquet; nearest: images"]),
        (
            ["label", *(f"x{number}" for number in range(20))],
            [
                (
                    "training.image_column: 'image' is not a column of a.parquet; it has: "
                    "label, x0, x1, x2, x3, x4, x5, x6, x7, x8 and 11 more"
                )
            ],
        ),
    ],
)
def test_a_column_that_is_missing(tmp_path: Path, columns: list[str], problems: list[str]) -> None:
    write(tmp_path, **dict.fromkeys(columns, BLOBS))
    assert refusal(tmp_path) == problems


def test_a_column_that_is_there_twice(tmp_path: Path) -> None:
    table = pa.table([BLOBS, BLOBS, pa.array([0, 1, 2])], names=["image", "image", "label"])
    pq.write_table(table, tmp_path / "a.parquet")
    assert refusal(tmp_path) == [
        "training.image_column: 'image' is the name of 2 columns of a.parquet; give them different names"
    ]


@pytest.mark.parametrize(
    ("images", "shown"),
    [
        (pa.array(["1.jpg"]), "string"),
        (pa.array([1]), "int64"),
        (pa.array([[1, 2]], pa.list_(pa.uint8())), "list<element: uint8>"),
        (pa.array([[[1]]], pa.list_(pa.list_(pa.int64()))), "list<element: list<element: int64>>"),
        (pa.array([{"path": "1.jpg"}]), "struct<path: string>"),
        (pa.array([{"bytes": "text"}]), "struct<bytes: string>"),
        (
            pa.array([dict.fromkeys("abcdefgh", 1)]),
            "struct<a: int64, b: int64, c: int64, d: int64, e: int64, f: int64, g: int64, h: ...",
        ),
    ],
)
def test_images_in_another_form(tmp_path: Path, images: pa.Array, shown: str) -> None:
    write(tmp_path, image=images, label=[0])
    assert refusal(tmp_path) == [f"training.image_column: 'image' of a.parquet is {shown}; expected {FORMS}"]


@pytest.mark.parametrize(
    ("labels", "shown"), [([0.0, 1.0, 2.0], "double"), ([True, False, True], "bool"), ([[0], [1], [2]], None)]
)
def test_classes_in_another_form(tmp_path: Path, labels: list[Any], shown: str | None) -> None:
    write(tmp_path, image=BLOBS, label=labels)
    assert refusal(tmp_path) == [
        f"training.label_column: 'label' of a.parquet is {shown or 'list<element: int64>'}; expected {LABELS}"
    ]


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ([0, None, 1], "'label' is null in b.parquet row 1; drop such rows"),
        (["x", "y", None], "'label' is null in b.parquet row 2; drop such rows"),
        ([0, -1, 1], "'label' is -1 in b.parquet row 1; expected class numbers from 0, drop or renumber such rows"),
        (
            [0, 1_000_000, 1],
            "1000001 class numbers from 0 in 'label' of b.parquet; allowed: 1 to 1000000; name another column",
        ),
        (
            pa.array([0, 2**64 - 1, 1], pa.uint64()),
            (
                "18446744073709551616 class numbers from 0 in 'label' of b.parquet; allowed: 1 to 1000000; "
                "name another column"
            ),
        ),
    ],
)
def test_rows_without_a_proper_class(tmp_path: Path, labels: Any, problem: str) -> None:
    write(tmp_path, "b.parquet", image=BLOBS, label=labels)
    assert refusal(tmp_path) == [f"training.label_column: {problem}"]


def test_more_texts_than_classes_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.data.parquet_head.MAX_CLASSES", 2)
    write(tmp_path, image=BLOBS, label=["a caption", "another", "and one more"])
    assert refusal(tmp_path) == ["training.label_column: 3 different texts; allowed: 1 to 2; name another column"]


def test_files_that_differ(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", image=BLOBS, label=[0, 1, 2])
    write(tmp_path, "b.parquet", image=BLOBS, label=["x", "y", "z"])
    assert refusal(tmp_path) == [
        (
            "dataset: b.parquet holds images as bytes and classes as text, a.parquet images as bytes and classes as "
            "numbers; write all files with one schema"
        )
    ]
    write(tmp_path, "b.parquet", image=[{"bytes": b"1"}], label=[0])
    assert refusal(tmp_path)[0].startswith(
        "dataset: b.parquet holds images as struct and classes as numbers, a.parquet"
    )
    write(tmp_path, "b.parquet", image=BLOBS, klass=[0, 1, 2])
    assert refusal(tmp_path) == ["training.label_column: 'label' is not a column of b.parquet; it has: image, klass"]


def test_a_class_number_beyond_the_names(tmp_path: Path) -> None:
    table = pa.table({"image": BLOBS, "label": [0, 1, 2]})
    metadata = {"huggingface": '{"info": {"features": {"label": {"names": ["ant", "bee"]}}}}'}
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "a.parquet")
    assert refusal(tmp_path) == [
        (
            "training.label_column: class 2 has no name, a.parquet names 2 classes in its metadata; "
            "correct the labels or the metadata"
        )
    ]


@pytest.mark.parametrize("make", [lambda blob: blob, lambda blob: {"bytes": blob, "path": None}])
def test_row_groups_that_are_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[bytes], object]
) -> None:
    monkeypatch.setattr("training.data.parquet_head.MAX_GROUP_BYTES", 3 << 20)
    blobs = [make(bytes([number]) * (1 << 20)) for number in range(5)]
    table = pa.table({"image": blobs, "label": [0] * 5})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=4)
    assert refusal(tmp_path) == [
        (
            "dataset: a.parquet: row group 0 has 4 MiB of images in 4 rows; allowed: at most 3 MiB; "
            "write the file with smaller row groups, best 16 to 64 rows"
        )
    ]
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    assert Parquet(LocalFolder(tmp_path), 8, "image", "label").num_rows == 5
