"""Ray's daemons as far as process 1 can see them.

The environment says how they behave: FAKE_RAY is a list of words by commas, one for each start on this host, the last
one for all further starts: `ok`, `fail`, `hang`, or `stubborn` for a daemon that ignores SIGTERM.
"""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from ray._private.parameter import RayParams

PR_SET_NAME = 15


class Node:
    """Starts, fails or hangs, as the environment says."""

    def __init__(self, params: RayParams, **_options: Any) -> None:
        nodes = Path(os.environ["FAKE_RAY_NODES"])
        address = str(params.node_ip_address)
        starts = nodes.parent / f"starts-{address}"
        with starts.open("a") as file:
            file.write(f"{os.getpid()} {' '.join(sys.argv[1:])}\n")
        behaviours = os.environ.get("FAKE_RAY", "ok").split(",")
        behaviour = behaviours[min(len(starts.read_text().splitlines()), len(behaviours)) - 1]
        if behaviour == "fail":
            print("some chatter\nRuntimeError: the raylet did not like it\nmore chatter")
            sys.exit(1)
        if behaviour == "hang":
            time.sleep(600)
        self._logs = nodes.parent / f"logs-{address}"
        self._logs.mkdir(exist_ok=True)
        _daemon(nodes / address, is_stubborn=behaviour == "stubborn")

    def get_logs_dir_path(self) -> str:
        """Where a worker would print."""
        return str(self._logs)


def _daemon(entry: Path, *, is_stubborn: bool) -> None:
    """Leave an orphan named raylet, and return once it stands in the node table."""
    ready, ready_end = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(PR_SET_NAME, b"raylet", 0, 0, 0)
            if is_stubborn:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            entry.write_text(str(os.getpid()))
            os.close(ready)
            os.close(ready_end)
            time.sleep(600)
        os._exit(0)
    os.close(ready_end)
    os.read(ready, 1)
