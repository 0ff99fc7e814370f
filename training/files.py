"""Files that are there whole or not at all."""

import os
from pathlib import Path


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
