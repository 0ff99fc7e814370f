"""Clusters of virtual hosts on this machine: how many hosts of which kind, their shares of its CPUs, their network."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.local import scale_model

BIND_AT = "first_step"
NIC_BITS_PER_SECOND = {
    "gpu": 2.5e9 * scale_model.GPU_CORES / 4,
    "cpu": 5e9 * scale_model.CPU_CORES / 16,
}
"""What an ml.g5.xlarge and an ml.c5.4xlarge sustain, made smaller as their 4 and 16 vCPUs are: 238 and 475 Mb/s."""


@dataclass(frozen=True, kw_only=True)
class HostGroup:
    """Some hosts that are alike. `cores` and `nic_bits_per_second` are those of each host; None means no limit."""

    name: str
    instance_type: str
    count: int = 1
    cores: float | None = None
    nic_bits_per_second: float | None = None


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A virtual cluster: hosts on this machine, each with its share of the CPUs and of a network.

    The shares bind with the event `first_step`; until then each host has its share rounded up to whole CPUs, since
    imports alone would last minutes.
    """

    groups: tuple[HostGroup, ...]
    changes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Cores of a host or of each host of a group from an event on, as in {"half_way": {"algo-2": 0.5}}."""

    def hosts_of(self, group_name: str) -> tuple[str, ...]:
        """Names of the hosts of a group; they are numbered through all groups."""
        names = [(group.name, number) for group in self.groups for number in range(group.count)]
        return tuple(f"algo-{index + 1}" for index, (name, _) in enumerate(names) if name == group_name)

    def options(self) -> dict[str, Any]:
        """The same as arguments of `local_runner.run`."""
        cores = {group.name: group.cores for group in self.groups if group.cores is not None}
        caps = {group.name: group.nic_bits_per_second for group in self.groups}
        return {
            "groups": [[group.name, group.instance_type, group.count] for group in self.groups],
            "cpu_share_at": {
                "start": {name: math.ceil(share) for name, share in cores.items()},
                BIND_AT: cores,
                **self.changes,
            },
            "nic_bits_per_second": {name: cap for name, cap in caps.items() if cap is not None},
        }

    def describe(self) -> str:
        """The cluster in words."""
        changes = [f"from {event} on {dict(cores)} cores" for event, cores in self.changes.items()]
        return "; ".join([*(_describe(group) for group in self.groups), *changes])


def _describe(group: HostGroup) -> str:
    cores = "no CPU limit" if group.cores is None else f"{group.cores:.3g} cores each from {BIND_AT} on"
    cap = group.nic_bits_per_second
    network = "no network limit" if cap is None else f"{cap / 1e6:.0f} Mb/s each way"
    return f"{group.count} x {group.name} ({group.instance_type}): {cores}, {network}"


def article_cluster(
    *,
    num_cpu_hosts: int = 1,
    gpu_cores: float = scale_model.GPU_CORES,
    cpu_cores: float = scale_model.CPU_CORES,
    nic_bits_per_second: Mapping[str, float] | None = None,
    changes: Mapping[str, Mapping[str, float]] | None = None,
) -> Cluster:
    """The article's groups at the size of this machine: `gpu`, one host, and `cpu`.

    `cpu_cores` are shared by all CPU hosts, so that clusters of different sizes have the same total.
    """
    caps = nic_bits_per_second or {}
    gpu, cpu = scale_model.GROUPS
    return Cluster(
        groups=(
            HostGroup(
                name=gpu.name,
                instance_type=gpu.instance_type,
                cores=gpu_cores,
                nic_bits_per_second=caps.get(gpu.name),
            ),
            HostGroup(
                name=cpu.name,
                instance_type=cpu.instance_type,
                count=num_cpu_hosts,
                cores=cpu_cores / num_cpu_hosts,
                nic_bits_per_second=caps.get(cpu.name),
            ),
        ),
        changes=changes or {},
    )
