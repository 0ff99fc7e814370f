"""Reads what will be asked for next while the CPU works on what is there: for storage that mostly waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class ReadAhead(Generic[K, V]):
    """Gives `read(key)`, for keys that were expected without the wait. Used by one thread; `read` runs in several.

    Args:
        read: reads one thing; what it raises is raised by `take`.
        num_ahead: things that are read at once or wait to be taken.
    """

    def __init__(self, read: Callable[[K], V], num_ahead: int) -> None:
        self._read = read
        self._num_ahead = num_ahead
        self._threads = ThreadPoolExecutor(num_ahead, thread_name_prefix="read-ahead")
        self._expected: dict[K, None] = {}
        self._started: dict[K, Future[V]] = {}

    def expect(self, keys: Iterable[K]) -> None:
        """Say what `take` will be asked for, in that order; what was said before counts no more."""
        self._expected = dict.fromkeys(keys)
        for key in self._started.keys() - self._expected.keys():
            self._started.pop(key).cancel()
        for key in self._started:
            del self._expected[key]
        self._start()

    def take(self, key: K) -> V:
        """Return what `key` stands for, now or as soon as it is read."""
        started = self._started.pop(key, None)
        self._expected.pop(key, None)
        self._start()
        return self._read(key) if started is None else started.result()

    def _start(self) -> None:
        while self._expected and len(self._started) < self._num_ahead:
            key = next(iter(self._expected))
            del self._expected[key]
            self._started[key] = self._threads.submit(self._read, key)
