"""Data workers for tests of the feed: the real one in a thread, and one that does as it is told."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from training.data import wire
from training.data.feed import Feed
from training.data.plan import RowPlan
from training.data.shared import WorkerRooms
from training.data.sources import UnreadableRow
from training.data.spans import Span, training_spans
from training.data.worker import Recipe, serve

DEADLINE_SECONDS = 60.0
SIZE = 4
ELSEWHERE = "nobody-listens-here"
"""The local name of a feed, as another host sees it."""
NUM_ROWS = 1000
ROW_BYTES = 3 * SIZE * SIZE * 4


@dataclass(frozen=True)
class NumberedRows:
    """A source whose images say which row they are; some rows cannot be read."""

    broken: frozenset[int] = frozenset()
    num_rows: int = NUM_ROWS
    num_classes: int = 7

    def label(self, row: int) -> int:
        return row % self.num_classes

    def expect(self, rows: NDArray[np.int64]) -> None:
        assert len(rows)

    def read(self, row: int) -> NDArray[np.uint8]:
        if row in self.broken:
            raise UnreadableRow(f"{row}.jpg", "broken")
        return np.full((SIZE, SIZE, 3), row % 256, np.uint8)


@dataclass(frozen=True)
class Tagged:
    """A transform that writes the epoch and the row into the image; raises for one row, if told to."""

    failing: int | None = None
    wire_dtype: "np.dtype[np.generic]" = field(default_factory=lambda: np.dtype(np.float32))

    def wire_shape(self, image_size: int) -> tuple[int, int, int]:
        return (3, image_size, image_size)

    def on_host(self, image: NDArray[np.uint8], draw: tuple[int, int], out: NDArray[Any]) -> None:
        epoch, row = draw
        if row == self.failing:
            raise ValueError(f"no such colour in row {row}")
        out[0], out[1], out[2] = epoch, row, image[..., 0]


def make_recipe(**settings: Any) -> Recipe:
    recipe: dict[str, Any] = {
        "source": NumberedRows(),
        "transform": Tagged(),
        "plan": RowPlan(NUM_ROWS, seed=0, shuffle=False),
        "image_size": SIZE,
    }
    return Recipe(**{**recipe, **settings})


def make_feed(spans: Iterable[Span], *, batch_rows: int = 16, **settings: Any) -> Feed:
    arguments: dict[str, Any] = {
        "wire_shape": (3, SIZE, SIZE),
        "wire_dtype": np.dtype(np.float32),
        "address": "127.0.0.1",
        "device": torch.device("cpu"),
    }
    return Feed(spans, batch_rows=batch_rows, **{**arguments, **settings})


def spans_of(num_batches: int, batch_size: int = 16) -> list[Span]:
    return list(training_spans(num_batches=num_batches, batch_size=batch_size, rank=0, world_size=1))


@contextlib.contextmanager
def working(feeds: Sequence[Feed], names: Sequence[str] = ("algo-1", "algo-2"), **recipe: Any) -> Iterator[None]:
    """Real data workers, a thread each; they must all have ended at the end."""
    endpoints = [feed.endpoint for feed in feeds]
    threads = [threading.Thread(target=serve, args=(make_recipe(**recipe), endpoints, name)) for name in names]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for feed in feeds:
            feed.close()
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive()


class ScriptedWorker:
    """A worker of another host that takes orders and answers them when the test says so."""

    opened: ClassVar[list["ScriptedWorker"]] = []
    local_name: ClassVar[str | None] = ELSEWHERE

    def __init__(self, feed: Feed, name: str = "script") -> None:
        self.opened.append(self)
        endpoint = replace(feed.endpoint, local_name=self.local_name or feed.endpoint.local_name)
        self.connection: socket.socket = wire.connect(endpoint, name)
        self.connection.settimeout(DEADLINE_SECONDS)

    def order(self) -> wire.Assignment:
        return wire.receive_assignment(self.connection)

    def answer(self, order: wire.Assignment, *, value: float | None = None, num_bytes: int | None = None) -> None:
        """Send the result of an order, or only the first `num_bytes` bytes of its images."""
        data = result_of(order, value)
        num_head_bytes = len(data) - ROW_BYTES * (order.stop - order.start)
        self.connection.sendall(data if num_bytes is None else data[: num_head_bytes + num_bytes])

    def answer_rest(self, order: wire.Assignment, *, num_bytes: int, value: float | None = None) -> None:
        """Send what `answer` with the same `num_bytes` has left out."""
        data = result_of(order, value)
        self.connection.sendall(data[len(data) - ROW_BYTES * (order.stop - order.start) + num_bytes :])

    def leave(self) -> None:
        self.connection.close()


class LocalWorker(ScriptedWorker):
    """The same on the host of the feed: images lie in memory that both share."""

    local_name: ClassVar[str | None] = None

    def __init__(self, feed: Feed, name: str) -> None:
        super().__init__(feed, name)
        self._rooms = WorkerRooms()

    @staticmethod
    def head_of(order: wire.Assignment) -> bytes:
        """What goes through the connection."""
        data = result_of(order)
        return data[: len(data) - ROW_BYTES * (order.stop - order.start)]

    def answer(self, order: wire.Assignment, *, value: float | None = None, num_bytes: int | None = None) -> None:
        """Leave the images of an order in the next room, and say so."""
        assert num_bytes is None
        images = result_of(order, value)[len(self.head_of(order)) :]
        self._rooms.next(len(images))[:] = images
        self._rooms.send(self.connection, self.head_of(order))


def result_of(order: wire.Assignment, value: float | None = None) -> bytes:
    """What a data worker sends for an order: the row's number, or `value`, in every pixel."""
    places = np.arange(order.start, order.stop)
    pixels = places if value is None else np.full(len(places), value)
    images = np.broadcast_to(pixels.astype(np.float32)[:, None, None, None], (len(places), 3, SIZE, SIZE))
    data = images.tobytes()
    head = wire.Result(order.number, len(places), 0, len(data), 0.001 * len(places), time.time())
    return head.pack() + (places % 7).astype(np.int64).tobytes() + np.ones(len(places), np.bool_).tobytes() + data
