"""`ray start` as far as process 1 can see it.

The environment says how it behaves: FAKE_RAY is a list of words by commas, one for each start on this host, the last
one for all further starts: `ok`, `fail`, `hang`, or `stubborn` for a daemon that ignores SIGTERM.
"""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

PR_SET_NAME = 15


def main() -> int:
    """Start, fail or hang, as the environment says."""
    nodes = Path(os.environ["FAKE_RAY_NODES"])
    address = next(word.partition("=")[2] for word in sys.argv if word.startswith("--node-ip-address="))
    starts = nodes.parent / f"starts-{address}"
    with starts.open("a") as file:
        file.write(f"{os.getpid()} {' '.join(sys.argv[1:])}\n")
    behaviours = os.environ.get("FAKE_RAY", "ok").split(",")
    behaviour = behaviours[min(len(starts.read_text().splitlines()), len(behaviours)) - 1]
    if behaviour == "fail":
        print("some chatter\nRuntimeError: the raylet did not like it\nmore chatter")
        return 1
    if behaviour == "hang":
        time.sleep(600)
    _daemon(nodes / address, is_stubborn=behaviour == "stubborn")
    return 0


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


if __name__ == "__main__":
    sys.exit(main())
