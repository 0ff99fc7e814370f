"""Where the files of a dataset lie: listed once on the head, read on every host."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from training.contract import ContractError

if TYPE_CHECKING:
    from pyarrow import NativeFile  # type: ignore[import-untyped]

MAX_FILE_BYTES = 1 << 30
"""A file read at once is held in memory by every data worker; no image is that large."""


@dataclass(frozen=True)
class Listing:
    """What lies in a dataset's folder. Names are bytes, as Linux has them, relative to the folder, and sorted."""

    folders: list[bytes]
    """The folders at the top."""
    files: list[bytes]
    """The files at any depth with one of the endings that were asked for; b"" where the folder is a file itself."""


class Storage(Protocol):
    """A folder somewhere. It pickles to a few names; each process opens for itself what it needs."""

    @property
    def is_remote(self) -> bool:
        """Whether a read mostly waits, so that several at once are faster."""
        ...

    def __str__(self) -> str:
        """The folder with what names it, as an error message begins."""
        ...

    def list_files(self, endings: tuple[bytes, ...], hidden: tuple[bytes, ...], layout: str) -> Listing:
        """List files with one of `endings` (lower case); names beginning with one of `hidden` are left out.

        Raises ContractError in one line that ends with `layout` where the folder is not there.
        """
        ...

    def read(self, path: bytes) -> bytes:
        """Return the content of a file; raises OSError or ValueError."""
        ...

    def open(self, path: bytes) -> NativeFile:
        """Open a file for reading at random places, from any thread; raises OSError or ValueError."""
        ...


@dataclass(frozen=True)
class LocalFolder:
    """A folder of this host that has the same content on every host. Links are followed, loops of them left."""

    path: Path

    @property
    def is_remote(self) -> bool:
        """False: what the system has in memory costs no wait."""
        return False

    def __str__(self) -> str:
        return f"dataset folder {self.path}"

    def list_files(self, endings: tuple[bytes, ...], hidden: tuple[bytes, ...], layout: str) -> Listing:
        """See Storage."""
        try:
            if self.path.is_file():
                return Listing([], [b""])
            return _walk(os.fsencode(self.path), endings, hidden)
        except OSError as error:
            raise ContractError([f"{self}: {_reason(error)}; {layout}"]) from error

    def read(self, path: bytes) -> bytes:
        """See Storage; raises ValueError for a pipe, which would never end, and for a file above MAX_FILE_BYTES."""
        full_path = self._full(path)
        status = os.stat(full_path)  # noqa: PTH116 pathlib has no paths of bytes
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("not a regular file")
        if status.st_size > MAX_FILE_BYTES:
            raise ValueError(f"larger than {MAX_FILE_BYTES >> 20} MiB")
        with open(full_path, "rb", buffering=0) as file:  # noqa: PTH123
            return file.readall()

    def open(self, path: bytes) -> NativeFile:
        """See Storage."""
        from pyarrow import OSFile

        return OSFile(os.fsdecode(self._full(path)))

    def _full(self, path: bytes) -> bytes:
        root = os.fsencode(self.path)
        return root + b"/" + path if path else root


def _walk(root: bytes, endings: tuple[bytes, ...], hidden: tuple[bytes, ...]) -> Listing:
    folders: list[bytes] = []
    files: list[bytes] = []
    # Each folder waits with the identities of the folders above it: a link back to one of them would never end.
    pending: list[tuple[bytes, tuple[tuple[int, int], ...]]] = [(b"", ())]
    while pending:
        folder, above = pending.pop()
        status = os.stat(root + folder)  # noqa: PTH116 pathlib has no paths of bytes
        identity = (status.st_dev, status.st_ino)
        if identity in above:
            continue
        with os.scandir(root + folder) as entries:
            for entry in entries:
                if entry.name.startswith(hidden):
                    continue
                path = folder + b"/" + entry.name
                if entry.is_dir():
                    pending.append((path, (*above, identity)))
                elif entry.name.lower().endswith(endings):
                    files.append(path[1:])
        if not folder:
            folders = sorted(path[1:] for path, _ in pending)
    return Listing(folders, sorted(files))


def _reason(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "does not exist"
    if isinstance(error, NotADirectoryError):
        return "is not a folder"
    return f"cannot be listed ({error.strerror})"
