"""What the jobs of a test do: scenario files that the fake runner follows, kept by a part of the job's name."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Scenarios:
    """A folder with one file per scenario; the runner of a job takes the longest fragment that its name contains."""

    directory: Path

    def set(self, fragment: str, *entries: dict[str, Any]) -> None:
        """Says what the first, second and every later job does whose name contains `fragment`; the last entry stays."""
        (self.directory / f"{fragment}.json").write_text(json.dumps(entries))

    def take(self, job_name: str) -> dict[str, Any]:
        """The entry of the next job of this name, an empty one without a scenario; each call counts as one job."""
        files = [file for file in self.directory.glob("*.json") if file.stem in job_name]
        if not files:
            return {}
        file = max(files, key=lambda file: len(file.stem))
        entries: list[dict[str, Any]] = json.loads(file.read_text())
        return entries[min(self._turn(file.stem), len(entries) - 1)]

    def _turn(self, fragment: str) -> int:
        turn = 0
        while True:  # runners of several jobs may ask at once; a file can be created by one of them only
            try:
                (self.directory / f"{fragment}.{turn}").touch(exist_ok=False)
            except FileExistsError:
                turn += 1
            else:
                return turn
