"""One connection of the control channel: JSON objects, one a line, with a deadline on everything."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

LINE_LIMIT_BYTES = 64 * 1024
SEND_SECONDS = 10.0
"""Messages are far smaller than a socket's buffer: one that does not fit meets a peer that stopped reading."""

Message = dict[str, Any]


class Channel:
    """JSON lines over one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @property
    def peer(self) -> str:
        """The other end's address, without its port."""
        name = self._writer.get_extra_info("peername")
        return str(name[0]) if name else "unknown"

    async def send(self, message: Mapping[str, Any]) -> None:
        """Write one message. Raises OSError when the peer is gone."""
        self._writer.write(json.dumps(message).encode() + b"\n")
        async with asyncio.timeout(SEND_SECONDS):
            await self._writer.drain()

    async def receive(self, timeout_seconds: float) -> Message:
        """Read one message. Raises OSError (TimeoutError is one) when the peer is gone, silent or talks nonsense."""
        try:
            # Not wait_for: on Python 3.11 it swallows a cancellation that comes together with the line.
            async with asyncio.timeout(timeout_seconds):
                line = await self._reader.readline()
            message = json.loads(line) if line else None
        except (ValueError, RecursionError) as error:  # also a line over the limit
            raise ConnectionError("not a line of JSON") from error
        if not isinstance(message, dict):
            raise ConnectionError("connection closed" if message is None else "not an object")
        return message

    def close(self) -> None:
        """Drop the connection."""
        self._writer.close()
