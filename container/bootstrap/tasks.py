"""Background work of process 1: nothing is left behind, no failure is lost, and no blocked call holds up the end."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from container.bootstrap import log

T = TypeVar("T")


async def abandon(*tasks: "asyncio.Task[Any] | None") -> None:
    """Cancel what still runs and wait until it has cleaned up; results and errors are no longer wanted."""
    known = [task for task in tasks if task is not None]
    for task in known:
        task.cancel()
    await asyncio.gather(*known, return_exceptions=True)


def say_if_failed(task: "asyncio.Task[Any]") -> None:
    """A done-callback for a task that nobody awaits: its error is printed when it happens."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.event("task_failed", task=task.get_name(), reason=f"{type(error).__name__}: {error}")


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function that blocks; unlike with `asyncio.to_thread`, the end of the loop does not wait for it.

    A resolver takes half a minute to give up, Ray's client 40 s.
    """
    future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def call() -> None:
        future.set_running_or_notify_cancel()
        try:
            future.set_result(function(*arguments))
        except Exception as error:  # noqa: BLE001 it belongs to whoever awaits the result
            future.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return await asyncio.wrap_future(future)
