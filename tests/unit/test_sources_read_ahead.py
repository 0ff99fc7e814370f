"""Reading ahead: what was expected is read at once and beforehand, whatever is asked for is right."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.data.read_ahead import ReadAhead

PATIENCE_SECONDS = 30.0
KEYS = st.integers(0, 9)


class Doors:
    """Reads that end when they are let through, and say when they have begun."""

    def __init__(self) -> None:
        self.begun: dict[int, threading.Event] = {key: threading.Event() for key in range(10)}
        self.opened = threading.Event()

    def read(self, key: int) -> str:
        self.begun[key].set()
        assert self.opened.wait(PATIENCE_SECONDS)
        return str(key)

    @contextmanager
    def begins(self, *keys: int) -> Iterator[None]:
        yield
        for key in keys:
            assert self.begun[key].wait(PATIENCE_SECONDS), f"{key} never began"


def test_expected_things_are_read_at_once_before_they_are_taken() -> None:
    doors = Doors()
    ahead = ReadAhead(doors.read, num_ahead=3)
    with doors.begins(4, 5, 6):
        ahead.expect([4, 5, 6, 7, 8])
    assert not doors.begun[7].is_set()
    doors.opened.set()
    with doors.begins(7):
        assert ahead.take(4) == "4"
    assert [ahead.take(key) for key in (5, 6, 7, 8)] == ["5", "6", "7", "8"]


def test_what_is_expected_no_more_makes_room() -> None:
    doors = Doors()
    ahead = ReadAhead(doors.read, num_ahead=2)
    with doors.begins(0, 1):
        ahead.expect([0, 1])
    doors.opened.set()
    with doors.begins(2, 3):
        ahead.expect([2, 3])
    assert [ahead.take(key) for key in (3, 2, 0)] == ["3", "2", "0"]


def test_an_error_is_that_of_its_own_key() -> None:
    ahead: ReadAhead[int, int] = ReadAhead(lambda key: 12 // key, num_ahead=2)
    ahead.expect([3, 0, 4])
    assert ahead.take(3) == 4
    with pytest.raises(ZeroDivisionError):
        ahead.take(0)
    assert ahead.take(4) == 3


@given(
    steps=st.lists(st.one_of(KEYS, st.lists(KEYS, max_size=6)), max_size=30),
    num_ahead=st.integers(1, 4),
)
def test_whatever_was_expected_each_key_gives_its_value(steps: list[int | list[int]], num_ahead: int) -> None:
    ahead: ReadAhead[int, str] = ReadAhead(str, num_ahead)
    for step in steps:
        if isinstance(step, int):
            assert ahead.take(step) == str(step)
        else:
            ahead.expect(step)
