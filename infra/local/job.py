"""One training job on this machine, from the launch of its hosts to the end of the last one."""

import contextlib
import functools
import sched
import secrets
import selectors
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from types import FrameType

from infra.local.console import Event, JobConsole, parse_event
from infra.local.faults import LINKS, SIGNALS, Fault, kill_programs
from infra.local.files import HostIdentity, hosts_of, name_table
from infra.local.host import Host
from infra.local.limits import HostUsage
from infra.local.network import Bridge
from infra.local.outcome import JobOutcome
from infra.local.plan import LocalJob, host_spec, write_host_directory
from infra.local.sandbox import Sandbox

__all__ = ["STOP_GRACE_SECONDS", "JobOutcome", "JobRun", "LocalJob", "run_job"]

STOP_GRACE_SECONDS = 120.0  # what SageMaker leaves between SIGTERM and SIGKILL
FAULT_EVENT = "fault"
"""In the events of an outcome, by the runner itself: something befell a host on purpose."""
_SAMPLE_SECONDS = 0.5


def run_job(job: LocalJob, console: JobConsole, sandbox: Sandbox) -> JobOutcome:
    """Runs a job to its end; SIGINT or SIGTERM stops it, a second one kills it at once. Raises OSError."""
    run = JobRun(job, console, sandbox)
    with _stop_on_signals(run):
        return run.run()


