"""A worker: find the head, join its cluster, keep its own Ray alive, leave when the head says how the job ended."""

import asyncio
from dataclasses import asdict
from typing import Any

from container.bootstrap import log
from container.bootstrap.control import BEAT_SECONDS, ControlClient
from container.bootstrap.errors import STOPPED
from container.bootstrap.head import STOP_SECONDS, STOPPED_EARLY
from container.bootstrap.host import HostContext
from container.bootstrap.outcome import Outcome
from container.bootstrap.processes import reap
from container.bootstrap.ray_node import RayNode
from container.bootstrap.reach import reach
from container.bootstrap.tasks import abandon

RECONNECT_SECONDS = 8.0
"""After silence (20 s) or a broken connection: a head that is not back by then is gone. From the end of a head to
that of the last host 15 s are allowed, where a host is cut off 60."""
RAY_RESTARTS = 3


class Worker:
    """One host's part in a job that another host leads."""

    def __init__(self, context: HostContext, stop: asyncio.Event) -> None:
        self._context = context
        self._stop = stop
        self._client = ControlClient(context.token, host=context.cluster.current, versions=context.versions)
        self._is_connected = False
        self._node: RayNode | None = None
        self._starting: asyncio.Task[str] | None = None
        self._status: dict[str, str] = {}
        """What the head has to know: `joined` and this host's address, or `failed` and the reason."""
        self._restarts_left = RAY_RESTARTS

    async def run(self) -> Outcome:
        """Join, serve, leave; always ends with every process of this host gone."""
        serving = asyncio.create_task(self._serve())
        overdue = asyncio.create_task(self._stop_in_time())
        failed = ""
        try:
            await asyncio.wait({serving, overdue}, return_when=asyncio.FIRST_COMPLETED)
            outcome = (serving if serving.done() else overdue).result()
        except Exception as error:  # noqa: BLE001 whatever it is, the head has to hear of it
            outcome = Outcome.of(error)
            failed = outcome.reason
        await abandon(serving, overdue, self._starting)
        if self._node is not None:
            await self._node.stop()
        await self._client.leave(failed=failed)
        return outcome

    async def _serve(self) -> Outcome:
        deadline = asyncio.get_running_loop().time() + self._context.config.join_timeout_seconds
        head_address = await self._connect(deadline, describe="joining")
        self._is_connected = True
        self._starting = asyncio.create_task(self._start_node(head_address, deadline))
        while True:
            self._mind_node(head_address)
            stopping = {"stopping": True} if self._stop.is_set() else {}
            outcome = await self._exchange({"sample": asdict(self._context.meter.sample()), **self._status, **stopping})
            if outcome is not None:
                return outcome
            if self._node is not None:
                self._node.print_output()
                reap(awaited=self._node.awaited_pids)
            await asyncio.sleep(BEAT_SECONDS)

    async def _stop_in_time(self) -> Outcome:
        """After SIGTERM the head decides how the job ends: it got the signal too, or hears of it now."""
        await self._stop.wait()
        if not self._is_connected:
            return Outcome(exit_code=STOPPED, reason=STOPPED_EARLY)
        await asyncio.sleep(STOP_SECONDS)
        reason = f"stopped by SIGTERM; the head gave no outcome within {STOP_SECONDS:.0f} s"
        return Outcome(exit_code=STOPPED, reason=reason)

    async def _start_node(self, head_address: str, deadline: float) -> str:
        """Start Ray on this host; gives the reason where that is impossible, else an empty text."""
        try:
            self._node = RayNode(self._context.ray_settings(head_address))
            await self._node.start(deadline=deadline)
        except Exception as error:  # noqa: BLE001 whatever it is, the head has to hear of it
            return Outcome.of(error).reason
        return ""

    def _mind_node(self, head_address: str) -> None:
        """Note how a start of Ray ended, and start it again where it has died.

        A host that cannot join stays: the head says what that means for the job, and every host ends alike.
        """
        if self._starting is not None and self._starting.done():
            reason, self._starting = self._starting.result(), None
            if reason:
                self._status = {"failed": reason}
                log.event("join_failed", reason=reason)
            else:
                self._status = {"joined": self._context.own.address}
                log.event("joined", address=self._context.own.address)
        if "joined" in self._status and not (self._node and self._node.is_alive):
            log.event("ray_died", restarts_left=self._restarts_left)
            if self._restarts_left == 0:
                self._status = {"failed": f"Ray died more than {RAY_RESTARTS} times on this host"}
                return
            self._restarts_left -= 1
            self._status = {}
            self._starting = asyncio.create_task(self._restart_node(head_address))

    async def _restart_node(self, head_address: str) -> str:
        if self._node is not None:
            await self._node.stop()
        timeout_seconds = self._context.config.join_timeout_seconds
        return await self._start_node(head_address, asyncio.get_running_loop().time() + timeout_seconds)

    async def _exchange(self, fields: dict[str, Any]) -> Outcome | None:
        """One beat; a broken channel is opened again in time, or the head counts as lost."""
        try:
            return await self._client.exchange(**fields)
        except OSError as error:
            log.event("head_silent", reason=str(error) or type(error).__name__)
        deadline = asyncio.get_running_loop().time() + RECONNECT_SECONDS
        await self._connect(deadline, describe="reconnecting")
        return None

    async def _connect(self, deadline: float, *, describe: str) -> str:
        """Open the control channel, trying until `deadline`; gives the head's address."""

        async def attempt(address: str) -> str:
            await self._client.connect(address)
            return address

        return await reach(self._context.cluster.head, attempt, deadline=deadline, describe=describe)
