"""The headline figures: their bars, the files that keep them, and the table that compares them.

`docs/benchmarks/<benchmark>.json` holds what a benchmark measured, round by round, with its conditions; `latest.json`
the headline figures of all benchmarks, flat; `conditions.json` when, at which commit and on what each was measured.
"""

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from infra.local import scale_model
from tests.benchmarks.harness import Measured

PROJECT_ROOT = Path(__file__).resolve().parents[2]
DIRECTORY = PROJECT_ROOT / "docs" / "benchmarks"
LATEST, CONDITIONS = "latest.json", "conditions.json"
LEAST_ROUNDS = 5
"""A median of fewer is no result: it is shown, not kept."""
_PACKAGES = ("ray", "torch", "torchvision", "timm", "numpy", "pillow", "pyarrow", "spdl-core")


class Bar(NamedTuple):
    """What a figure is held against."""

    meaning: str
    limit: float
    is_upper: bool = False
    """The figure may not be above the limit; otherwise, not below it."""

    def __str__(self) -> str:
        return f"{'<=' if self.is_upper else '>='} {self.limit:g}"

    def holds(self, value: float) -> bool:
        """Whether the value is on the right side."""
        return value <= self.limit if self.is_upper else value >= self.limit


BARS: Mapping[str, Bar] = {
    "balance_heavy": Bar("heavy transform: images/s over the bound of the same run's rates", 0.97),
    "balance_light": Bar("light transform: images/s over the bound of the same run's rates", 0.90),
    "stall_accelerator_bound": Bar("accelerator-bound: share of a step that waits for data", 0.02, is_upper=True),
    "balance_slowed_host": Bar("a host at half speed from mid-run on: images/s over the new bound", 0.93),
    "vs_article_steps_heavy": Bar("steps/s over the article's program, heavy transform", 1.15),
    "vs_article_steps_light": Bar("steps/s over the article's program, light transform", 2.0),
    "vs_article_whole_run": Bar("speed of a whole 100-step run over the article's program", 1.5),
    "vs_article_images_per_cpu_second_fused": Bar("images per CPU-second over the article's, fused transform", 10.0),
    "vs_dataloader_heavy": Bar("images/s over torch's DataLoader on one host, heavy transform", 1.0),
    "vs_dataloader_path": Bar("images/s over torch's DataLoader on one host, the path alone", 1.3),
    "path_ms_per_mb_across": Bar("CPU ms per MB of the path between hosts", 1.2, is_upper=True),
    "path_ms_per_mb_local": Bar("CPU ms per MB of the path on one host", 0.6, is_upper=True),
    "wire_ratio": Bar("bytes on the wire over payload x remote share", 1.05, is_upper=True),
    "wire_ratio_uint8_vs_article": Bar("bytes on the wire over the article's, uint8", 0.26, is_upper=True),
    "first_step_vs_article": Bar("speed from launch to first step over the article's program, two hosts", 3.0),
    "scale_2_to_16": Bar("images/s of 16 hosts over 2, same total of CPU", 0.95),
    "checkpoint_overhead": Bar(
        "time of checkpoints at the default interval over that of the steps", 0.02, is_upper=True
    ),
    "checkpoint_stall_steps": Bar("what a checkpoint costs the loop, in steps", 1.0, is_upper=True),
    "form_32_hosts_seconds": Bar("seconds until 32 hosts form a cluster", 60.0, is_upper=True),
}
"""The headline figures in the order of the table."""


class Results:
    """The figures of one run of benchmarks, beside those that `directory` held before it."""

    def __init__(self, directory: Path = DIRECTORY) -> None:
        self.before = read_headlines(directory)
        self.measured: dict[str, float] = {}
        self.trials: list[str] = []
        """Benchmarks that made too few rounds to be kept."""
        self._directory = directory
        self._commit = _commit()  # now, before results make the checkout dirty

    def record(self, benchmark: str, measured: Measured, headlines: Mapping[str, float] | None = None) -> None:
        """Keep what a benchmark measured, with the headline figures that follow from it; too few rounds: show only.

        Raises:
            ValueError: a headline has an unknown name, or no number.
        """
        wrong = [name for name, value in (headlines or {}).items() if name not in BARS or not math.isfinite(value)]
        if wrong:
            raise ValueError(f"{', '.join(wrong)}: no headline, or no number; headlines: {', '.join(BARS)}")
        figures = {name: float(f"{value:.4g}") for name, value in (headlines or {}).items()}
        self.measured.update(figures)
        if len(measured.rounds) < LEAST_ROUNDS:
            self.trials.append(benchmark)
            return
        where = {"commit": self._commit, **_here(), "rounds": len(measured.rounds)}
        _write(
            self._directory / f"{benchmark}.json",
            {**where, **measured.conditions, "headlines": figures, "figures_by_round": measured.rounds},
        )
        _merge(self._directory / LATEST, figures)
        _merge(self._directory / CONDITIONS, {name: {"benchmark": benchmark, **where} for name in figures})

    def table(self) -> str:
        """What was measured, against what the files held before and against the bars."""
        rows = [("figure", "measured", "before", "bar", "")]
        for name, bar in BARS.items():
            value = self.measured.get(name)
            verdict = "" if value is None else "holds" if bar.holds(value) else "MISSED"
            rows.append((name, _text(value), _text(self.before.get(name)), str(bar), verdict))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        if self.trials:
            lines.append(f"not kept, with fewer than {LEAST_ROUNDS} rounds: {', '.join(self.trials)}")
        return "\n".join(lines)


def read_headlines(directory: Path = DIRECTORY) -> dict[str, float]:
    """The headline figures that are kept, by name; those that were never measured are missing."""
    return {name: float(value) for name, value in _read(directory / LATEST).items()}


def to_markdown(directory: Path = DIRECTORY) -> str:
    """The kept headline figures as a table for a document, with what was never measured."""
    figures, conditions = read_headlines(directory), _read(directory / CONDITIONS)
    lines = ["| | measured | goal | on | at commit |", "| --- | --- | --- | --- | --- |"]
    for name, bar in BARS.items():
        where = conditions.get(name, {"date": "", "commit": ""})
        value = f"{figures[name]:g}" if name in figures else "not measured"
        lines.append(f"| {bar.meaning} (`{name}`) | {value} | {bar} | {where['date']} | {where['commit']} |")
    return "\n".join(lines) + "\n"


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _here() -> dict[str, Any]:
    """When and where something is measured, and with what."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": scale_model.machine(),
        "versions": {"python": sys.version.partition(" ")[0], **{name: version(name) for name in _PACKAGES}},
    }


def _commit() -> str:
    """The commit that is checked out, with `-dirty` if files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    try:
        found = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"  # a copy without its history
    return found.stdout.strip()


def _read(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    content: dict[str, Any] = json.loads(file.read_text())
    return content


def _write(file: Path, content: Mapping[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.partial")
    partial.write_text(json.dumps(content, indent=1) + "\n")
    partial.rename(file)


def _merge(file: Path, values: Mapping[str, Any]) -> None:
    """Put values into a file of headlines, in the order of the table; what others measured stays."""
    merged = {**_read(file), **values}
    _write(file, {name: merged[name] for name in BARS if name in merged})
