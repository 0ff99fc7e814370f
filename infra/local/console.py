"""What hosts print: whole lines, the events in them, and how both appear on this terminal."""

import io
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TextIO

from rich.console import Console as RichConsole
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from infra.local.limits import HostUsage

_EVENT = re.compile(r"counterpoise: event=(\S+)(.*)")
_FIELD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)')
_STYLES = ("cyan", "green", "magenta", "yellow", "blue", "bright_red")


@dataclass(frozen=True)
class Event:
    """One machine-readable line of a host: `counterpoise: event=<name> key=value ...`."""

    host: str
    name: str
    fields: Mapping[str, str]
    seconds_since_launch: float
    usage: Mapping[str, HostUsage] = field(default_factory=dict)
    """What each running host had used when the line arrived, so that two events give the use in between."""


def parse_event(host: str, line: str, seconds_since_launch: float) -> Event | None:
    """The event in a line, also behind the prefix that Ray gives to lines of its workers; None if there is none."""
    match = _EVENT.search(line)
    if match is None:
        return None
    fields = {key: _plain(value) for key, value in _FIELD.findall(match[2])}
    return Event(host, match[1], fields, seconds_since_launch)


def _plain(value: str) -> str:
    """A field's text without the JSON quotes that process 1 puts around what is no single word."""
    try:
        return str(json.loads(value)) if value.startswith('"') else value
    except ValueError:
        return value  # some other program's line


class LineSplitter:
    """Cuts a stream of bytes, which arrives in any pieces, into lines of text without their ends."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[str]:
        """The lines that are complete now; bytes that are no UTF-8 become U+FFFD."""
        self._rest += data
        *lines, rest = self._rest.split(b"\n")
        self._rest = rest
        return [_decode(line) for line in lines]

    def flush(self) -> list[str]:
        """The last line, if the stream ended without a line end."""
        rest, self._rest = self._rest, bytearray()
        return [_decode(rest)] if rest else []


def _decode(line: bytes | bytearray) -> str:
    return line.decode(errors="replace").removesuffix("\r")


class JobConsole:
    """Shows lines as `group/host | line`; on a terminal in colour and with a progress bar below them."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        if isinstance(self._stream, io.TextIOWrapper):
            self._stream.reconfigure(errors="replace")  # no line may stop a job because a terminal is not UTF-8
        self._rich = RichConsole(file=self._stream, highlight=False, soft_wrap=True)
        self._styles: dict[str, str] = {}
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def line(self, label: str, text: str) -> None:
        """Shows one line of a host; `label` is its group and name."""
        if not self._rich.is_terminal:
            print(f"{label} | {text}", file=self._stream, flush=True)
            return
        style = self._styles.setdefault(label, _STYLES[len(self._styles) % len(_STYLES)])
        self._rich.print(Text.assemble((label, style), " | ", Text.from_ansi(text)))

    def event(self, event: Event) -> None:
        """Moves the progress bar if the event tells of a step; without a terminal the line itself must do."""
        if event.name != "step" or not self._rich.is_terminal:
            return
        try:
            step, steps = int(event.fields["step"]), int(event.fields["steps"])
        except (KeyError, ValueError):
            return
        if self._progress is None:
            columns = TextColumn("steps"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
            self._progress = Progress(*columns, console=self._rich, transient=True)
            self._progress.start()
            self._task = self._progress.add_task("steps")
        if self._task is not None:
            self._progress.update(self._task, completed=step, total=steps)

    def close(self) -> None:
        """Ends the progress bar; the console can show another job afterwards."""
        if self._progress is not None:
            self._progress.stop()
        self._progress = self._task = None
