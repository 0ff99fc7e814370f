"""A data worker on every CPU: also of hosts that join later, and again where one has ended."""

import os
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from training.data import worker_pool
from training.data.worker_pool import WorkerPool, num_cpus

DEADLINE_SECONDS = 60.0


def node(cpus: float, group: str = "cpu", *, alive: bool = True) -> dict[str, Any]:
    return {"Alive": alive, "Resources": {"CPU": cpus} if cpus else {}, "Labels": {"group": group}}


class FakeRay:
    """The calls that the pool makes; tasks run until the test ends them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = [node(2), node(1, "gpu")]
        self.running: list[object] = []
        self.ended: dict[object, Exception | None] = {}
        self.options: list[dict[str, Any]] = []
        self.arguments: list[tuple[Any, ...]] = []
        self.asked = threading.Condition()
        monkeypatch.setattr(worker_pool, "ray", self)
        monkeypatch.setattr(worker_pool, "serve_feeds", SimpleNamespace(options=self._with_options))
        monkeypatch.setattr(worker_pool, "_TICK_SECONDS", 0.001)

    def _with_options(self, **options: Any) -> Any:
        self.options.append(options)
        return SimpleNamespace(remote=self._submit)

    def _submit(self, *arguments: Any) -> object:
        with self.asked:
            self.running.append(object())
            self.arguments.append(arguments)
            self.asked.notify_all()
            return self.running[-1]

    def nodes(self) -> list[dict[str, Any]]:
        return self.cluster

    def wait(self, refs: list[object], timeout: float) -> tuple[list[object], list[object]]:
        assert timeout == 0
        ended = [ref for ref in refs if ref in self.ended]
        return ended[:1], [ref for ref in refs if ref not in ended[:1]]

    def get(self, refs: list[object]) -> None:
        for ref in refs:
            if (error := self.ended[ref]) is not None:
                raise error

    def wait_for(self, count: int) -> None:
        with self.asked:
            assert self.asked.wait_for(lambda: len(self.running) >= count, DEADLINE_SECONDS)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    return FakeRay(monkeypatch)


def make_pool(failures: list[BaseException] | None = None, groups: tuple[str, ...] | None = None) -> WorkerPool:
    told = [] if failures is None else failures
    return WorkerPool(cast(Any, "recipe"), cast(Any, ["feed"]), groups=groups, on_failure=told.append)


def test_every_cpu_gets_a_worker_also_those_that_come_later(fake: FakeRay) -> None:
    pool = make_pool()
    fake.wait_for(3)
    fake.cluster = [*fake.cluster, node(4)]
    fake.wait_for(7)
    pool.close()
    assert len(fake.running) == 7
    assert fake.arguments == [("recipe", ["feed"])] * 7


def test_a_worker_that_has_ended_is_replaced(fake: FakeRay) -> None:
    pool = make_pool()
    fake.wait_for(3)
    fake.ended[fake.running[1]] = None
    fake.wait_for(4)
    pool.close()
    assert len(fake.running) == 4


def test_what_a_worker_ends_with_is_told_and_no_more_are_started(fake: FakeRay) -> None:
    failures: list[BaseException] = []
    pool = make_pool(failures)
    fake.wait_for(3)
    error = ValueError("cannot be imported")
    fake.ended[fake.running[0]] = error
    pool._thread.join(DEADLINE_SECONDS)
    pool.close()
    assert failures == [error]
    assert len(fake.running) == 3


def test_a_pool_of_some_groups_uses_their_hosts_only(fake: FakeRay) -> None:
    pool = make_pool(groups=("cpu", "spare"))
    fake.wait_for(2)
    pool.close()
    assert fake.options == [{"label_selector": {"group": "in(cpu,spare)"}}]
    assert len(fake.running) == 2


def test_cpus_are_those_of_hosts_that_are_alive() -> None:
    nodes = [node(4, "gpu"), node(16), node(16, alive=False), node(0)]
    assert num_cpus(nodes, None) == 20
    assert num_cpus(nodes, ("cpu",)) == 16
    assert num_cpus(nodes, ("other",)) == 0


@pytest.mark.parametrize(("niceness", "steps"), [(0, [10]), (4, [6]), (10, []), (19, [])])
def test_preprocessing_gives_way(monkeypatch: pytest.MonkeyPatch, niceness: int, steps: list[int]) -> None:
    nicer: list[int] = []
    monkeypatch.setattr(os, "nice", lambda step: nicer.append(step) if step else niceness)
    run: Any = worker_pool.warm_up
    run._function()
    assert nicer == steps
