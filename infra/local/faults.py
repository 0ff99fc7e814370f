"""What befalls a host of a local job on purpose: at which event, and what then."""

import contextlib
import signal
from collections.abc import Mapping
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, kw_only=True)
class Fault:
    """`action` happens to `host`, so many seconds after an event has been printed for the `count`-th time."""

    at: str
    host: str
    action: str
    """A name in `SIGNALS` or `LINKS`, `kill_program:<name>`, or `restart` for a host that has ended."""
    count: int = 1
    delay_seconds: float = 0.0


SIGNALS: Mapping[str, signal.Signals] = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM}
"""Actions that are a signal to process 1 of the host alone; with a killed one the host is gone."""
LINKS: Mapping[str, bool] = {"unplug": False, "plug_in": True}
"""Actions that cut or connect its cable, by whether it is connected then."""


def kill_programs(process_one: int, name: str) -> None:
    """SIGKILL to each process of a host whose name or title begins like that; its process 1 as this process sees it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(process_one).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.name().startswith(name) or " ".join(process.cmdline()).startswith(name):
                    process.kill()
