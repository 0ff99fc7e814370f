"""The address that other hosts reach, whatever a host's own name says, and the CPUs and interface that follow."""

import os
import socket
from types import SimpleNamespace

import psutil
import pytest

from container.bootstrap.addresses import (
    OwnAddress,
    choose_own_address,
    collective_environment,
    num_usable_cpus,
    usable_addresses,
)
from container.bootstrap.errors import HostError

Interfaces = dict[str, tuple[list[str], bool]]


@pytest.fixture
def own_name(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What names resolve to, instead of the machine's own answer."""
    known: dict[str, str] = {}

    def resolve(name: str) -> str:
        if name not in known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return known[name]

    monkeypatch.setattr(socket, "gethostbyname", resolve)
    return known


def machine(monkeypatch: pytest.MonkeyPatch, interfaces: Interfaces) -> None:
    """Give this machine interfaces: addresses, and whether they are up."""
    entries = {
        name: [
            SimpleNamespace(family=socket.AF_INET6 if ":" in address else socket.AF_INET, address=address)
            for address in addresses
        ]
        for name, (addresses, _) in interfaces.items()
    }
    stats = {name: SimpleNamespace(isup=is_up) for name, (_, is_up) in interfaces.items()}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: entries)
    monkeypatch.setattr(psutil, "net_if_stats", lambda: stats)


SAGEMAKER: Interfaces = {
    "lo": (["127.0.0.1", "::1"], True),
    "eth0": (["169.254.255.130"], True),
    "eth1": (["10.0.3.7", "fe80::1"], True),
    "docker0": (["172.17.0.1"], True),
    "eth2": (["10.0.9.9"], False),
}


def test_only_addresses_that_another_host_could_reach_count(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, SAGEMAKER)
    assert usable_addresses() == {"eth1": ["10.0.3.7"], "docker0": ["172.17.0.1"]}


def test_this_machine_is_read_without_its_loopback() -> None:
    assert "lo" not in usable_addresses()


@pytest.mark.parametrize(
    ("interface", "resolved", "expected"),
    [
        ("eth1", "127.0.1.1", ("10.0.3.7", "eth1")),  # the platform names the interface; the name is the loopback
        ("eth0", "10.0.3.7", ("10.0.3.7", "eth1")),  # the named one has a link-local address only
        ("eth0", "127.0.1.1", ("10.0.3.7", "eth1")),
        ("ethwe", "", ("10.0.3.7", "eth1")),  # the named one is absent
        ("eth0", "172.17.0.1", ("172.17.0.1", "docker0")),  # a container whose own name is there
    ],
)
def test_the_address_is_one_that_others_reach(
    monkeypatch: pytest.MonkeyPatch, own_name: dict[str, str], interface: str, resolved: str, expected: tuple[str, str]
) -> None:
    machine(monkeypatch, SAGEMAKER)
    if resolved:
        own_name["algo-1"] = resolved
    own = choose_own_address(interface, usable_addresses(), "algo-1")
    assert own == OwnAddress(address=expected[0], interface=expected[1])


@pytest.mark.usefixtures("own_name")
def test_a_bridge_for_containers_is_no_address_even_where_it_comes_first() -> None:
    candidates = {"docker0": ["172.17.0.1"], "br-1": ["172.18.0.1"], "ens5": ["10.0.0.4"]}
    assert choose_own_address("eth0", candidates, "algo-1").interface == "ens5"


@pytest.mark.usefixtures("own_name")
def test_no_address_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, {"lo": (["127.0.0.1"], True), "eth0": (["169.254.1.1"], True)})
    with pytest.raises(HostError) as caught:
        choose_own_address("eth0", usable_addresses(), "algo-1")
    assert (caught.value.exit_code, caught.value.reason) == (
        3,
        "algo-1 has no network address besides loopback and link-local ones; check its interfaces",
    )


def test_collectives_are_pinned_only_where_they_leave_the_host() -> None:
    assert collective_environment("ens5", num_training_hosts=1) == {}
    assert collective_environment("ens5", num_training_hosts=2) == {
        "GLOO_SOCKET_IFNAME": "ens5",
        "NCCL_SOCKET_IFNAME": "=ens5",
    }


@pytest.mark.parametrize(("quota_cores", "expected"), [(None, 4), (0.38, 1), (1.0, 1), (1.52, 2), (3.01, 4), (64.0, 4)])
def test_a_quota_limits_the_cpus_that_are_offered(
    monkeypatch: pytest.MonkeyPatch, quota_cores: float | None, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 5})
    assert num_usable_cpus(quota_cores) == expected
