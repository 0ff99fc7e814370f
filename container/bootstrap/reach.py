"""Finding the head: its name may not resolve yet, and nobody may listen there yet."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

from container.bootstrap import log
from container.bootstrap.errors import CLUSTER_NOT_FORMED, HEAD_LOST, HostError
from container.bootstrap.tasks import in_thread

RETRY_SECONDS = 0.2
STILL_WAITING_SECONDS = 10.0

T = TypeVar("T")


async def reach(head: str, attempt: Callable[[str], Awaitable[T]], *, deadline: float, describe: str) -> T:
    """What `attempt` gives with the head's address, tried until `deadline` (loop time); `describe` says what for.

    Raises:
        HostError: the head could not be reached.
    """
    loop = asyncio.get_running_loop()
    started = said = loop.time()
    reason = "no time was left"
    while loop.time() < deadline:
        try:
            async with asyncio.timeout_at(deadline):
                return await attempt(await in_thread(socket.gethostbyname, head))
        except OSError as error:
            reason = str(error) or type(error).__name__
        if loop.time() - said > STILL_WAITING_SECONDS:
            said = loop.time()
            log.event(f"{describe}_head", head=head, seconds=loop.time() - started, reason=reason)
        await asyncio.sleep(RETRY_SECONDS)
    code = HEAD_LOST if describe == "reconnecting" else CLUSTER_NOT_FORMED
    raise HostError(code, f"{describe} the head {head} failed for {loop.time() - started:.0f} s: {reason}")
