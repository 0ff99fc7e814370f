"""What a peer without the job's token meets: every port of some hosts, again and again, until the job has ended.

`python -m tests.cluster.port_scan <file> <host> ...` writes what each open port answered, as JSON, to the file.
"""

import contextlib
import errno
import http.client
import json
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BEGIN_SECONDS, END_SECONDS = 120.0, 300.0
"""How long it waits for the first open port, and how long it goes on at most."""
AT_ONCE = 500
PROBE_SECONDS = 2.0
JOBS = json.dumps({"entrypoint": "touch /tmp/taken-over"})
REQUESTS = (
    ("GET", "/", None),
    ("GET", "/api/version", None),
    ("GET", "/api/jobs/", None),
    ("GET", "/-/healthz", None),
    ("GET", "/api/local_raylet_healthz", None),
    ("GET", "/metrics", None),
    ("POST", "/api/jobs/", JOBS),
    ("POST", "/api/job_agent/jobs/", JOBS),
    ("POST", "/get_or_create_runtime_env", "x"),
    ("POST", "/delete_runtime_env_if_possible", "x"),
    ("POST", "/get_runtime_envs_info", "x"),
)


def open_ports(address: str) -> Iterator[int]:
    """The TCP ports that take a connection; none of a host that is silent, where others refuse at once."""
    for first in range(1, 65_536, AT_ONCE):
        with contextlib.ExitStack() as stack:
            selector = stack.enter_context(selectors.DefaultSelector())
            for port in range(first, min(first + AT_ONCE, 65_536)):
                probe = stack.enter_context(socket.socket())
                probe.setblocking(False)
                probe.connect_ex((address, port))
                selector.register(probe, selectors.EVENT_WRITE, (probe, port))
            deadline = time.monotonic() + PROBE_SECONDS
            while selector.get_map() and time.monotonic() < deadline:
                for key, _ in selector.select(0.1):
                    probe, port = key.data
                    selector.unregister(probe)
                    error = probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    if error == errno.EHOSTUNREACH:
                        return
                    if error == 0:
                        yield port
            if len(selector.get_map()) == AT_ONCE:
                return


def answers(address: str, port: int) -> list[dict[str, Any]]:
    """What it answers to each request that it answers at all."""
    found = []
    for method, path, body in REQUESTS:
        connection = http.client.HTTPConnection(address, port, timeout=PROBE_SECONDS)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read(2000).decode(errors="replace")
            found.append({"request": f"{method} {path}", "status": answer.status, "text": text})
        except (OSError, http.client.HTTPException):
            pass  # it speaks something else, and says nothing
        finally:
            connection.close()
    return found


def main(file: Path, hosts: list[str]) -> None:
    seen: dict[str, list[dict[str, Any]]] = {}
    began = time.monotonic()
    while time.monotonic() - began < (END_SECONDS if seen else BEGIN_SECONDS):
        ports = [(host, port) for host in hosts for port in open_ports(host)]
        if seen and not ports:
            break
        for host, port in ports:
            if f"{host}:{port}" not in seen:
                seen[f"{host}:{port}"] = answers(host, port)
    file.write_text(json.dumps(seen, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
