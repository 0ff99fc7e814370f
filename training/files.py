"""Files that are there whole or not at all."""

import os
from collections.abc import Callable
from pathlib import Path

import safetensors


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make a file, which gets its name when all of it is on the disk.

    Raises:
        OSError: naming the file.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        write(partial)
        publish(partial, path)
    except (OSError, safetensors.SafetensorError) as error:  # the latter wraps what the disk says
        raise OSError(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}") from error
    finally:
        partial.unlink(missing_ok=True)


def publish(partial: Path, path: Path) -> None:
    """Give a file that has been written its name, once all of it is on the disk; others may read it then."""
    partial.chmod(0o644)  # safetensors leaves its files to their owner
    _flush_to_disk(partial)
    partial.replace(path)
    _flush_to_disk(path.parent)


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
