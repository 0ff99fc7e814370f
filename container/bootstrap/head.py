"""The head: start Ray, wait for every host, run the driver, tell everyone how it ended."""

import asyncio
import json
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict

from container.bootstrap import log
from container.bootstrap.control import BEAT_SECONDS, ControlServer
from container.bootstrap.driver import Driver
from container.bootstrap.errors import CLUSTER_NOT_FORMED, STALLED, STOPPED, TRAINING_FAILED, HostError
from container.bootstrap.host import HostContext
from container.bootstrap.nodes import NodeTable
from container.bootstrap.outcome import Outcome
from container.bootstrap.processes import reap
from container.bootstrap.ray_node import GCS_PORT, RayNode
from container.bootstrap.reach import STILL_WAITING_SECONDS
from container.bootstrap.tasks import abandon, in_thread, say_if_failed
from container.bootstrap.telemetry import Sample
from container.bootstrap.token import comes_from_head

POLL_SECONDS = 0.2
WATCH_SECONDS = 0.5
"""Between looks at a running job: its end is noticed at once, events may wait; the GPU host has little CPU to spare."""
STOP_SECONDS = 100.0
"""SageMaker kills 120 s after SIGTERM: 100 for the driver, the rest for telling the hosts and for ending Ray."""
STOPPED_EARLY = "stopped by SIGTERM before training started"
FAREWELL_SECONDS = 6.0
"""A worker hears the outcome within one beat and needs 2 s to end its Ray processes."""


