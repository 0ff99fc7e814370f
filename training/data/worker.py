"""A data worker: prepares rows for every feed of the job, in the order in which they are asked for."""

from __future__ import annotations

import gc
import json
import math
import selectors
import socket
import time
import traceback
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from training.data import wire
from training.data.plan import RowPlan
from training.data.prepare import prepare_rows
from training.data.shared import WorkerRooms
from training.data.sources import Source
from training.data.transforms import Transform


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a data worker needs to know; stored once in the cluster, read by every worker."""

    source: Source
    transform: Transform
    plan: RowPlan
    image_size: int


class _Feed:
    """A feed that is served; `rooms` are the memory shared with one on this host."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.rooms = WorkerRooms() if connection.family == socket.AF_UNIX else None


class _Order(NamedTuple):
    """Rows that a feed has asked for; `rows` are their ids."""

    feed: _Feed
    assignment: wire.Assignment
    rows: NDArray[np.int64]


def serve(recipe: Recipe, endpoints: Sequence[wire.Endpoint], host_name: str) -> None:
    """Work for the feeds at `endpoints`, on one CPU, until each has ended or is gone."""
    torch.set_num_threads(1)  # one worker per CPU; threads of several would fight for the same ones
    gc.freeze()  # what the imports have left is for ever; a collection need not walk through it
    preparer = _Preparer(recipe)
    orders: deque[_Order] = deque()
    with selectors.DefaultSelector() as feeds:
        for endpoint in endpoints:
            _try_to_join(feeds, endpoint, host_name)
        while feeds.get_map():
            for key, _ in feeds.select(0 if orders else None):
                feed: _Feed = key.data
                assignment = _receive(feed.connection)
                if assignment == wire.END:
                    orders = _without(orders, feed, feeds)
                    continue
                rows = recipe.plan.rows(assignment.start, assignment.stop)
                orders.append(_Order(feed, assignment, rows))
                recipe.source.expect(np.concatenate([order.rows for order in orders]))
            if orders:
                order = orders.popleft()
                try:
                    preparer.fill(order)
                except OSError:
                    orders = _without(orders, order.feed, feeds)


def _try_to_join(feeds: selectors.BaseSelector, endpoint: wire.Endpoint, host_name: str) -> None:
    """Connect to a feed; one that has ended already has no work either."""
    try:
        connection = wire.connect(endpoint, host_name)
    except wire.Refused:
        raise
    except ConnectionError:
        return
    connection.settimeout(None)
    feeds.register(connection, selectors.EVENT_READ, _Feed(connection))


def _receive(connection: socket.socket) -> wire.Assignment:
    try:
        return wire.receive_assignment(connection)
    except OSError:
        return wire.END


def _without(orders: deque[_Order], feed: _Feed, feeds: selectors.BaseSelector) -> deque[_Order]:
    """Leave a feed; returns the orders of the others."""
    feeds.unregister(feed.connection)
    feed.connection.close()
    return deque(order for order in orders if order.feed is not feed)


class _Preparer:
    """Prepares the rows of an order and sends them; the arrays between are used again and again."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._images: NDArray[Any] = np.empty(0, np.uint8)
        self._cpu_mark = time.process_time()

    def fill(self, order: _Order) -> None:
        """Prepare the rows of `order` and send them, or what kept it from that. Raises OSError: the feed is gone."""
        feed, assignment, rows = order
        images = self._images_of(feed, len(rows))
        try:
            small = self._prepare(assignment, rows, images)
        except Exception as error:  # noqa: BLE001 a user's transform raises anything; the trainer's side reports it
            text = _describe(error).encode()
            feed.connection.sendall(wire.Result(assignment.number, 0, len(text), 0, 0.0, time.time()).pack() + text)
            return
        if feed.rooms is not None:
            feed.rooms.send(feed.connection, small)
            return
        feed.connection.sendall(small)
        feed.connection.sendall(images.data.cast("B"))

    def _prepare(self, assignment: wire.Assignment, rows: NDArray[np.int64], images: NDArray[Any]) -> bytes:
        """Fill `images`; returns all else that is to be sent."""
        recipe, num_rows = self._recipe, len(rows)
        epochs = recipe.plan.epochs(assignment.start, assignment.stop)
        labels, valid = np.empty(num_rows, np.int64), np.empty(num_rows, np.bool_)
        problems = prepare_rows(recipe.source, recipe.transform, rows, epochs, images, labels, valid)
        text = wire.pack_problems(problems)
        cpu_now = time.process_time()  # with what sending the chunk before took
        head = wire.Result(assignment.number, num_rows, len(text), images.nbytes, cpu_now - self._cpu_mark, time.time())
        self._cpu_mark = cpu_now
        return head.pack() + labels.tobytes() + valid.tobytes() + text

    def _images_of(self, feed: _Feed, num_rows: int) -> NDArray[Any]:
        """Where the images of a chunk are to be prepared, (num_rows, *wire_shape)."""
        transform = self._recipe.transform
        shape = num_rows, *transform.wire_shape(self._recipe.image_size)
        if feed.rooms is not None:
            num_bytes = math.prod(shape) * transform.wire_dtype.itemsize
            return np.frombuffer(feed.rooms.next(num_bytes), transform.wire_dtype).reshape(shape)
        if len(self._images) < num_rows:
            self._images = np.empty(shape, transform.wire_dtype)
        return self._images[:num_rows]


def _describe(error: Exception) -> str:
    """An exception as the feed reads it."""
    return json.dumps(
        {
            "summary": f"{type(error).__name__}: {error}",
            "traceback": "".join(traceback.format_exception(error)),
        }
    )
