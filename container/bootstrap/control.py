"""The control channel: workers tell the head that they are here, the head tells them how the job ended.

One TCP connection a worker, JSON lines, both sides prove that they hold the job's token before anything else is said.
Ray itself cannot carry this: a worker node cannot tell a clean end of the head from a crash, and a partitioned one
notices nothing.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from container.bootstrap import log
from container.bootstrap.channel import LINE_LIMIT_BYTES, Channel, Message
from container.bootstrap.errors import FAILURE_MAX_CHARACTERS
from container.bootstrap.handover import ASKS, hand_over
from container.bootstrap.outcome import Outcome
from container.bootstrap.telemetry import Sample
from container.bootstrap.token import Token

CONTROL_PORT = 6378
BEAT_SECONDS = 0.5
SILENCE_SECONDS = 20.0
"""A link that was down for a few seconds is no death; 40 beats without an answer are."""
HANDSHAKE_SECONDS = 10.0


class ControlServer:
    """The head's end. `joined` maps host name to the address its Ray node runs on."""

    def __init__(
        self,
        token: Token,
        *,
        expected: set[str],
        versions: Mapping[str, str],
        hands_token_over: bool,
        on_sample: Callable[[str, Sample], None],
        on_stop: Callable[[], None],
    ) -> None:
        self._token = token
        self._expected = expected
        self._versions = dict(versions)
        self._hands_token_over = hands_token_over
        self._on_sample = on_sample
        self._on_stop = on_stop
        self._outcome: Outcome | None = None
        self._connected: dict[str, Channel] = {}
        self._confirmed: set[str] = set()
        self._refused: set[str] = set()
        self._stopping: set[str] = set()
        self._server: asyncio.Server | None = None
        self.joined: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self.lost: asyncio.Queue[str] = asyncio.Queue()

    async def start(self, address: str) -> None:
        """Listen on `address`. Raises OSError when the port is taken."""
        self._server = await asyncio.start_server(self._serve, address, CONTROL_PORT, limit=LINE_LIMIT_BYTES)

    async def finish(self, outcome: Outcome, *, timeout_seconds: float) -> list[str]:
        """Tell every worker the outcome, also one that connects only now; returns those that did not confirm it."""
        # All that a host shows of a reason, and short enough for one line of the channel.
        self._outcome = Outcome(exit_code=outcome.exit_code, reason=outcome.reason[:FAILURE_MAX_CHARACTERS])
        if self._server is not None:
            deadline = asyncio.get_running_loop().time() + timeout_seconds
            while self._expected - self._confirmed and asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(0.05)
            self._server.close()
        return sorted(self._expected - self._confirmed)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel = Channel(reader, writer)
        name = ""
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                name = await self._admit(channel)
            if not name:
                return
            self._connected[name] = channel
            await self._converse(name, channel)
        except (OSError, TypeError) as error:  # TypeError: the fields of a message are not those of this version
            self._note_break(name, channel, error)
        except asyncio.CancelledError:
            pass  # the loop ends, with this as its outermost frame; Python 3.11 prints a traceback where it goes on
        finally:
            if self._connected.get(name) is channel:
                del self._connected[name]
            channel.close()

    async def _admit(self, channel: Channel) -> str:
        """The name of a worker that is one; nothing for one that had to ask for the token, and comes again."""
        challenge = secrets.token_hex(16)
        await channel.send({"challenge": challenge})
        hello = await channel.receive(HANDSHAKE_SECONDS)
        if ASKS in hello and self._hands_token_over:
            await hand_over(channel, hello, self._token, self._expected)
            return ""
        name, counter = str(hello.get("host")), str(hello.get("challenge"))
        if not self._token.accepts(str(hello.get("proof")), "worker", challenge, counter, name):
            await channel.send({"refused": "wrong token"})
            raise ConnectionError("wrong token")
        if name not in self._expected:
            await channel.send({"refused": "no host of this job"})
            raise ConnectionError("no host of this job")
        await channel.send({"proof": self._token.proof("head", challenge, counter, name)})
        if hello.get("versions") != self._versions:
            self.failed[name] = f"runs {hello.get('versions')}, the head {self._versions}; use one image for all hosts"
        return name

    async def _converse(self, name: str, channel: Channel) -> None:
        """Answer every beat of a worker; once there is an outcome, it is the answer, and `bye` confirms it."""
        while True:
            message = await channel.receive(SILENCE_SECONDS)
            self._note(name, message)
            if "bye" in message and self._outcome is not None:
                self._confirmed.add(name)
                return
            if "bye" in message:
                raise ConnectionError("left before the end of the job")
            await channel.send({"beat": True} if self._outcome is None else {"outcome": asdict(self._outcome)})

    def _note(self, name: str, message: Message) -> None:
        if "joined" in message:
            self.joined[name] = str(message["joined"])
        if "failed" in message and self.failed.get(name) != str(message["failed"]):
            self.failed[name] = str(message["failed"])
            log.event("host_failed", host=name, reason=self.failed[name])
        if "stopping" in message and name not in self._stopping:
            self._stopping.add(name)
            log.event("host_stopping", host=name)
            self._on_stop()
        if "sample" in message:
            self._on_sample(name, Sample(**message["sample"]))

    def _note_break(self, name: str, channel: Channel, error: Exception) -> None:
        """A worker's connection broke, or a stranger's: a stranger is told of once, as it may try again and again."""
        if name:
            if self._outcome is None and self._connected.get(name) is channel:
                self.lost.put_nowait(name)
        elif channel.peer not in self._refused:
            self._refused.add(channel.peer)
            log.event("connection_refused", address=channel.peer, reason=str(error) or type(error).__name__)


