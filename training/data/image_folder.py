"""A folder of images with one sub-folder per class, the layout that torchvision's ImageFolder made common."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.contract import ContractError
from training.data.decoding import decode_image, one_line
from training.data.read_ahead import ReadAhead
from training.data.runs import run_of, start_of
from training.data.sources import UnreadableRow
from training.data.storage import Storage

SUFFIXES = (".jpg", ".jpeg", ".png")
_SUFFIXES = tuple(suffix.encode() for suffix in SUFFIXES)
_HIDDEN = (b".",)
_LAYOUT = "expected one folder per class with images inside, such as cat/001.jpg and dog/001.jpg"
_IMAGES_AHEAD = 16
"""An object of S3 takes 30 to 60 ms and a core decodes one in 1 to 5 ms; so many at once keep it at work."""


class ImageFolder:
    """Every JPEG and PNG below the class folders of `storage`; classes and files are numbered in the order of names.

    Hidden files and folders (".name") and files with other endings are left out. Construction lists the folder and
    raises ContractError in one line; images are opened only by `read`. Paths are held relative, as one string of
    bytes, so that a million files pickle to the size of their names plus 8 bytes each.
    """

    def __init__(self, storage: Storage, image_size: int) -> None:
        self.storage = storage
        self.image_size = image_size
        paths_by_class = _list_classes(storage)
        self.class_names: tuple[str, ...] = tuple(os.fsdecode(name) for name in paths_by_class)
        self._class_ends = np.cumsum([len(paths) for paths in paths_by_class.values()], dtype=np.int64)
        paths = [path for group in paths_by_class.values() for path in group]
        self._paths = b"".join(paths)
        self._path_ends = np.cumsum([len(path) for path in paths], dtype=np.int64)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_ahead"}

    @property
    def num_rows(self) -> int:
        """Images found."""
        return self._path_ends.size

    @property
    def num_classes(self) -> int:
        """Class folders found."""
        return len(self.class_names)

    def label(self, row: int) -> int:
        """Return the place of the row's class folder among the sorted names."""
        return run_of(self._class_ends, row)

    def known_labels(self) -> NDArray[np.int64]:
        """Return the label of every row, int64 (num_rows,); the folders tell it."""
        sizes = np.diff(self._class_ends, prepend=0)
        return np.repeat(np.arange(self.num_classes, dtype=np.int64), sizes)

    def read_groups(self) -> None:
        """Return None: every image is a file of its own."""

    def describe(self, row: int) -> str:
        """Return the path of a row's file relative to the folder."""
        return os.fsdecode(self._path(row))

    def expect(self, rows: NDArray[np.int64]) -> None:
        """Begin to fetch images that are far away."""
        if self.storage.is_remote:
            self._ahead.expect(rows.tolist())

    def read(self, row: int) -> NDArray[np.uint8]:
        """Return the image as `decode_image` does; raises UnreadableRow with the path relative to the folder."""
        try:
            content = self._ahead.take(row) if self.storage.is_remote else self._content(row)
        except (OSError, ValueError) as error:
            raise UnreadableRow(self.describe(row), one_line(error)) from error
        return decode_image(content, self.image_size, self.describe(row))

    @cached_property
    def _ahead(self) -> ReadAhead[int, bytes]:
        """This process's own."""
        return ReadAhead(self._content, _IMAGES_AHEAD)

    def _content(self, row: int) -> bytes:
        return self.storage.read(self._path(row))

    def _path(self, row: int) -> bytes:
        return self._paths[start_of(self._path_ends, row) : int(self._path_ends[row])]


def _list_classes(storage: Storage) -> dict[bytes, list[bytes]]:
    """Return for every class folder, sorted, the sorted paths of its images."""
    listing = storage.list_files(_SUFFIXES, _HIDDEN, _LAYOUT)
    if listing.files == [b""]:
        raise ContractError([f"{storage}: is not a folder; {_LAYOUT}"])
    if not listing.folders:
        found = "images, but no folders" if listing.files else "no folders"
        raise ContractError([f"{storage}: has {found}; {_LAYOUT}"])
    paths_by_class: dict[bytes, list[bytes]] = {name: [] for name in listing.folders}
    for path in listing.files:
        name, slash, _ = path.partition(b"/")
        if slash:
            paths_by_class[name].append(path)
    if empty := [os.fsdecode(name) for name, paths in paths_by_class.items() if not paths]:
        more = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
        lacking = f"class folder '{empty[0]}'{more} has no images ({', '.join(SUFFIXES)})"
        raise ContractError([f"{storage}: {lacking}; add some or remove it"])
    return paths_by_class
