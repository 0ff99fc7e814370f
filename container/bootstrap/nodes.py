"""The head's view of the cluster: which addresses have a live Ray node.

Counting resource keys or asking `ray status` has let jobs start with a host missing; this asks the control store for
its node table and compares addresses. The only place of the bootstrap that imports Ray.
"""

import os
from collections.abc import Mapping
from typing import Any

from container.bootstrap.ray_node import GCS_PORT

RPC_TIMEOUT_SECONDS = 5.0


class NodeTable:
    """The control store's node table, read through Ray's own client."""

    def __init__(self, head_address: str, environment: Mapping[str, str]) -> None:
        os.environ.update(environment)  # the token; the client reads it when it is made
        self._address = f"{head_address}:{GCS_PORT}"
        self._client: Any = None

    def alive_addresses(self) -> set[str]:
        """Addresses of the nodes that are alive now; empty while the control store does not answer."""
        from ray._raylet import GcsClient
        from ray.core.generated.gcs_pb2 import GcsNodeInfo
        from ray.exceptions import RayError

        try:
            self._client = self._client or GcsClient(address=self._address)
            nodes = self._client.get_all_node_info(timeout=RPC_TIMEOUT_SECONDS).values()
        except (RayError, OSError, RuntimeError, ValueError):
            # Ray turns a failed call into one of these by its status, and all mean the same here: nobody answered.
            return set()
        return {node.node_manager_address for node in nodes if node.state == GcsNodeInfo.ALIVE}
