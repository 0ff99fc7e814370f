"""Memory that a data worker shares with a feed on its host: rows are prepared there and copied once, to their batch.

Every connection has as many rooms as a worker may hold chunks, and both sides use them in turn. A worker gets an order
only when the feed is through with the one before the last, so a room is free when its turn comes. A late worker writes
into its own room, never into a batch.
"""

from __future__ import annotations

import mmap
import os
import socket

from training.data.schedule import CHUNKS_PER_WORKER

ANCILLARY_BYTES = socket.CMSG_SPACE(4)
"""Of one file descriptor beside the bytes of a message."""


class WorkerRooms:
    """The worker's side: makes a room when it is first used, and a larger one when it has become too small."""

    def __init__(self) -> None:
        self._rooms: list[mmap.mmap | None] = [None] * CHUNKS_PER_WORKER
        self._turn = 0
        self._new: int | None = None

    def next(self, num_bytes: int) -> memoryview:
        """The next room, `num_bytes` of it."""
        self._turn = (self._turn + 1) % len(self._rooms)
        room = self._rooms[self._turn]
        if room is None or len(room) < num_bytes:
            self._new = os.memfd_create("counterpoise-rows")
            os.ftruncate(self._new, num_bytes)
            room = self._rooms[self._turn] = mmap.mmap(self._new, num_bytes)
        return memoryview(room)[:num_bytes]

    def send(self, connection: socket.socket, message: bytes) -> None:
        """Tell the feed, in `message`, that the last room is filled; with the room itself where it is new."""
        num_sent = 0
        if self._new is not None:
            try:
                num_sent = socket.send_fds(connection, [message], [self._new])
            finally:
                os.close(self._new)
                self._new = None
        if num_sent < len(
            message
        ):  # a feed that has all it wants may be gone already, and even nothing is refused then
            connection.sendall(message[num_sent:])


class FeedRooms:
    """The feed's side: takes what the worker has made."""

    def __init__(self) -> None:
        self._rooms: list[mmap.mmap | None] = [None] * CHUNKS_PER_WORKER
        self._turn = 0
        self._new: mmap.mmap | None = None

    def take(self, descriptor: int) -> None:
        """The room that the worker uses next; the descriptor is closed."""
        try:
            self._new = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)

    def next(self, num_bytes: int) -> memoryview | None:
        """The room that the worker has filled; None where it has none of that size."""
        self._turn = (self._turn + 1) % len(self._rooms)
        if self._new is not None:
            self._rooms[self._turn], self._new = self._new, None
        room = self._rooms[self._turn]
        return None if room is None or len(room) < num_bytes else memoryview(room)[:num_bytes]
