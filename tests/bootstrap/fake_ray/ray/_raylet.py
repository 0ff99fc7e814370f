"""The client of the node table, which is a folder with one file an address that holds the pid of its raylet."""

import os
from pathlib import Path

from ray.core.generated.gcs_pb2 import GcsNodeInfo
from ray.exceptions import RayError

METRICS_AGENT_PORT_NAME = METRICS_EXPORT_PORT_NAME = DASHBOARD_AGENT_LISTEN_PORT_NAME = ""


class GcsClient:
    """Reads the table of the head at `address`."""

    def __init__(self, address: str) -> None:
        self._head = address.rpartition(":")[0]

    def get_all_node_info(self, timeout: float) -> dict[str, GcsNodeInfo]:
        """The nodes by address; fails without a head, as the true one does."""
        nodes = {file.name: _node(file) for file in Path(os.environ["FAKE_RAY_NODES"]).iterdir()}
        if self._head not in nodes:
            raise RayError(f"no control store answered within {timeout} s")
        return nodes


def _node(file: Path) -> GcsNodeInfo:
    try:
        state = Path("/proc", file.read_text(), "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        state = "X"
    return GcsNodeInfo(file.name, GcsNodeInfo.DEAD if state in "XZ" else GcsNodeInfo.ALIVE)
