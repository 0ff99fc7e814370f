"""A data worker: prepares rows for every feed of the job, in the order in which they are asked for."""

from __future__ import annotations

import gc
import json
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
from training.data.sources import Source
from training.data.transforms import Transform


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a data worker needs to know; stored once in the cluster, read by every worker."""

    source: Source
    transform: Transform
    plan: RowPlan
    image_size: int


class _Order(NamedTuple):
    """Rows that a feed has asked for; `rows` are their ids."""

    connection: socket.socket
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
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                assignment = _receive(connection)
                if assignment == wire.END:
                    orders = _without(orders, connection, feeds)
                    continue
                rows = recipe.plan.rows(assignment.start, assignment.stop)
                orders.append(_Order(connection, assignment, rows))
                recipe.source.expect(np.concatenate([order.rows for order in orders]))
            if orders:
                order = orders.popleft()
                try:
                    preparer.fill(order)
                except OSError:
                    orders = _without(orders, order.connection, feeds)


def _try_to_join(feeds: selectors.BaseSelector, endpoint: wire.Endpoint, host_name: str) -> None:
    """Connect to a feed; one that has ended already has no work either."""
    try:
        connection = wire.connect(endpoint, host_name)
    except wire.Refused:
        raise
    except ConnectionError:
        return
    connection.settimeout(None)
    feeds.register(connection, selectors.EVENT_READ)


def _receive(connection: socket.socket) -> wire.Assignment:
    try:
        return wire.receive_assignment(connection)
    except OSError:
        return wire.END


def _without(orders: deque[_Order], connection: socket.socket, feeds: selectors.BaseSelector) -> deque[_Order]:
    """Leave a feed; returns the orders of the others."""
    feeds.unregister(connection)
    connection.close()
    return deque(order for order in orders if order.connection is not connection)


class _Preparer:
    """Prepares the rows of an order and sends them; the arrays between are used again and again."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._images: NDArray[Any] = np.empty(0, np.uint8)
        self._cpu_mark = time.process_time()

    def fill(self, order: _Order) -> None:
        """Prepare the rows of `order` and send them, or what kept it from that. Raises OSError: the feed is gone."""
        connection, assignment, rows = order
        try:
            small, images = self._prepare(assignment, rows)
        except Exception as error:  # noqa: BLE001 a user's transform raises anything; the trainer's side reports it
            text = _describe(error).encode()
            connection.sendall(wire.Result(assignment.number, 0, len(text), 0, 0.0, time.time()).pack() + text)
            return
        connection.sendall(small)
        connection.sendall(images)

    def _prepare(self, assignment: wire.Assignment, rows: NDArray[np.int64]) -> tuple[bytes, memoryview]:
        recipe, num_rows = self._recipe, len(rows)
        epochs = recipe.plan.epochs(assignment.start, assignment.stop)
        images = self._array(num_rows)
        labels, valid = np.empty(num_rows, np.int64), np.empty(num_rows, np.bool_)
        problems = prepare_rows(recipe.source, recipe.transform, rows, epochs, images, labels, valid)
        text = wire.pack_problems(problems)
        cpu_now = time.process_time()  # with what sending the chunk before took
        head = wire.Result(assignment.number, num_rows, len(text), images.nbytes, cpu_now - self._cpu_mark, time.time())
        self._cpu_mark = cpu_now
        return head.pack() + labels.tobytes() + valid.tobytes() + text, images.data.cast("B")

    def _array(self, num_rows: int) -> NDArray[Any]:
        transform = self._recipe.transform
        if len(self._images) < num_rows:
            self._images = np.empty((num_rows, *transform.wire_shape(self._recipe.image_size)), transform.wire_dtype)
        return self._images[:num_rows]


def _describe(error: Exception) -> str:
    """An exception as the feed reads it."""
    return json.dumps(
        {
            "summary": f"{type(error).__name__}: {error}",
            "traceback": "".join(traceback.format_exception(error)),
        }
    )
