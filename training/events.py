"""What the training tells process 1: JSON lines in a file that process 1 reads, prints and watches for progress."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


class Events:
    """Appends events; `path` None (a rank that does not report) makes every call do nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def emit(self, name: str, **fields: Any) -> None:
        """Append one event with the time it happened, UTC to the millisecond; `fields` hold what JSON can."""
        if self._path is not None:
            # Text, since process 1 prints six digits of a number, which of the seconds since 1970 is half an hour.
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            line = json.dumps({"event": name, **fields, "at": at})
            with self._path.open("a") as file:
                file.write(line + "\n")

    def touch(self) -> None:
        """Show that there is progress without saying anything."""
        if self._path is not None:
            os.utime(self._path)
