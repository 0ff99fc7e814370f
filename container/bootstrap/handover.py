"""The token of a job whose hosts cannot call AWS: its head makes one up and gives it to its hosts, and to nobody else.

Who asks is known by the address that the connection comes from: it must be one that the platform's name of that host
resolves to. Nobody else in a network of AWS can take part in a connection to it.
"""

import asyncio
import re
import socket
from collections.abc import Collection

from container.bootstrap.channel import LINE_LIMIT_BYTES, Channel, Message
from container.bootstrap.tasks import in_thread
from container.bootstrap.token import TOKEN_PATTERN, Token

ASKS = "asks_for_token"
"""In the place of a proof, in a worker's first message."""
ANSWER_SECONDS = 10.0


async def hand_over(channel: Channel, hello: Message, token: Token, expected: Collection[str]) -> None:
    """Answer the message of somebody who asks for the token.

    Raises:
        OSError: it is not one of the `expected` hosts, or the connection broke.
    """
    name = str(hello.get("host"))
    addresses = await in_thread(socket.gethostbyname_ex, name) if name in expected else ("", [], [])
    if channel.peer not in addresses[2]:
        await channel.send({"refused": "not the address of a host of this job"})
        raise ConnectionError(f"asked for the token as {name[:100]}, whose addresses are {addresses[2]}")
    await channel.send({"token": token.value})


async def ask_for_token(address: str, port: int, *, host: str) -> str:
    """The job's token, from its head.

    Raises:
        OSError: nobody is there yet, or it refuses.
    """
    async with asyncio.timeout(ANSWER_SECONDS):
        channel = Channel(*await asyncio.open_connection(address, port, limit=LINE_LIMIT_BYTES))
        try:
            await channel.receive(ANSWER_SECONDS)  # the challenge, which only a host with a token can answer
            await channel.send({"host": host, ASKS: True})
            answer = await channel.receive(ANSWER_SECONDS)
        finally:
            channel.close()
    if not re.fullmatch(TOKEN_PATTERN, str(answer.get("token"))):
        raise ConnectionError(f"the head gives no token: {str(answer.get('refused'))[:100]}")
    return str(answer["token"])
