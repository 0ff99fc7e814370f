"""What is known of a local job after its end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeVar

from infra.local.console import Event
from infra.local.files import head_of, read_failure
from infra.local.host import Host
from infra.local.limits import Limits
from infra.local.plan import LocalJob

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """The end of a job, in the words of SageMaker where it has them."""

    status: Literal["Completed", "Failed", "Stopped"]
    """Completed only if every host ended with 0; Stopped if it ended after a stop, whatever its codes."""
    stop_reason: str | None
    """Why it was stopped: by a user, a signal or its longest allowed time."""
    failure: str | None
    """What a failed host wrote to its failure file, at most 1,024 characters; the head's before any other's."""
    exit_codes: Mapping[str, int]
    """By host in the order of their ends, 128 + n after signal n; without hosts that a stop kept from starting."""
    head: str
    """Name of the host whose files are the result."""
    model_dir: Path
    output_dir: Path
    started_at: datetime
    ended_at: datetime
    seconds: float
    """From the launch of the first host to the end of the last."""
    events: tuple[Event, ...]
    last_step_to_end_seconds: float | None
    """From the event `last_step` to the end of the last host; None without that event."""
    cpu_seconds: Mapping[str, float]
    """CPU time by host; without control groups only that of process 1 and of all it waited for."""
    bytes_received: Mapping[str, int]
    """What came over the network by host, with all headers; a killed host may be missing."""
    bytes_sent: Mapping[str, int]
    """The same for what it sent."""
    peak_memory_bytes: Mapping[str, int]
    """Largest sampled sum of anonymous and shared memory by host; empty without control groups."""
    left_processes: Mapping[str, int]
    """Processes that were still alive when process 1 of their host began to exit; a killed host may be missing."""
    limits: str
    """How CPU shares were enforced."""

    @classmethod
    def of(
        cls,
        job: LocalJob,
        ended: Sequence[Host],
        events: Sequence[Event],
        stop_reason: str | None,
        started_at: datetime,
        seconds: float,
        limits: Limits,
    ) -> "JobOutcome":
        """The outcome of a job whose hosts, given in the order of their ends, are gone; `seconds` after its launch."""
        head = head_of(job.config).name
        exit_codes = {host.identity.name: host.exit_code or 0 for host in ended}
        last_step = next((event for event in reversed(events) if event.name == "last_step"), None)
        return cls(
            status=_status(exit_codes, stop_reason),
            stop_reason=stop_reason,
            failure=_failure(job, exit_codes, head),
            exit_codes=exit_codes,
            head=head,
            model_dir=job.ml_dir(head) / "model",
            output_dir=job.ml_dir(head) / "output",
            started_at=started_at,
            ended_at=datetime.now(UTC),
            seconds=seconds,
            events=tuple(events),
            last_step_to_end_seconds=None if last_step is None else seconds - last_step.seconds_since_launch,
            cpu_seconds=_known({host.identity.name: host.cpu_seconds for host in ended}),
            bytes_received=_known({host.identity.name: host.bytes_received for host in ended}),
            bytes_sent=_known({host.identity.name: host.bytes_sent for host in ended}),
            peak_memory_bytes=_known({host.identity.name: host.peak_memory_bytes for host in ended}),
            left_processes=_known({host.identity.name: host.left_processes for host in ended}),
            limits=limits.description,
        )

    @property
    def reason(self) -> str:
        """How the job ended, and why, in one line."""
        # After a stop, what the hosts themselves say is no more than that they were stopped.
        text = self.stop_reason or self.failure or "no host reported a failure"
        return f"{self.status.lower()}: {text.strip().partition(chr(10))[0]}"

    def seconds_to(self, event_name: str) -> float | None:
        """From launch to the first event of that name on any host; None if there was none."""
        return next((event.seconds_since_launch for event in self.events if event.name == event_name), None)


def _known(values: Mapping[str, T | None]) -> dict[str, T]:
    return {name: value for name, value in values.items() if value is not None}


def _status(exit_codes: Mapping[str, int], stop_reason: str | None) -> Literal["Completed", "Failed", "Stopped"]:
    if stop_reason is not None:
        return "Stopped"
    return "Failed" if any(exit_codes.values()) else "Completed"


def _failure(job: LocalJob, exit_codes: Mapping[str, int], head: str) -> str | None:
    """The text of the head if it failed, else of the host that failed first."""
    failed = sorted((name for name, code in exit_codes.items() if code != 0), key=lambda name: name != head)
    texts = filter(None, (read_failure(job.ml_dir(name)) for name in failed))
    without_text = (
        f"{name} ended with exit code {exit_codes[name]} and wrote no failure file; its log is {job.log_file(name)}"
        for name in failed
    )
    return next(texts, None) or next(without_text, None)
