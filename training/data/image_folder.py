"""A folder of images with one sub-folder per class, the layout that torchvision's ImageFolder made common."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.contract import ContractError
from training.data.decoding import decode_image

SUFFIXES = (".jpg", ".jpeg", ".png")
_SUFFIXES = tuple(suffix.encode() for suffix in SUFFIXES)
_LAYOUT = "expected one folder per class with images inside, such as cat/001.jpg and dog/001.jpg"


class ImageFolder:
    """Every JPEG and PNG below the class folders of `folder`; classes and files are numbered in the order of names.

    Hidden files and folders (".name") and files with other endings are left out. Construction lists the folder and
    raises ContractError in one line; images are opened only by `read`. Paths are held relative, as one string of
    bytes, so that a million files pickle to the size of their names plus 8 bytes each.
    """

    def __init__(self, folder: Path, image_size: int) -> None:
        self.folder = folder
        self.image_size = image_size
        paths_by_class = _list_classes(folder)
        self.class_names: tuple[str, ...] = tuple(os.fsdecode(name) for name in paths_by_class)
        self._class_ends = np.cumsum([len(paths) for paths in paths_by_class.values()], dtype=np.int64)
        paths = [path for group in paths_by_class.values() for path in group]
        self._paths = b"".join(paths)
        self._path_ends = np.cumsum([len(path) for path in paths], dtype=np.int64)

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
        return int(np.searchsorted(self._class_ends, row, side="right"))

    def known_labels(self) -> NDArray[np.int64]:
        """Return the label of every row, int64 (num_rows,); the folders tell it."""
        sizes = np.diff(self._class_ends, prepend=0)
        return np.repeat(np.arange(self.num_classes, dtype=np.int64), sizes)

    def describe(self, row: int) -> str:
        """Return the path of a row's file relative to the folder."""
        start = int(self._path_ends[row - 1]) if row else 0
        return os.fsdecode(self._paths[start : int(self._path_ends[row])])

    def read(self, row: int) -> NDArray[np.uint8]:
        """Return the image as `decode_image` does; raises UnreadableRow with the path relative to the folder."""
        path = self.describe(row)
        return decode_image(self.folder / path, self.image_size, name=path)


def _list_classes(folder: Path) -> dict[bytes, list[bytes]]:
    """Return for every class folder, sorted, the sorted paths of its images relative to `folder`."""
    try:
        names, has_images = _list_top(folder)
        if not names:
            found = "images, but no folders" if has_images else "no folders"
            raise ContractError([f"dataset folder {folder}: has {found}; {_LAYOUT}"])
        paths_by_class = {name: _list_images(os.fsencode(folder), name) for name in sorted(names)}
    except OSError as error:
        raise ContractError([f"dataset folder {folder}: {_reason(error)}; {_LAYOUT}"]) from error
    if empty := [os.fsdecode(name) for name, paths in paths_by_class.items() if not paths]:
        more = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
        lacking = f"class folder '{empty[0]}'{more} has no images ({', '.join(SUFFIXES)})"
        raise ContractError([f"dataset folder {folder}: {lacking}; add some or remove it"])
    return paths_by_class


def _list_top(folder: Path) -> tuple[list[bytes], bool]:
    names, has_images = [], False
    with os.scandir(os.fsencode(folder)) as entries:
        for entry in entries:
            if entry.is_dir() and not entry.name.startswith(b"."):
                names.append(entry.name)
            has_images |= entry.name.lower().endswith(_SUFFIXES)
    return names, has_images


def _list_images(root: bytes, name: bytes) -> list[bytes]:
    found: list[bytes] = []
    # Each folder waits with the identities of the folders above it: a link back to one of them would never end.
    pending: list[tuple[bytes, tuple[tuple[int, int], ...]]] = [(name, ())]
    while pending:
        folder, above = pending.pop()
        full_path = root + b"/" + folder
        status = os.stat(full_path)  # noqa: PTH116 pathlib has no paths of bytes
        identity = (status.st_dev, status.st_ino)
        if identity in above:
            continue
        with os.scandir(full_path) as entries:
            for entry in entries:
                if entry.name.startswith(b"."):
                    continue
                path = folder + b"/" + entry.name
                if entry.is_dir():
                    pending.append((path, (*above, identity)))
                elif entry.name.lower().endswith(_SUFFIXES):
                    found.append(path)
    found.sort()
    return found


def _reason(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "does not exist"
    if isinstance(error, NotADirectoryError):
        return "is not a folder"
    return f"cannot be listed ({error.strerror})"
