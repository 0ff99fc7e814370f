"""This host's own address and interface, and the interface that collectives must use.

A host's own name may resolve to the loopback, and a host may have a link-local interface beside the real one: Ray
joins with either and then never finishes a task. So the address is read off the interface, and given to Ray.
"""

import ipaddress
import math
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from container.bootstrap.errors import CLUSTER_NOT_FORMED, HostError


@dataclass(frozen=True, kw_only=True)
class OwnAddress:
    """An IPv4 address of this host that other hosts can reach, and the interface that has it."""

    address: str
    interface: str


def usable_addresses() -> dict[str, list[str]]:
    """IPv4 addresses by interface that another host could reach: not loopback, not link-local, on one that is up."""
    stats = psutil.net_if_stats()
    found: dict[str, list[str]] = {}
    for interface, entries in psutil.net_if_addrs().items():
        for entry in entries:
            if entry.family != socket.AF_INET or not (interface in stats and stats[interface].isup):
                continue
            address = ipaddress.ip_address(entry.address)
            if not (address.is_loopback or address.is_link_local):
                found.setdefault(interface, []).append(entry.address)
    return found


def choose_own_address(named_interface: str, candidates: Mapping[str, list[str]], own_name: str) -> OwnAddress:
    """Pick from `candidates`: the platform's interface, else the one that the own name resolves to, else the first.

    Raises:
        HostError: this host has no address that another could reach.
    """
    if candidates.get(named_interface):
        return OwnAddress(address=candidates[named_interface][0], interface=named_interface)
    resolved = _resolve(own_name)
    for interface, addresses in candidates.items():
        if resolved in addresses:
            return OwnAddress(address=resolved, interface=interface)
    for interface, addresses in candidates.items():
        if not interface.startswith(("docker", "br-", "veth")):
            return OwnAddress(address=addresses[0], interface=interface)
    raise HostError(
        CLUSTER_NOT_FORMED,
        f"{own_name} has no network address besides loopback and link-local ones; check its interfaces",
    )


def collective_environment(interface: str, *, num_training_hosts: int) -> dict[str, str]:
    """Variables that pin Gloo and NCCL to `interface`; none while a single host trains, since nothing leaves it."""
    if num_training_hosts < 2:
        return {}
    return {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": f"={interface}"}


def num_usable_cpus(quota_cores: float | None) -> int:
    """CPUs to offer to Ray: what the affinity mask allows, and no more than the quota rounded up."""
    allowed = len(os.sched_getaffinity(0))
    return allowed if quota_cores is None else max(1, min(allowed, math.ceil(quota_cores)))


def _resolve(name: str) -> str:
    try:
        return socket.gethostbyname(name)
    except OSError:
        return ""
