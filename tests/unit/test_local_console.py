"""Lines of hosts are whole, complete and labelled, and events are found in them."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.local.console import Event, JobConsole, LineSplitter, parse_event
from infra.local.sandbox import missing_requirement


@given(st.lists(st.binary(max_size=20)))
def test_lines_do_not_depend_on_how_bytes_arrive(pieces: list[bytes]) -> None:
    splitter = LineSplitter()
    lines = [line for piece in pieces for line in splitter.feed(piece)] + splitter.flush()
    whole = b"".join(pieces)
    expected = whole.decode(errors="replace").split("\n")
    if expected[-1] == "":
        expected.pop()
    assert lines == [line.removesuffix("\r") for line in expected]
    assert splitter.flush() == []


def test_a_character_cut_in_two_is_one_character() -> None:
    splitter = LineSplitter()
    assert splitter.feed("é".encode()[:1]) == []
    assert splitter.feed("é".encode()[1:] + b"\xff\n") == ["é\ufffd"]


@pytest.mark.parametrize(
    ("line", "name", "fields"),
    [
        ("counterpoise: event=cluster_formed hosts=2 seconds=6.1", "cluster_formed", {"hosts": "2", "seconds": "6.1"}),
        ("counterpoise: event=ready", "ready", {}),
        (
            'counterpoise: event=failed reason="no space left" code=3',
            "failed",
            {"reason": "no space left", "code": "3"},
        ),
        (
            'counterpoise: event=failed reason="no \\"x\\" in \\u00e9" code=3',
            "failed",
            {"reason": 'no "x" in é', "code": "3"},
        ),
        ('counterpoise: event=odd text="a\\q" n=1', "odd", {"text": '"a\\q"', "n": "1"}),
        (
            "\x1b[36m(Worker pid=7, ip=10.0.0.2)\x1b[0m counterpoise: event=step step=1 steps=9",
            "step",
            {"step": "1", "steps": "9"},
        ),
    ],
)
def test_events_are_parsed(line: str, name: str, fields: dict[str, str]) -> None:
    assert parse_event("algo-1", line, 2.5) == Event("algo-1", name, fields, 2.5)


@pytest.mark.parametrize("line", ["", "counterpoise: rank=1", "event=step step=1"])
def test_other_lines_are_no_events(line: str) -> None:
    assert parse_event("algo-1", line, 0.0) is None


def test_without_a_terminal_lines_are_plain() -> None:
    stream = io.StringIO()
    console = JobConsole(stream)
    console.line("gpu/algo-1", "[bold]not markup[/bold] \x1b[31mred\x1b[0m")
    console.event(Event("algo-1", "step", {"step": "1", "steps": "2"}, 1.0))
    console.close()
    assert stream.getvalue() == "gpu/algo-1 | [bold]not markup[/bold] \x1b[31mred\x1b[0m\n"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_there_is_a_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    stream = _Terminal()
    console = JobConsole(stream)
    console.line("gpu/algo-1", "[bold]not markup[/bold]")
    console.event(Event("algo-1", "step", {"step": "100", "steps": "1000"}, 1.0))
    console.event(Event("algo-1", "step", {"step": "no number"}, 1.0))
    console.line("cpu/algo-2", "between")
    console.close()
    text = stream.getvalue()
    assert "[bold]not markup[/bold]" in text
    assert "100/1000" in text
    assert "between" in text


def test_no_terminal_encoding_stops_a_job() -> None:
    raw = io.BytesIO()
    console = JobConsole(io.TextIOWrapper(raw, encoding="ascii"))
    console.line("gpu/algo-1", "é")
    assert raw.getvalue() == b"gpu/algo-1 | ?\n"


def test_what_the_machine_lacks_is_one_sentence() -> None:
    assert missing_requirement("linux", lambda _: "/usr/sbin/ip") is None
    assert missing_requirement("darwin", lambda _: "/usr/sbin/ip") == (
        "local hosts need Linux namespaces and this is darwin; "
        "run the same command on Linux or in a Linux virtual machine"
    )
    assert missing_requirement("linux", lambda _: None) == (
        "the program ip is missing; install it, on Debian or Ubuntu with: apt-get install iproute2"
    )
