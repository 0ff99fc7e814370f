"""What befalls a host of a local job on purpose: at which event, and what then."""

import contextlib
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, kw_only=True)
class Fault:
    """`action` happens to `host`, so many seconds after an event has been printed for the `count`-th time."""

    at: str
    host: str
    action: str
    """`unplug` or `plug_in` for its network cable, `restart` for a host that has ended, or a name in `ACTIONS`, with
    an argument behind a colon where the action takes one."""
    count: int = 1
    delay_seconds: float = 0.0


def inflict(action: str, process_one: int) -> None:
    """Let a name in `ACTIONS` happen to the host with this process 1, by the pid that this process sees."""
    name, _, argument = action.partition(":")
    with contextlib.suppress(psutil.NoSuchProcess):
        ACTIONS[name](psutil.Process(process_one), argument)


def _kill(process_one: psutil.Process, _argument: str) -> None:
    """SIGKILL to process 1, and with it to the host."""
    process_one.kill()


def _terminate(process_one: psutil.Process, _argument: str) -> None:
    """SIGTERM to this host alone."""
    process_one.send_signal(signal.SIGTERM)


def _kill_program(process_one: psutil.Process, name: str) -> None:
    """SIGKILL to each process of the host whose name or title begins like that."""
    for process in process_one.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name().startswith(name) or " ".join(process.cmdline()).startswith(name):
                process.kill()


ACTIONS: Mapping[str, Callable[[psutil.Process, str], None]] = {
    "kill": _kill,
    "terminate": _terminate,
    "kill_program": _kill_program,
}
"""What happens inside of a host that runs."""
