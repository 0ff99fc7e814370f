"""One host as a process of its own: the true process 1 with a stand-in for Ray and for the training driver.

Started as `python -m tests.bootstrap.host_process ORDER`, where ORDER is JSON; `tests.bootstrap.job` writes it.
"""

import importlib
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from container.bootstrap import driver, host
from container.bootstrap.addresses import OwnAddress
from container.bootstrap.environment import JobPaths
from container.bootstrap.run import run_host


def main() -> int:
    """Take part in a job on a loopback address, which the true choice would refuse."""
    order: dict[str, Any] = json.loads(sys.argv[1])
    names: dict[str, str] = order["names"]
    true_command = driver.Driver.command

    def resolve(name: str) -> str:
        if name not in names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return names[name]

    def command(self: driver.Driver) -> list[str]:
        return [sys.executable, "-S", "-m", "tests.bootstrap.fake_driver", order["driver"], *true_command(self)[2:]]

    def choose_own_address(*_: object) -> OwnAddress:
        return OwnAddress(address=order["address"], interface="lo")

    replaced: list[tuple[object, str, object]] = [
        (socket, "gethostbyname", resolve),
        (host, "choose_own_address", choose_own_address),
        (driver.Driver, "command", command),
    ]
    if order["broken"]:
        replaced.append((driver.Driver, "start", broken))
    for place, value in order["constants"].items():
        module, _, name = place.partition(".")
        replaced.append((importlib.import_module(f"container.bootstrap.{module}"), name, value))
    for owner, name, value in replaced:
        getattr(owner, name)  # a test that replaces nothing tests nothing
        setattr(owner, name, value)
    return run_host(JobPaths(base=Path(order["base"])), os.environ)


async def broken(*_: object) -> None:
    """A defect of our own, in the middle of the head's work."""
    raise RuntimeError("two lines\nof defect")


if __name__ == "__main__":
    sys.exit(main())
