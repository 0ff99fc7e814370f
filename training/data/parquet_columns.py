"""Which columns of a Parquet file hold images and classes, and in what form; anything else is refused by name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa  # type: ignore[import-untyped]

from training.contract import ContractError, nearest

ImageForm = Literal["bytes", "struct", "array"]
LabelForm = Literal["numbers", "text"]
_IMAGES_ALLOWED = (
    "bytes of a JPEG or PNG, a struct with such bytes, or lists of uint8 as (H, W, 3), (3, H, W) or (H, W)"
)
_LABELS_ALLOWED = "class numbers as integers, or class names as text"
_SHOWN_TYPE_CHARACTERS, _SHOWN_COLUMNS = 80, 10


@dataclass(frozen=True)
class Columns:
    """How a file holds its images and classes."""

    image_form: ImageForm
    label_form: LabelForm
    class_names: tuple[str, ...] | None
    """Names of the class numbers, where the file was written by Hugging Face's datasets with a ClassLabel."""


def find_columns(schema: pa.Schema, image_column: str, label_column: str, file: str) -> Columns:
    """Return the form of both columns; raises ContractError, a line per column, where `file` has no such columns."""
    problems: list[str] = []
    for setting, name in (("image_column", image_column), ("label_column", label_column)):
        if schema.names.count(name) != 1:
            problems.append(f"training.{setting}: {_missing(name, schema.names, file)}")
    if problems:
        raise ContractError(problems)
    image_type, label_type = schema.field(image_column).type, schema.field(label_column).type
    image_form, label_form = _image_form(image_type), _label_form(label_type)
    if image_form is None:
        problems.append(_wrong_type("image_column", image_column, file, image_type, _IMAGES_ALLOWED))
    if label_form is None:
        problems.append(_wrong_type("label_column", label_column, file, label_type, _LABELS_ALLOWED))
    if image_form is None or label_form is None:
        raise ContractError(problems)
    names = _class_names(schema.metadata or {}, label_column) if label_form == "numbers" else None
    return Columns(image_form, label_form, names)


def _missing(name: str, columns: list[str], file: str) -> str:
    if name in columns:
        return f"'{name}' is the name of {columns.count(name)} columns of {file}; give them different names"
    near = nearest(name, columns)
    known = near or columns[:_SHOWN_COLUMNS] or ["none"]
    more = f" and {len(columns) - len(known)} more" if len(columns) > len(known) and not near else ""
    return f"'{name}' is not a column of {file}; {'nearest' if near else 'it has'}: {', '.join(known)}{more}"


def _wrong_type(setting: str, name: str, file: str, found: pa.DataType, allowed: str) -> str:
    shown = str(found)
    if len(shown) > _SHOWN_TYPE_CHARACTERS:
        shown = f"{shown[:_SHOWN_TYPE_CHARACTERS]}..."
    return f"training.{setting}: '{name}' of {file} is {shown}; expected {allowed}"


def _image_form(found: pa.DataType) -> ImageForm | None:
    if _is_bytes(found):
        return "bytes"
    if pa.types.is_struct(found) and found.get_field_index("bytes") >= 0 and _is_bytes(found.field("bytes").type):
        return "struct"
    depth = 0
    while pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found):
        found, depth = found.value_type, depth + 1
    return "array" if depth in (2, 3) and pa.types.is_uint8(found) else None


def _label_form(found: pa.DataType) -> LabelForm | None:
    if pa.types.is_integer(found):
        return "numbers"
    if pa.types.is_dictionary(found):
        found = found.value_type
    is_text = pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found)
    return "text" if is_text else None


def _is_bytes(found: pa.DataType) -> bool:
    return bool(pa.types.is_binary(found) or pa.types.is_large_binary(found) or pa.types.is_binary_view(found))


def _class_names(metadata: dict[bytes, bytes], label_column: str) -> tuple[str, ...] | None:
    try:
        features: Any = json.loads(metadata[b"huggingface"])["info"]["features"]
        names = features[label_column]["names"]
    except (KeyError, TypeError, ValueError):
        return None
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else None
