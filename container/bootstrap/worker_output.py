"""What Ray's workers on this host print: Ray puts it into files, process 1 into the log of the host.

Ray's own way, a process on every host that sends the lines to the driver, costs a second of imports on each.
"""

from collections.abc import Iterator
from pathlib import Path

FILES = ("worker-*.out", "worker-*.err")
MAX_BYTES_AT_ONCE = 1 << 20
"""Of a file in one look; more waits for the next one."""
_NAMES = (b":actor_name:", b":task_name:")
_NOTE = b":job_id:"


class WorkerOutput:
    """Reads the files of workers below `logs_dir` as they grow.

    `since`, in seconds since 1970, is when the daemons were started: where they were started before, files of workers
    of that time lie there as well, which end before it and have been read.
    """

    def __init__(self, logs_dir: Path, since: float) -> None:
        self._logs_dir = logs_dir
        self._files: dict[Path, _File] = {path: _File(path) for path in self._paths() if path.stat().st_mtime < since}
        for file in self._files.values():
            file.skip()

    def read_new(self, *, is_last: bool = False) -> Iterator[str]:
        """The complete lines since the last call, each behind the name and the pid of its worker.

        The last call takes a line without an end as well, and says what it leaves.
        """
        for path in self._paths():
            yield from self._files.setdefault(path, _File(path)).read_new(is_last=is_last)

    def _paths(self) -> list[Path]:
        return sorted(path for pattern in FILES for path in self._logs_dir.glob(pattern))


class _File:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._pid = path.stem.rpartition("-")[2]
        self._name = "worker"
        self._offset = 0

    def skip(self) -> None:
        """Read nothing of what is there by now."""
        self._offset = self._path.stat().st_size

    def read_new(self, *, is_last: bool) -> Iterator[str]:
        """Between a worker's lines are Ray's, which tell its name and for whom it works."""
        try:
            size_bytes = self._path.stat().st_size
            if size_bytes == self._offset:
                return
            with self._path.open("rb") as file:
                file.seek(self._offset)
                read = file.read(MAX_BYTES_AT_ONCE)
        except OSError:
            return  # no line is worth a job
        whole_lines = read[: read.rfind(b"\n") + 1]
        if not is_last and (whole_lines or len(read) < MAX_BYTES_AT_ONCE):
            read = whole_lines
        self._offset += len(read)
        for line in read.splitlines():
            name = next((prefix for prefix in _NAMES if line.startswith(prefix)), None)
            if name is not None:
                self._name = line.removeprefix(name).decode(errors="replace")
            elif not line.startswith(_NOTE):
                yield f"{self._name} {self._pid}: {line.decode(errors='replace')}"
        if is_last and self._offset < size_bytes:
            yield f"{self._name} {self._pid}: and {size_bytes - self._offset} bytes more, which are not shown"
