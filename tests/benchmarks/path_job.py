"""The path alone, between hosts or on one: `python -m tests.benchmarks.path_job` on every host, without a cluster.

The first host has the feed, the last one the data workers, with rows that are in memory already. Where the feed is, and
its key, the first host tells on a fixed port; a cluster hands that out through Ray.
"""

import json
import os
import socket
import sys
import time
from dataclasses import asdict
from pathlib import Path

from container.bootstrap import log
from tests.benchmarks.contenders.feed import open_feed, recipe_of
from tests.benchmarks.contenders.measure import use
from tests.benchmarks.contenders.work import WORKLOADS, Work
from training.data.wire import Endpoint
from training.data.worker import serve

PORT = 7070
NUM_WORKERS = 2
DEADLINE_SECONDS = 60.0
NUM_WARM_UP_BATCHES, NUM_BATCHES = 40, 400
RESOURCES = Path("/opt/ml/input/config/resourceconfig.json")


def main() -> int:
    """One host from its start to its end."""
    resources = json.loads(RESOURCES.read_text())
    hosts = sorted(resources["hosts"], key=lambda name: int(name.rpartition("-")[2]))
    is_first, is_last = resources["current_host"] == hosts[0], resources["current_host"] == hosts[-1]
    workload = WORKLOADS["path"]
    work = Work(
        source=workload.source,
        transform=workload.transform,
        num_batches=NUM_WARM_UP_BATCHES + NUM_BATCHES,
        num_workers=NUM_WORKERS,
    )
    children = [start_worker(work, hosts[0]) for _ in range(NUM_WORKERS)] if is_last else []
    if is_first:
        receive(work, hosts[0])
    return max((os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children), default=0)


def start_worker(work: Work, first_host: str) -> int:
    """A data worker in a process of its own; returns its pid."""
    child = os.fork()
    if child == 0:
        serve(recipe_of(work), [ask_for_endpoint(first_host)], "worker")
        os._exit(0)
    return child


def ask_for_endpoint(host: str) -> Endpoint:
    """Where the feed is, as soon as the first host tells."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            with socket.create_connection((host, PORT), timeout=DEADLINE_SECONDS) as connection:
                told = json.loads(connection.makefile().read())
            return Endpoint(**{**told, "key": bytes.fromhex(told["key"])})
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def receive(work: Work, host: str) -> None:
    """Take every batch; says in events when the measured ones begin and end."""
    address = socket.gethostbyname(host)
    feed = open_feed(work, address)
    told = {**asdict(feed.endpoint), "key": feed.endpoint.key.hex()}
    with socket.create_server((address, PORT)) as listener:
        for _ in range(NUM_WORKERS):
            connection, _ = listener.accept()
            with connection:
                connection.sendall(json.dumps(told).encode())
    batches = iter((batch.images, batch.labels) for batch in feed)
    use(batches, NUM_WARM_UP_BATCHES)
    log.event("measuring")
    use(batches, NUM_BATCHES)
    log.event("measured", megabytes=NUM_BATCHES * work.new_images(64).nbytes / 1e6)
    feed.close()


if __name__ == "__main__":
    sys.exit(main())
