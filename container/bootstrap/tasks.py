"""Background work of process 1: nothing is left behind, no failure is lost, and no blocked call holds up the end."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from container.bootstrap import log

T = TypeVar("T")

CANCEL_AGAIN_SECONDS = 1.0
MAX_CANCELS = 10  # ten seconds in all: the end of a host is not held up by work that nobody wants any more


async def abandon(*tasks: "asyncio.Task[Any] | None") -> None:
    """Cancel what still runs and wait until it has cleaned up; results and errors are no longer wanted.

    What goes on after ten cancellations is named and left.
    """
    pending = {task for task in tasks if task is not None}
    for _ in range(MAX_CANCELS):
        if not pending:
            return
        for task in pending:
            task.cancel()  # again, where a library took the first one for its own time-out
        done, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_SECONDS)
        for task in done:
            if not task.cancelled():
                task.exception()  # fetched, or Python complains that nobody did
    for task in pending:
        log.event("task_left", task=task.get_name(), cancellations=MAX_CANCELS)


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
