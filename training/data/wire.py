"""How a data worker and a feed talk: a proof on both sides that they belong to one job, then chunks of rows.

One connection for each pair of a data worker and a feed: TCP, and on the host of the feed a Unix socket, beside which
the images lie in shared memory. The worker proves first that it knows the feed's key, so a stranger who connects is not
answered at all. Then the feed sends assignments and the worker sends results: numbers in network order, then the bytes
of arrays as they lie in memory. Nothing is ever unpickled.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

_NONCE_BYTES = 16
_PROOF_BYTES = 32
_NAME_BYTES = 255  # of a host
HELLO_BYTES = _NONCE_BYTES + _PROOF_BYTES
ANSWER_BYTES = _PROOF_BYTES + _NAME_BYTES
_WELCOME_BYTES = _NONCE_BYTES + _PROOF_BYTES
_ASSIGNMENT = struct.Struct("!QQQ")
_RESULT = struct.Struct("!QIIQdd")
RESULT_BYTES = _RESULT.size
ROW_BYTES = 8 + 1
"""Of a row beside its image: its label, and whether it could be read."""
_BACKLOG = 1024
_CONNECT_SECONDS = 30.0
_SILENCE_SECONDS = 30
"""A peer that does not acknowledge what was sent for so long is gone: its host, or the network between."""


class Refused(ConnectionError):
    """The other side does not know the feed's key, or does not keep to the protocol."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where a feed listens, and the key that whoever connects must know; never printed.

    `local_name` is that of an abstract Unix socket, which exists on the feed's own host only.
    """

    host: str
    port: int
    local_name: str
    key: bytes

    def __repr__(self) -> str:
        return f"Endpoint({self.host}:{self.port})"

    @classmethod
    def listen(cls, address: str) -> tuple[tuple[socket.socket, socket.socket], Endpoint]:
        """Two listening sockets, one on a free port of `address`, and what a data worker needs to find them."""
        outer, inner = socket.create_server((address, 0), backlog=_BACKLOG), socket.socket(socket.AF_UNIX)
        local_name = f"counterpoise-feed-{secrets.token_hex(16)}"
        inner.bind(_abstract(local_name))
        inner.listen(_BACKLOG)
        for listener in (outer, inner):
            listener.setblocking(False)
        port = outer.getsockname()[1]
        return (outer, inner), cls(host=address, port=port, local_name=local_name, key=secrets.token_bytes(32))


class Assignment(NamedTuple):
    """An order to prepare the rows at the places `start` to `stop` of the plan; one without rows ends the work."""

    number: int
    start: int
    stop: int

    def pack(self) -> bytes:
        """As it is sent."""
        return _ASSIGNMENT.pack(*self)


END = Assignment(0, 0, 0)


class Result(NamedTuple):
    """The head of what a worker sends for an assignment.

    After it come, for `num_rows` rows, labels (int64) and whether each could be read (bool), the problems of those that
    could not, JSON of `num_text_bytes` bytes, and, through TCP, the images in wire form, `num_image_bytes`. Where
    preparing raised, `num_rows` is 0, the text says what, and nothing else follows.
    """

    number: int
    num_rows: int
    num_text_bytes: int
    num_image_bytes: int
    cpu_seconds: float
    ended_at: float

    @classmethod
    def unpack(cls, data: bytes | bytearray) -> Result:
        """From the RESULT_BYTES bytes that were sent."""
        return cls(*_RESULT.unpack(data))

    def pack(self) -> bytes:
        """As it is sent."""
        return _RESULT.pack(*self)


def pack_problems(problems: Mapping[int, str]) -> bytes:
    """Unreadable rows and their reasons as they are sent."""
    return json.dumps(list(problems.items())).encode() if problems else b""


def unpack_problems(text: bytes | bytearray) -> dict[int, str]:
    """What `pack_problems` packed."""
    return {int(row): str(problem) for row, problem in json.loads(text)} if text else {}


class FeedSide:
    """The feed's part of the introduction, message by message."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._own_nonce = secrets.token_bytes(_NONCE_BYTES)
        self._worker_nonce = b""

    def welcome(self, hello: bytes) -> bytes:
        """What to send to a worker that said `hello`; raises Refused."""
        self._worker_nonce, proof = hello[:_NONCE_BYTES], hello[_NONCE_BYTES:]
        _check(proof, self._key, b"hello", self._worker_nonce)
        return self._own_nonce + _prove(self._key, b"welcome", self._worker_nonce, self._own_nonce)

    def name(self, answer: bytes) -> str:
        """The name of the worker's host from its `answer` to the welcome; raises Refused."""
        proof, padded = answer[:_PROOF_BYTES], answer[_PROOF_BYTES:]
        _check(proof, self._key, b"answer", self._own_nonce, padded)  # a replayed hello gets no further than here
        return padded.rstrip(b"\0").decode(errors="replace")


def connect(endpoint: Endpoint, host_name: str) -> socket.socket:
    """A connection to a feed, introduced as a data worker of `host_name`; raises OSError, of which Refused is one."""
    connection = _open(endpoint)
    try:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        connection.sendall(nonce + _prove(endpoint.key, b"hello", nonce))
        welcome = receive_exactly(connection, _WELCOME_BYTES)
        feed_nonce, proof = welcome[:_NONCE_BYTES], welcome[_NONCE_BYTES:]
        _check(proof, endpoint.key, b"welcome", nonce, feed_nonce)
        padded = host_name.encode()[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0")
        connection.sendall(_prove(endpoint.key, b"answer", feed_nonce, padded) + padded)
        set_up(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _open(endpoint: Endpoint) -> socket.socket:
    local = socket.socket(socket.AF_UNIX)
    local.settimeout(_CONNECT_SECONDS)
    try:
        local.connect(_abstract(endpoint.local_name))
    except ConnectionRefusedError:  # there is none of that name: the feed is on another host
        local.close()
        return socket.create_connection((endpoint.host, endpoint.port), timeout=_CONNECT_SECONDS)
    return local


def _abstract(name: str) -> str:
    return f"\0{name}"


def set_up(connection: socket.socket) -> None:
    """Send small messages at once, and notice a peer that vanished without a word."""
    if connection.family == socket.AF_UNIX:
        return
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _SILENCE_SECONDS // 3)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _SILENCE_SECONDS // 6)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENCE_SECONDS * 1000)


def receive_assignment(connection: socket.socket) -> Assignment:
    """The next order; blocks until it has come. Raises OSError."""
    return Assignment(*_ASSIGNMENT.unpack(receive_exactly(connection, _ASSIGNMENT.size)))


def receive_exactly(connection: socket.socket, num_bytes: int) -> bytes:
    """So many bytes; raises OSError where the peer is gone before."""
    parts = []
    while num_bytes:
        part = connection.recv(num_bytes)
        if not part:
            raise ConnectionResetError("the feed is gone")
        parts.append(part)
        num_bytes -= len(part)
    return b"".join(parts)


def _prove(key: bytes, *parts: bytes) -> bytes:
    return hmac.digest(key, b"|".join(parts), "sha256")


def _check(proof: bytes, key: bytes, *parts: bytes) -> None:
    if not hmac.compare_digest(proof, _prove(key, *parts)):
        raise Refused("the other side does not know the key of this feed")