@contextlib.contextmanager
def _stop_on_signals(run: "JobRun") -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may have handlers
        return
    graces = iter([STOP_GRACE_SECONDS])

    def stop(number: int, _frame: FrameType | None) -> None:
        run.stop(next(graces, 0.0), f"signal {signal.Signals(number).name}")

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class JobRun:
    """A job while it runs: one loop over what its hosts print, what they tell, timers and requests to stop."""

    def __init__(self, job: LocalJob, console: JobConsole, sandbox: Sandbox) -> None:
        self._job, self._console, self._sandbox = job, console, sandbox
        self._hosts: list[Host] = []
        self._waiting: set[Host] = set()  # for their start
        self._running: set[Host] = set()
        self._ended: list[Host] = []  # in the order of their ends
        self._events: list[Event] = []
        self._num_seen: Counter[str] = Counter()
        self._token = secrets.token_hex(32)
        self._stop_reason: str | None = None
        self._stop_requests: deque[tuple[float, str]] = deque()
        self._selector = selectors.DefaultSelector()
        self._timers = sched.scheduler(time.monotonic)
        self._launched_at = 0.0
        self._bridge = Bridge()

    def stop(self, grace_seconds: float = STOP_GRACE_SECONDS, reason: str = "stopped by the caller") -> None:
        """Stops the job as SageMaker does: SIGTERM to process 1 of every host, SIGKILL after the grace.

        May be called from any thread or signal handler, and again with a shorter grace.
        """
        self._stop_requests.append((grace_seconds, reason))  # the loop looks here with every sample at the latest

    def run(self) -> JobOutcome:
        """Runs the job to its end, once. Raises OSError where the machine refuses what a host needs."""
        started_at = datetime.now(UTC)
        try:
            for identity in hosts_of(self._job.config):
                write_host_directory(self._job, identity)
                self._add_host(identity)
            self._launched_at = time.monotonic()
            self._write_name_tables()
            self._schedule()
            self._loop()
            seconds = self._seconds()
        finally:
            self._take_down()
            self._bridge.remove()
        return JobOutcome.of(
            self._job, self._ended, self._events, self._stop_reason, started_at, seconds, self._sandbox.limits
        )

    def _add_host(self, identity: HostIdentity) -> Host:
        shares = self._job.shares_of(identity)
        limits = self._sandbox.limits.add_host(identity.name, tuple(shares.values()))
        spec = host_spec(self._job, identity, limits, self._token)
        host = Host(identity, spec, limits, self._job.log_file(identity.name))
        self._hosts.append(host)
        self._waiting.add(host)
        return host

    def _schedule(self) -> None:
        for host in self._hosts:
            delay = self._job.start_delay_seconds.get(host.identity.name, 0.0)
            self._after(delay, functools.partial(self._start, host))
        for delay in set(self._job.name_delay_seconds.values()):
            self._after(delay, self._write_name_tables)
        self._after(_SAMPLE_SECONDS, self._sample)
        limit = self._job.max_runtime_seconds
        self._after(limit, lambda: self.stop(STOP_GRACE_SECONDS, f"max_runtime_seconds={limit:g} is over"))

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        self._timers.enter(seconds, 0, action)

    def _loop(self) -> None:
        while self._waiting or self._running:
            while self._stop_requests:
                self._begin_stop(*self._stop_requests.popleft())
            wait_seconds = self._timers.run(blocking=False)
            for key, _ in self._selector.select(wait_seconds):
                key.data()

    def _start(self, host: Host) -> None:
        if host not in self._waiting:
            return  # the job was stopped before
        self._waiting.remove(host)
        self._running.add(host)
        cap = self._job.nic_bits_per_second.get(host.identity.group)
        for stream in host.start(functools.partial(self._bridge.plug_in, host.identity.name, cap)):
            self._selector.register(stream, selectors.EVENT_READ, functools.partial(self._read, host, stream))

    def _read(self, host: Host, stream: int) -> None:
        for line in host.read(stream):
            self._show(host, line)
        if stream not in host.open_streams:
            self._selector.unregister(stream)
        if not host.open_streams:
            host.close()
            self._running.remove(host)
            self._ended.append(host)

    def _show(self, host: Host, line: str) -> None:
        self._console.line(host.identity.label, line)
        event = parse_event(host.identity.name, line, self._seconds())
        if event is None:
            return
        self._events.append(replace(event, usage=self._usage()))
        self._console.event(event)
        self._num_seen[event.name] += 1
        for fault in self._job.faults:
            if (fault.at, fault.count) == (event.name, self._num_seen[event.name]):
                self._after(fault.delay_seconds, functools.partial(self._befall, fault))
        for other in self._waiting | self._running:
            shares = self._job.shares_of(other.identity)
            if event.name in shares:
                other.limits.set_cpu_share(shares[event.name])

    def _befall(self, fault: Fault) -> None:
        """Lets a fault happen, where its host is in a state for it."""
        action, _, program = fault.action.partition(":")
        running = next((host for host in self._running if host.identity.name == fault.host), None)
        ended = next((host for host in self._ended if host.identity.name == fault.host), None)
        host = ended if action == "restart" else running
        if host is None or (action == "restart" and (running or self._stop_reason is not None)):
            return
        if action == "restart":
            self._start(self._add_host(host.identity))
        elif action in LINKS:
            self._bridge.set_link(fault.host, is_up=LINKS[action])
        elif action in SIGNALS:
            host.send_signal(SIGNALS[action])
        elif host.process_one is not None:
            kill_programs(host.process_one, program)
        self._events.append(Event(fault.host, FAULT_EVENT, {"action": fault.action}, self._seconds()))

    def _usage(self) -> dict[str, HostUsage]:
        """What each running host has used by now; a few small files, read for every event."""
        traffic = self._bridge.traffic()
        return {
            host.identity.name: HostUsage(
                cpu_seconds=host.limits.cpu_seconds(),
                memory_bytes=host.limits.memory_bytes(),
                bytes_sent=traffic[host.identity.name].sent,
                bytes_received=traffic[host.identity.name].received,
            )
            for host in self._running
            if host.identity.name in traffic
        }

    def _begin_stop(self, grace_seconds: float, reason: str) -> None:
        self._stop_reason = self._stop_reason or reason
        self._waiting.clear()
        for host in self._running:
            host.send_signal(signal.SIGTERM)
        self._after(grace_seconds, self._kill)

    def _kill(self) -> None:
        for host in self._running:
            host.send_signal(signal.SIGKILL)

    def _sample(self) -> None:
        for host in self._running:
            host.sample_memory()
        self._after(_SAMPLE_SECONDS, self._sample)

    def _seconds(self) -> float:
        return time.monotonic() - self._launched_at

    def _write_name_tables(self) -> None:
        delays, seconds = self._job.name_delay_seconds, self._seconds()
        for host in self._hosts:
            known = [
                other.identity
                for other in self._hosts
                if other is host or delays.get(other.identity.name, 0.0) <= seconds
            ]
            self._job.name_table(host.identity.name).write_text(name_table(known))

    def _take_down(self) -> None:
        """Leaves nothing behind, also when the loop ended by an error."""
        self._kill()
        for host in self._hosts:
            host.close()
        self._selector.close()
        self._console.close()