class Head:
    """One job, seen from its head."""

    def __init__(self, context: HostContext, stop: asyncio.Event) -> None:
        self._context = context
        self._stop = stop
        self._node: RayNode | None = None
        self._driver = Driver(context)
        self._server = ControlServer(
            context.token,
            expected={host.name for host in context.cluster.workers},
            versions=context.versions,
            hands_token_over=comes_from_head(context.environ),
            on_sample=self._record,
            on_stop=stop.set,  # a host that must go takes the job with it: in order, and everywhere
        )

    async def run(self) -> Outcome:
        """The whole life of the job; always ends with every process of this host gone."""
        housekeeping = asyncio.create_task(self._keep_house(), name="housekeeping")
        housekeeping.add_done_callback(say_if_failed)
        try:
            outcome = await self._run_job()
        except Exception as error:  # noqa: BLE001 whatever it is, the other hosts have to hear of it
            outcome = Outcome.of(error)
        await self._driver.kill()
        # The workers leave first: a worker whose head's Ray is gone has nothing to end in order.
        unconfirmed = await self._server.finish(outcome, timeout_seconds=FAREWELL_SECONDS)
        if unconfirmed:
            log.event("hosts_did_not_confirm_the_end", hosts=",".join(unconfirmed))
        await abandon(housekeeping)
        if self._node is not None:
            await self._node.stop()
        return outcome

    async def _run_job(self) -> Outcome:
        deadline = asyncio.get_running_loop().time() + self._context.config.join_timeout_seconds
        own_address = self._context.own.address
        try:
            await self._server.start(own_address)
        except OSError as error:
            raise HostError(CLUSTER_NOT_FORMED, f"the control port is taken on {own_address}: {error}") from error
        self._node = RayNode(self._context.ray_settings(own_address), spared=lambda: self._driver.pids)
        await self._driver.start(f"{own_address}:{GCS_PORT}")
        ended = asyncio.create_task(self._driver.wait())
        forming = asyncio.create_task(self._form_cluster(self._node, deadline))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({ended, forming, stopping}, return_when=asyncio.FIRST_COMPLETED)
            # A driver that ends before the cluster has formed has found something wrong with the settings.
            if ended.done():
                return ended.result()
            if not forming.done():
                return Outcome(exit_code=STOPPED, reason=STOPPED_EARLY)
            forming.result()
            self._driver.set_ready()
            return await self._watch(ended, self._node)
        finally:
            await abandon(ended, forming, stopping)

    async def _form_cluster(self, node: RayNode, deadline: float) -> None:
        started = time.monotonic()
        await node.start(deadline=deadline)
        log.event("ray_started", seconds=time.monotonic() - started)
        num_hosts = await self._wait_for_hosts(deadline)
        log.event("cluster_formed", hosts=num_hosts, seconds=time.monotonic() - started)

    async def _wait_for_hosts(self, deadline: float) -> int:
        """Wait until every expected host has a live Ray node at the address that it reported; returns their number."""
        loop = asyncio.get_running_loop()
        started = said = loop.time()
        hosts, failed = self._context.cluster.hosts, self._server.failed
        table = await in_thread(NodeTable, self._context.own.address, self._context.token.ray_environment())
        while True:
            alive = await in_thread(table.alive_addresses)
            addresses = {**self._server.joined, self._context.cluster.current: self._context.own.address}
            missing = [host.name for host in hosts if addresses.get(host.name) not in alive]
            if failed and self._context.config.missing_hosts == "fail":
                name, reason = next(iter(failed.items()))
                raise HostError(CLUSTER_NOT_FORMED, f"{name} could not join: {reason}")
            if loop.time() > deadline or set(missing) <= failed.keys():
                self._check_enough(missing)
                return len(hosts) - len(missing)
            if loop.time() - said > STILL_WAITING_SECONDS:
                said = loop.time()
                log.event("waiting_for_hosts", missing=",".join(missing), seconds=loop.time() - started)
            await asyncio.sleep(POLL_SECONDS)

    def _check_enough(self, missing: Collection[str]) -> None:
        """Decide whether the job can start without the hosts that are `missing`."""
        names, config = ", ".join(missing), self._context.config
        if missing and (config.missing_hosts == "fail" or self._context.cluster.current in missing):
            raise HostError(
                CLUSTER_NOT_FORMED,
                f"{names} did not join within {config.join_timeout_seconds} s (join_timeout_seconds); "
                "see the log of that host",
            )
        if missing:
            log.event("going_on_without_hosts", missing=",".join(missing))

    async def _watch(self, ended: "asyncio.Task[Outcome]", node: RayNode) -> Outcome:
        """Wait for the driver, forwarding SIGTERM, until it ends, stalls or overstays."""
        loop = asyncio.get_running_loop()
        stop_deadline: float | None = None
        while True:
            await asyncio.wait({ended}, timeout=WATCH_SECONDS)
            if ended.done():
                return ended.result()
            self._driver.print_events()
            if self._stop.is_set() and stop_deadline is None:
                log.event("stopping", seconds_left=STOP_SECONDS)
                self._driver.ask_to_stop()
                stop_deadline = loop.time() + STOP_SECONDS
            if stop_deadline is not None and loop.time() > stop_deadline:
                reason = f"stopped by SIGTERM; training did not end within {STOP_SECONDS:.0f} s"
                return Outcome(exit_code=STOPPED, reason=reason)
            self._check_health(node)

    def _check_health(self, node: RayNode) -> None:
        limit_seconds = self._context.config.stall_timeout_seconds
        if self._driver.seconds_since_progress() > limit_seconds:
            raise HostError(
                STALLED, f"no progress for {limit_seconds} s (stall_timeout_seconds); the last events say where"
            )
        if not node.is_alive:
            raise HostError(TRAINING_FAILED, f"Ray on the head {self._context.cluster.head} died; see the log above")

    async def _keep_house(self) -> None:
        """Sample this host, reap orphans and report lost workers, every beat."""
        while True:
            self._record(self._context.cluster.current, self._context.meter.sample())
            if self._node is not None:
                self._node.print_output()
            awaited_by_ray = self._node.awaited_pids if self._node else set()
            reap(awaited={*awaited_by_ray, *self._driver.pids})
            while not self._server.lost.empty():
                log.event("host_lost", host=self._server.lost.get_nowait())
            await asyncio.sleep(BEAT_SECONDS)

    def _record(self, host: str, sample: Sample) -> None:
        line = json.dumps({"at": time.time(), "host": host, **asdict(sample)})
        # A full disk costs a sample here; where it costs the job, the training says so itself.
        with suppress(OSError), self._driver.telemetry_file.open("a") as file:
            file.write(line + "\n")