class ControlClient:
    """A worker's end."""

    def __init__(self, token: Token, *, host: str, versions: Mapping[str, str]) -> None:
        self._token = token
        self._host = host
        self._versions = dict(versions)
        self._channel: Channel | None = None

    async def connect(self, address: str) -> None:
        """Open the channel and check that the head holds the token too, within 10 s.

        Raises:
            OSError: nobody there yet, or not this job's head.
        """
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            channel = Channel(*await asyncio.open_connection(address, CONTROL_PORT, limit=LINE_LIMIT_BYTES))
            try:
                await self._introduce(channel)
            except BaseException:
                channel.close()
                raise
        if self._channel is not None:
            self._channel.close()
        self._channel = channel

    async def _introduce(self, channel: Channel) -> None:
        challenge = str((await channel.receive(HANDSHAKE_SECONDS)).get("challenge"))
        counter = secrets.token_hex(16)
        await channel.send(
            {
                "host": self._host,
                "challenge": counter,
                "versions": self._versions,
                "proof": self._token.proof("worker", challenge, counter, self._host),
            }
        )
        answer = await channel.receive(HANDSHAKE_SECONDS)
        if "refused" in answer:
            raise ConnectionRefusedError(f"the head refused this host: {str(answer['refused'])[:100]}")
        if not self._token.accepts(str(answer.get("proof")), "head", challenge, counter, self._host):
            raise ConnectionError("the peer does not hold this job's token")

    async def exchange(self, **fields: Any) -> Outcome | None:
        """Send one message and take the answer: None while the job goes on, its outcome at the end.

        Raises:
            OSError: the head is gone or has been silent for 20 s.
        """
        if self._channel is None:
            raise ConnectionError("not connected")
        await self._channel.send(fields)
        answer = await self._channel.receive(SILENCE_SECONDS)
        return Outcome(**answer["outcome"]) if "outcome" in answer else None

    async def leave(self, *, failed: str = "") -> None:
        """Confirm the outcome, or say why this host goes without one, and close."""
        if self._channel is not None:
            with suppress(OSError):
                await self._channel.send({"bye": True, **({"failed": failed} if failed else {})})
            self._channel.close()
