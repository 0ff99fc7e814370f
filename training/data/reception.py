"""Where data workers connect: orders go out, results are received into the memory of their batch."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import selectors
import socket
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from training.data import wire
from training.data.batch import Assembly, Part
from training.data.schedule import Chunk, OpenBatch, Schedule, Worker
from training.data.shared import ANCILLARY_BYTES, FeedRooms

_READ_BYTES = 1 << 20
"""Of one connection at a time, so that none waits long for its turn."""
_INTRODUCTION_SECONDS = 10.0
_WORKERLESS_SECONDS = 300.0


class DataWorkerFailed(RuntimeError):
    """Preparing rows raised on a data worker, or there is no data worker; the text begins with the cause."""


@dataclass(eq=False)
class _Peer:
    """One connection: the memory that the next bytes go to, and what has been ordered from it."""

    connection: socket.socket
    opened_at: float
    target: memoryview
    rooms: FeedRooms | None
    """Where a worker of this host leaves its images; None: they come through the connection."""
    worker: Worker | None = None
    orders: dict[int, Chunk] = field(default_factory=dict)


class Reception:
    """The connections of one feed. Nothing in it blocks; the owner calls it when `selector` says so.

    Args:
        address: of this host, to listen on.
        schedule: says who gets which chunk.
        assembly_of: returns where the chunks of a batch are put together; asked only for batches that are open.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        address: str,
        schedule: Schedule,
        assembly_of: Callable[[OpenBatch], Assembly],
    ) -> None:
        self._listeners, self.endpoint = wire.Endpoint.listen(address)
        self._selector = selector
        self._schedule = schedule
        self._assembly_of = assembly_of
        self._peers: set[_Peer] = set()
        self._writers: dict[Chunk, _Peer] = {}
        """Who writes into the place of a chunk; of two who prepare the same one, only the first."""
        self._num_orders = 0
        self._had_workers_at = time.monotonic()
        for listener in self._listeners:
            selector.register(listener, selectors.EVENT_READ, functools.partial(self._accept, listener))

    def hand_out(self) -> None:
        """Give every worker that may have more to do an order, as long as there are any. Raises DataWorkerFailed."""
        now = time.monotonic()
        for peer in list(self._peers):
            if peer.worker is None:
                if now > peer.opened_at + _INTRODUCTION_SECONDS:
                    self._lose(peer)
                continue
            self._had_workers_at = now
            while chunk := self._schedule.next_for(peer.worker, now):
                self._num_orders += 1
                peer.orders[self._num_orders] = chunk
                if not self._send(peer, wire.Assignment(self._num_orders, chunk.start, chunk.stop).pack()):
                    break
        if now > self._had_workers_at + _WORKERLESS_SECONDS:
            raise DataWorkerFailed(
                f"no data worker has been connected for {_WORKERLESS_SECONDS:.0f} s; "
                "look at the hosts' logs, and whether they reach each other on every port"
            )

    def close(self) -> None:
        """Send every worker away."""
        for peer in self._peers:
            with contextlib.suppress(OSError):
                peer.connection.send(wire.END.pack())
            peer.connection.close()
        for listener in self._listeners:
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it has gone again
            connection, _ = listener.accept()
            connection.setblocking(False)
            wire.set_up(connection)
            rooms = FeedRooms() if connection.family == socket.AF_UNIX else None
            peer = _Peer(connection, time.monotonic(), memoryview(b""), rooms)
            conversation = self._converse(peer)
            peer.target = next(conversation)
            self._peers.add(peer)
            self._selector.register(connection, selectors.EVENT_READ, lambda: self._read(peer, conversation))

    def _read(self, peer: _Peer, conversation: Iterator[memoryview]) -> None:
        try:
            num_bytes = _receive(peer)
            if not num_bytes:
                raise ConnectionResetError("the data worker is gone")
            peer.target = peer.target[num_bytes:]
            if not peer.target:
                peer.target = next(conversation)
        except BlockingIOError:
            return
        except OSError:
            self._lose(peer)

    def _send(self, peer: _Peer, message: bytes) -> bool:
        try:
            # A few bytes always fit, unless the worker reads nothing any more.
            is_sent = peer.connection.send(message) == len(message)
        except OSError:
            is_sent = False
        if not is_sent:
            self._lose(peer)
        return is_sent

    def _lose(self, peer: _Peer) -> None:
        self._selector.unregister(peer.connection)
        peer.connection.close()
        self._peers.discard(peer)
        for chunk, writer in list(self._writers.items()):
            if writer is peer:
                del self._writers[chunk]
        if peer.worker is not None:
            self._schedule.leave(peer.worker)

    def _converse(self, peer: _Peer) -> Iterator[memoryview]:
        """What is said on one connection: yields the memory that the next bytes belong into."""
        side = wire.FeedSide(self.endpoint.key)
        hello = bytearray(wire.HELLO_BYTES)
        yield memoryview(hello)
        peer.connection.send(side.welcome(bytes(hello)))
        answer = bytearray(wire.ANSWER_BYTES)
        yield memoryview(answer)
        peer.worker = Worker(side.name(bytes(answer)))
        self._schedule.join(peer.worker)
        head = bytearray(wire.RESULT_BYTES)
        while True:
            yield memoryview(head)
            result = wire.Result.unpack(head)
            chunk = peer.orders.pop(result.number, None)
            if chunk is None or result.num_rows not in (0, chunk.num_rows):
                raise wire.Refused("a result that nobody ordered")
            small = memoryview(bytearray(wire.ROW_BYTES * result.num_rows + result.num_text_bytes))
            yield small
            if not result.num_rows:
                raise DataWorkerFailed(_sentence(small, peer.worker.name))
            yield from self._receive_images(peer, chunk, peer.worker, result, small)

    def _receive_images(
        self, peer: _Peer, chunk: Chunk, worker: Worker, result: wire.Result, small: memoryview
    ) -> Iterator[memoryview]:
        assembly = None if chunk.is_done else self._assembly_of(chunk.batch)
        place = assembly.place(chunk) if assembly is not None else None
        if place is not None and len(place) != result.num_image_bytes:
            raise wire.Refused("images of another size than those of this feed")
        spare = None
        if peer.rooms is not None:
            spare = peer.rooms.next(result.num_image_bytes)
            if spare is None:
                raise wire.Refused("a result without its images")
        elif place is None or chunk in self._writers:  # it was given out twice
            spare = memoryview(bytearray(result.num_image_bytes))
            yield spare
        else:
            self._writers[chunk] = peer
            yield place
            self._writers.pop(chunk, None)
        if self._schedule.done(worker, chunk, cpu_seconds=result.cpu_seconds, now=time.monotonic()):
            assembly = self._assembly_of(chunk.batch)
            if spare is not None:
                self._stop_writing(chunk)
                np.copyto(np.frombuffer(assembly.place(chunk), np.uint8), np.frombuffer(spare, np.uint8))
            num_row_bytes = wire.ROW_BYTES * chunk.num_rows
            part = Part(worker.name, chunk.num_rows, result.cpu_seconds, result.ended_at)
            assembly.add(chunk, part, small[:num_row_bytes], wire.unpack_problems(bytes(small[num_row_bytes:])))

    def _stop_writing(self, chunk: Chunk) -> None:
        """Whoever is still receiving the other copy of a chunk goes on into memory that nobody reads."""
        writer = self._writers.pop(chunk, None)
        if writer is not None:
            writer.target = memoryview(bytearray(len(writer.target)))


def _receive(peer: _Peer) -> int:
    """Receive into the target of a peer, and the rooms that come with the bytes; returns how many bytes came."""
    num_bytes = min(len(peer.target), _READ_BYTES)
    if peer.rooms is None:
        return peer.connection.recv_into(peer.target, num_bytes)
    num_bytes, ancillary, _, _ = peer.connection.recvmsg_into([peer.target[:num_bytes]], ANCILLARY_BYTES)
    for _, _, data in ancillary:
        for descriptor in array("i", data):
            if peer.worker is None:
                os.close(descriptor)
                raise wire.Refused("a room from a stranger")
            peer.rooms.take(descriptor)
    return num_bytes


def _sentence(text: memoryview, host: str) -> str:
    """What a data worker said of its failure, the cause first."""
    failure = json.loads(bytes(text))
    return f"{failure['summary']} (preparing rows on {host})\n{failure['traceback']}"
