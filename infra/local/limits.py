"""What a host may use of the machine and what it used; here by CPU affinity, which every user may set."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path


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
    def add_host(self, name: str, cores: float | None) -> HostLimits:
        """The limits of a new host that may use this many cores; None means no limit."""

    @abstractmethod
    def close(self) -> None:
        """Takes everything away that this object left outside the sandbox."""


class CpuTurns:
    """Deals out a machine's CPUs in turn, so that hosts overlap little."""

    def __init__(self, cpus: Sequence[int]) -> None:
        self._cpus = cpus
        self._next = 0

    def take(self, cores: float | None) -> frozenset[int]:
        """As many CPUs as the share, rounded up: a host with less than one core has one CPU; None means all."""
        num_cpus = len(self._cpus)
        num_taken = num_cpus if cores is None else min(num_cpus, max(1, math.ceil(cores)))
        taken = [self._cpus[(self._next + step) % num_cpus] for step in range(num_taken)]
        self._next = (self._next + num_taken) % num_cpus
        return frozenset(taken)


class CpuSets(Limits):
    """Limits by CPU affinity alone."""

    def __init__(self, cpus: Sequence[int], reason: str) -> None:
        self._turns = CpuTurns(cpus)
        self.description = (
            f"CPU affinity only, since control groups are not available ({reason}): "
            "hosts may share a CPU and shares are rounded up to whole cores"
        )

    def add_host(self, name: str, cores: float | None) -> HostLimits:  # noqa: ARG002 - affinity needs no name
        return _CpuSet(self._turns.take(cores))

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
