"""What a host may use of the machine and what it used; here by CPU affinity, which every user may set."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class HostUsage:
    """What a host had used up to some moment."""

    cpu_seconds: float | None
    """None where it is not accounted."""
    memory_bytes: int | None
    """What it held then, anonymous and shared; None where it is not accounted."""
    bytes_sent: int
    bytes_received: int


class HostLimits(ABC):
    """What one host may use of the machine, and what it used."""

    joins: tuple[Path, ...] = ()
    """Files to which process 1 writes "0" to come under the limits, with everything it starts."""
    views: tuple[tuple[Path, Path], ...] = ()
    """(own group, mount point) pairs: bound over each other, a host sees its group as the root, as in a container."""
    cpus: frozenset[int] = frozenset()
    """The CPUs to run on; empty means any."""

    @abstractmethod
    def set_cpu_share(self, cores: float | None) -> None:
        """Limits the host to this many cores, while it runs too; None means no limit."""

    @abstractmethod
    def cpu_seconds(self) -> float | None:
        """CPU time of the host until now; None where it is not accounted."""

    @abstractmethod
    def memory_bytes(self) -> int | None:
        """Anonymous and shared memory of the host at this moment; None where it is not accounted."""

    @abstractmethod
    def remove(self) -> None:
        """Takes the limits away after the last process of the host."""


class Limits(ABC):
    """Hands out limits to the hosts of one sandbox."""

    description: str
    """For the report of a run: what kind of limits these are and what they cannot do."""

    @abstractmethod
    def add_host(self, name: str, shares: Sequence[float | None]) -> HostLimits:
        """The limits of a new host that may use so many cores, one share after the other; the first one binds now.

        None means no limit.
        """

    @abstractmethod
    def close(self) -> None:
        """Takes everything away that this object left outside the sandbox."""


class CpuPlaces:
    """Deals out a machine's CPUs so that hosts overlap little and every CPU is promised about as often."""

    def __init__(self, cpus: Iterable[int]) -> None:
        self._promised = dict.fromkeys(cpus, 0.0)

    def take(self, shares: Sequence[float | None]) -> frozenset[int]:
        """The CPUs of a host with these shares, one after the other; None means all.

        As many as the largest share, rounded up, so that a host with less than one core has one CPU. What it promises
        is the last share: the one that lasts.
        """
        num_cpus = len(self._promised)
        wanted = [num_cpus if cores is None else cores for cores in shares]
        num_taken = min(num_cpus, max(1, math.ceil(max(wanted))))
        taken = sorted(self._promised, key=self._promised.__getitem__)[:num_taken]
        for cpu in taken:
            self._promised[cpu] += wanted[-1] / num_taken
        return frozenset(taken)


class CpuSets(Limits):
    """Limits by CPU affinity alone."""

    def __init__(self, cpus: Iterable[int], reason: str) -> None:
        self._places = CpuPlaces(cpus)
        self.description = (
            f"CPU affinity only, since control groups are not available ({reason}): "
            "hosts may share a CPU and shares are rounded up to whole cores"
        )

    def add_host(self, name: str, shares: Sequence[float | None]) -> HostLimits:  # noqa: ARG002 - affinity needs no name
        return _CpuSet(self._places.take(shares))

    def close(self) -> None:
        pass  # affinity ends with the processes


class _CpuSet(HostLimits):
    def __init__(self, cpus: frozenset[int]) -> None:
        self.cpus = cpus

    def set_cpu_share(self, cores: float | None) -> None:
        pass  # the set is fixed when the host starts

    def cpu_seconds(self) -> float | None:
        return None

    def memory_bytes(self) -> int | None:
        return None

    def remove(self) -> None:
        pass
