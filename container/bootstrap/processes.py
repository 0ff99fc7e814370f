"""The children of process 1: adopt, reap, and end them, by pid and never by name alone."""

import asyncio
import ctypes
import os
import signal
from collections.abc import Callable, Collection
from contextlib import suppress

import psutil

PR_SET_CHILD_SUBREAPER = 36
KILL_SECONDS = 5.0
"""What outlives a SIGKILL for so long hangs in the kernel, and waiting does not help."""


def adopt_orphans() -> None:
    """Make this process the parent of every orphan below it, as Ray's daemons are, also where it is not pid 1."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap(*, awaited: Collection[int]) -> None:
    """Collect every dead child but those in `awaited`, whose exit codes somebody is waiting for."""
    with suppress(ChildProcessError):
        # Asks the kernel first: listing the children walks through all of /proc, and this is called twice a second.
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if child.pid not in awaited and child.status() == psutil.STATUS_ZOMBIE:
                _collect([child.pid])


def descendants() -> list[psutil.Process]:
    """Every live process below this one."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


async def end_all(
    find: Callable[[], Collection[psutil.Process]], *, grace_seconds: float, awaited: Collection[int] = ()
) -> None:
    """End what `find` finds, also what appears meanwhile: SIGTERM, then SIGKILL after `grace_seconds`.

    Returns when nothing is found any more, 5 s after the SIGKILL at the latest. What it ended is reaped, but for the
    pids in `awaited`.
    """
    loop = asyncio.get_running_loop()
    ended: set[int] = set()
    for signal_number, wait_seconds in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, KILL_SECONDS)):
        told: set[psutil.Process] = set()
        deadline = loop.time() + wait_seconds
        while processes := find():
            if loop.time() > deadline:
                break
            for process in set(processes) - told:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal_number)
            told |= set(processes)
            ended |= {process.pid for process in processes}
            await asyncio.sleep(0.05)
        else:
            break
    _collect(ended - set(awaited))


def _collect(pids: Collection[int]) -> None:
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
