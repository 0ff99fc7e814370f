"""Parquet files that tests write, and images in every form that is accepted."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from numpy.typing import NDArray
from PIL import Image

from training.data.parquet import Parquet
from training.data.sources import UnreadableRow
from training.data.storage import LocalFolder

RNG = np.random.default_rng(0)
PIXELS = [RNG.integers(0, 256, (20, 30, 3), np.uint8) for _ in range(4)]
GRAY = RNG.integers(0, 256, (20, 30), np.uint8)


def png(pixels: NDArray[np.uint8]) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


BLOBS = [png(pixels) for pixels in PIXELS]


def write(path: Path, images: pa.Array, labels: Sequence[Any] | pa.Array, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"image": images, "label": labels}), path, **options)


def open_folder(folder: Path, image_size: int = 16) -> Parquet:
    return Parquet(LocalFolder(folder), image_size, "image", "label")


def nested(depth_type: Callable[[pa.DataType], pa.DataType], images: Sequence[NDArray[np.uint8]]) -> pa.Array:
    kind = pa.uint8()
    for _ in range(images[0].ndim):
        kind = depth_type(kind)
    return pa.array([image.tolist() for image in images], kind)


def readable(source: Parquet) -> list[bool]:
    found = []
    for row in range(source.num_rows):
        try:
            found.append(source.read(row).shape == (16, 16, 3))
        except UnreadableRow:
            found.append(False)
    return found


STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
FORMS: dict[str, pa.Array] = {
    "binary": pa.array(BLOBS, pa.binary()),
    "large_binary": pa.array(BLOBS, pa.large_binary()),
    "struct": pa.array([{"bytes": blob, "path": None} for blob in BLOBS], STRUCT),
    "struct with bytes last": pa.array(
        [{"path": "x.png", "bytes": blob} for blob in BLOBS], pa.struct([("path", pa.string()), ("bytes", pa.binary())])
    ),
    "lists": nested(pa.list_, PIXELS),
    "large lists": nested(pa.large_list, PIXELS),
    "lists, channels first": nested(pa.list_, [pixels.transpose(2, 0, 1) for pixels in PIXELS]),
}
FORMS["fixed-size lists"] = pa.FixedSizeListArray.from_arrays(
    pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(np.stack(PIXELS).ravel(), 3), 30), 20
)
