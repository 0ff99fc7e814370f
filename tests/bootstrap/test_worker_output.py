"""What workers print on a host: every line once, with whose it is."""

import os
from pathlib import Path

import pytest

from container.bootstrap import worker_output
from container.bootstrap.worker_output import WorkerOutput


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "worker-0a1b-01000000-77.out"


def new_lines(output: WorkerOutput, *, is_last: bool = False) -> list[str]:
    return list(output.read_new(is_last=is_last))


def append(file: Path, text: bytes) -> None:
    with file.open("ab") as opened:
        opened.write(text)


def test_lines_come_once_as_they_grow_and_whole(tmp_path: Path, out: Path) -> None:
    output = WorkerOutput(tmp_path, since=0.0)
    assert new_lines(output) == []
    append(out, b"one\ntw")
    assert new_lines(output) == ["worker 77: one"]
    assert new_lines(output) == []
    append(out, b"o\n\nthree\n")
    append(tmp_path / "worker-0a1b-01000000-78.err", b"\xff?\n")
    assert new_lines(output) == ["worker 77: two", "worker 77: ", "worker 77: three", "worker 78: \ufffd?"]
    append(out, b"its last wor")
    assert new_lines(output) == []
    assert new_lines(output, is_last=True) == ["worker 77: its last wor"]


def test_a_worker_is_named_as_ray_names_it(tmp_path: Path, out: Path) -> None:
    output = WorkerOutput(tmp_path, since=0.0)
    append(out, b":job_id:01000000\n:task_name:serve\nhello\n:actor_name:Rank\nready\n")
    assert new_lines(output) == ["serve 77: hello", "Rank 77: ready"]
    append(out, b"later\n")
    assert new_lines(output) == ["Rank 77: later"]


def test_after_another_start_of_ray_nothing_is_printed_twice(tmp_path: Path, out: Path) -> None:
    append(out, b"printed before\n")
    started_at = out.stat().st_mtime + 0.001
    fresh = tmp_path / "worker-0c-01000000-99.out"
    append(fresh, b"new\n")
    os.utime(fresh, (started_at, started_at))
    output = WorkerOutput(tmp_path, since=started_at)
    assert new_lines(output) == ["worker 99: new"]


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    for name in ("raylet.out", "python-core-worker-1.log", "gcs_server.err"):
        append(tmp_path / name, b"not for people\n")
    assert new_lines(WorkerOutput(tmp_path, since=0.0)) == []


def test_a_flood_is_read_in_turns_and_what_is_left_is_counted(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_output, "MAX_BYTES_AT_ONCE", 8)
    output = WorkerOutput(tmp_path, since=0.0)
    append(out, b"a line longer than that\n")
    assert new_lines(output) == ["worker 77: a line l"]
    assert new_lines(output) == ["worker 77: onger th"]
    append(out, b"x" * 100)
    assert new_lines(output, is_last=True) == [
        "worker 77: an that",
        "worker 77: and 100 bytes more, which are not shown",
    ]
