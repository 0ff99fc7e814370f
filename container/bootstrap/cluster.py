"""Who is in this job and who leads it: pure values, the same on every host."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from container.bootstrap.errors import BAD_INPUT, HostError
from training.contract import instance_type_has_accelerator


@dataclass(frozen=True, kw_only=True)
class Host:
    """One host of the job, as SageMaker names it."""

    name: str
    group: str
    instance_type: str

    @property
    def has_accelerator(self) -> bool:
        """Whether the instance type carries an accelerator: decided by its name, as no host sees another's devices."""
        return instance_type_has_accelerator(self.instance_type)

    @property
    def order(self) -> tuple[int, str]:
        """Sort key: the number at the end of the name, since names sorted as text put algo-10 before algo-2."""
        number = re.search(r"(\d+)$", self.name)
        return (int(number.group(1)) if number else 0, self.name)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The job's hosts, in order of their numbers, seen from `current`."""

    hosts: tuple[Host, ...]
    head: str
    current: str
    interface: str

    @property
    def is_head(self) -> bool:
        """Whether this host leads."""
        return self.current == self.head

    @property
    def current_host(self) -> Host:
        """This host."""
        return next(host for host in self.hosts if host.name == self.current)

    @property
    def workers(self) -> tuple[Host, ...]:
        """Every host but the head."""
        return tuple(host for host in self.hosts if host.name != self.head)

    @property
    def training_hosts(self) -> tuple[Host, ...]:
        """The hosts that train: those with accelerators, or the head alone where there are none."""
        return tuple(host for host in self.hosts if host.has_accelerator) or tuple(
            host for host in self.hosts if host.name == self.head
        )


def elect_head(hosts: Iterable[Host], head_group: str | None) -> str:
    """Name the head: the smallest host number within `head_group`, else among hosts with accelerators, else of all.

    Raises:
        HostError: `head_group` is no group of this job.
    """
    hosts = sorted(hosts, key=lambda host: host.order)
    if head_group is not None:
        candidates = [host for host in hosts if host.group == head_group]
        if not candidates:
            known = ", ".join(sorted({host.group for host in hosts}))
            raise HostError(
                BAD_INPUT,
                f"head_group: {head_group!r} is no group of this job; known groups: {known}; name one of them",
            )
    else:
        candidates = [host for host in hosts if host.has_accelerator] or hosts
    return candidates[0].name
