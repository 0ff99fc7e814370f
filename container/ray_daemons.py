"""Starts Ray's daemons on this host and ends: `python -m container.ray_daemons '<JSON>'`.

What `ray start` does, without what nobody of a training job asks for: the dashboard, its agent (which takes jobs over
HTTP from whoever reaches it) and the server of Ray Client, each a Python process with imports of seconds, and the
imports of Ray's command line. Nor does it give up after 30 s, which a host with a share of a CPU may need: whoever
starts it says how long it may take.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from ray import _raylet
from ray._private import ray_constants, services
from ray._private.node import Node
from ray._private.parameter import RayParams
from ray._private.resource_isolation_config import ResourceIsolationConfig

from container.bootstrap.ray_node import LOGS_AT

RUNTIME_ENV_AGENT_PORT = 6377
"""Known beforehand, so that the raylet does not wait for it; outside the ports that the kernel gives away."""
NO_PORT = -1
AGENT_WAITS = 'until [ -e "$0" ]; do sleep 0.2; done; exec "$@"'
"""The agent that prepares environments of tasks is needed by the first task, the raylet by the cluster."""
POLL_SECONDS = 0.2
_AGENT_PORTS = (
    _raylet.METRICS_AGENT_PORT_NAME,
    _raylet.METRICS_EXPORT_PORT_NAME,
    _raylet.DASHBOARD_AGENT_LISTEN_PORT_NAME,
)
_ray_python_command = services._build_python_executable_command_memory_profileable


class LeanNode(Node):
    """A node of Ray without the dashboard and its agent."""

    def start_api_server(self, **_options: Any) -> None:
        """No dashboard."""

    def start_raylet(self, *arguments: Any, **options: Any) -> None:
        """Start the raylet and wait, without an end of its own, until the control store knows it.

        Raises:
            RuntimeError: the raylet has ended.
        """
        # It would wait for these ports, which an agent writes. Nobody listens there.
        for name in _AGENT_PORTS:
            _raylet.persist_port(self._session_dir, self._node_id, name, NO_PORT)
        super().start_raylet(*arguments, **options)
        raylet = self.all_processes[ray_constants.PROCESS_TYPE_RAYLET][0].process
        while not self._is_known():
            if raylet.poll() is not None:
                raise RuntimeError(f"the raylet ended with {raylet.returncode}; its log is in {self._logs_dir}")
            time.sleep(POLL_SECONDS)
        Path(_known_file(self._session_dir)).touch()

    def _is_known(self) -> bool:
        try:
            services.get_node(self.gcs_address, self._node_id)  # type: ignore[no-untyped-call]
        except RuntimeError:
            return False
        return True


def python_command(component: str, session_dir: str, unbuffered: bool = True) -> list[str]:
    """How a Python daemon of this host is started."""
    if component == ray_constants.PROCESS_TYPE_DASHBOARD_AGENT:
        return ["sh", "-c", "exec sleep infinity"]  # its end would end the raylet; words that follow are sh's arguments
    command: list[str] = _ray_python_command(component, session_dir, unbuffered)
    if component == ray_constants.PROCESS_TYPE_RUNTIME_ENV_AGENT:
        return ["sh", "-c", AGENT_WAITS, _known_file(session_dir), *command]
    return command


def _known_file(session_dir: str) -> str:
    return f"{session_dir}/raylet_is_known"


def start(*, is_head: bool, **params: Any) -> str:
    """Start the daemons, as a head or for the head at `gcs_address`; returns the folder of their logs.

    `params` are those of RayParams.
    """
    services._build_python_executable_command_memory_profileable = python_command
    node = LeanNode(
        RayParams(
            runtime_env_agent_port=RUNTIME_ENV_AGENT_PORT,
            include_dashboard=False,
            include_log_monitor=False,  # type: ignore[arg-type]  # a wrong annotation
            no_monitor=True,
            resource_isolation_config=ResourceIsolationConfig(enable_resource_isolation=False),
            **params,
        ),
        head=is_head,
        shutdown_at_exit=False,
        spawn_reaper=False,
    )
    return str(node.get_logs_dir_path())  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    print(f"{LOGS_AT}{start(**json.loads(sys.argv[1]))}", flush=True)
