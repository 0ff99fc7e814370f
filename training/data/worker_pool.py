"""One data worker on every CPU of the cluster: Ray says where, and starts a new one where one is lost."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import ray

from training.data import wire

if TYPE_CHECKING:
    from training.data.worker import Recipe

HOST_VARIABLE = "COUNTERPOISE_HOST"
NICENESS = 10
"""Preprocessing gives way to Ray's own processes and to the trainer: starved of CPU, they would idle every host."""
_TICK_SECONDS = 2.0
"""How soon a host that has joined, or joined again, is put to work."""


@ray.remote(num_cpus=1)
def warm_up() -> None:
    """Pay a data worker's imports before there is work for it; the process is used again."""
    import training.data.worker  # noqa: F401

    _give_way()  # after the imports: a worker that is starved of CPU before it can work is missing for a long time


@ray.remote(num_cpus=1, max_retries=-1)  # the feed counts which rows cost a worker its life, and gives up
def serve_feeds(recipe: Recipe, endpoints: Sequence[wire.Endpoint]) -> None:
    """Be a data worker until the last of the feeds has ended."""
    _give_way()
    from training.data.worker import serve

    serve(recipe, endpoints, os.environ.get(HOST_VARIABLE, ""))


def _give_way() -> None:
    if os.nice(0) < NICENESS:
        os.nice(NICENESS - os.nice(0))


class WorkerPool:
    """Keeps one data worker on every CPU that the cluster has, or that the hosts of some groups have.

    Workers end by themselves when every feed has ended.

    Args:
        recipe: reference to the Recipe in the object store.
        endpoints: of the feeds that each of the workers serves.
        groups: names of the groups whose hosts prepare; None takes all.
        on_failure: told what a worker ended with, where that was no lost connection; called from another thread.
    """

    def __init__(
        self,
        recipe: ray.ObjectRef[Recipe],
        endpoints: Sequence[wire.Endpoint],
        *,
        groups: Collection[str] | None,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._arguments = (recipe, list(endpoints))
        self._groups = groups
        self._on_failure = on_failure
        selector = {} if groups is None else {"label_selector": {"group": f"in({','.join(groups)})"}}
        self._serve: Any = serve_feeds.options(**selector)
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="worker pool", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Start no more workers."""
        self._is_closed.set()
        self._thread.join()

    def _keep(self) -> None:
        refs: list[Any] = []
        try:
            while not self._is_closed.is_set():
                missing = num_cpus(_nodes(), self._groups) - len(refs)
                refs += [self._serve.remote(*self._arguments) for _ in range(missing)]
                ended, refs = ray.wait(refs, timeout=0) if refs else ([], [])
                ray.get(ended)
                self._is_closed.wait(_TICK_SECONDS)
        except Exception as error:  # noqa: BLE001 whatever it is, the trainer must hear of it
            self._on_failure(error)


def _nodes() -> Sequence[dict[str, Any]]:
    nodes: Sequence[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return nodes


def num_cpus(nodes: Sequence[dict[str, Any]], groups: Collection[str] | None) -> int:
    """CPUs for data workers on the hosts of `groups`, or on all, of what `ray.nodes()` returns."""
    return int(
        sum(
            node["Resources"].get("CPU", 0)
            for node in nodes
            if node["Alive"] and (groups is None or node["Labels"].get("group") in groups)
        )
    )
