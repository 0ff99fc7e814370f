"""What the command prints: results on stdout, everything else on stderr; with --json only JSON is on stdout."""

import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO

from rich.console import Console, RenderableType
from rich.status import Status
from rich.text import Text

from infra.client.errors import CommandError, ExitCode

WIDTH_WITHOUT_TERMINAL = 120
"""Columns of a table in a file or a pipeline's log, where nobody knows the width."""


@dataclass(frozen=True, kw_only=True)
class Streams:
    """The three standard streams of the process."""

    stdin: TextIO
    stdout: TextIO
    stderr: TextIO

    @classmethod
    def of_process(cls) -> "Streams":
        """Those of this process."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # no line may end the command because a terminal is not UTF-8
        return cls(stdin=sys.stdin, stdout=sys.stdout, stderr=sys.stderr)


class Screen:
    """Shows results and notes to people, and results as JSON to programs."""

    def __init__(self, streams: Streams, *, as_json: bool) -> None:
        self.as_json = as_json
        self._streams = streams
        self._notes = _console(streams.stderr)
        self._people = self._notes if as_json else _console(streams.stdout)

    @property
    def is_attended(self) -> bool:
        """Whether a person sits at this terminal, who can be shown progress and asked."""
        return self._streams.stdin.isatty() and self._notes.is_terminal

    def show(self, *lines: RenderableType) -> None:
        """Shows a result to people, line by line or as a table."""
        _print(self._people, lines)

    def note(self, *lines: RenderableType) -> None:
        """Tells people what goes on; never part of a result."""
        _print(self._notes, lines)

    def result(self, document: object) -> None:
        """Prints the result as one JSON document, if JSON was asked for."""
        if self.as_json:
            self._write_json(document, indent=2)

    def record(self, document: object) -> None:
        """Prints one of many results as one line of JSON, if JSON was asked for."""
        if self.as_json:
            self._write_json(document, indent=None)

    def fail(self, error: CommandError) -> ExitCode:
        """Shows why the command cannot go on; returns its exit code."""
        self.record({"error": {"exit_code": error.exit_code, "lines": error.lines}})
        self.note(*error.lines)
        return error.exit_code

    def plan(self, steps: Sequence[Mapping[str, object]]) -> None:
        """Shows what a dry run would have done, step by step, each exactly as it would have been sent or run."""
        self.result(steps)
        if not self.as_json:
            self.show(*(json.dumps(step, indent=2, ensure_ascii=False) for step in steps))

    def confirm(self, question: str) -> bool:
        """Whether the person says yes; only y and yes are one."""
        self._notes.print(Text(f"{question} [y/N] "), end="")
        return self._streams.stdin.readline().strip().lower() in ("y", "yes")

    @contextmanager
    def progress(self) -> Iterator[Callable[[str], None]]:
        """A function that shows what goes on now: one moving line on a terminal, else a line whenever it changes."""
        if self.is_attended:
            with Status("", console=self._notes) as status:
                yield lambda text: status.update(Text(text))
            return
        last = ""

        def say(text: str) -> None:
            nonlocal last
            if text != last:
                last = text
                self.note(text)

        yield say

    def _write_json(self, document: object, indent: int | None) -> None:
        json.dump(document, self._streams.stdout, indent=indent, default=_json_value)
        self._streams.stdout.write("\n")
        self._streams.stdout.flush()


class _Console(Console):
    """Leaves the end of the command to the command when nobody reads any more; rich's own way is exit code 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _console(stream: TextIO) -> Console:
    width = None if stream.isatty() else WIDTH_WITHOUT_TERMINAL
    return _Console(file=stream, width=width, highlight=False, soft_wrap=True)


def _print(console: Console, lines: Iterable[RenderableType]) -> None:
    for line in lines:
        if not isinstance(line, str):
            console.print(line)
        elif console.is_terminal:
            # As it is: what a job or AWS wrote is no markup, though it may have square brackets.
            console.print(Text(line))
        else:
            # Rich prints a line again, if Ctrl-C comes while it prints.
            print(line, file=console.file, flush=True)


def _json_value(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    raise TypeError(f"{type(value).__name__} is no JSON value")
