"""The private network of a job: one bridge in the sandbox, one cable and one address for every host."""

import contextlib
import itertools
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TextIO

INTERFACE = "eth0"
_PREFIX = "10.117"  # any private range does: nothing outside the sandbox is connected to it
_HOSTS_PER_BLOCK = 250
_MTU_BYTES = 9001
"""As inside a VPC; with 1500 bytes, 4.4 % of a capped interface's bits were headers, here it is 0.7 %."""
_BURST_BYTES = 256 << 10
"""Four of the largest pieces that TCP hands to an interface: with less, the kernel cuts them up, which costs CPU."""
_QUEUE_SECONDS = 0.05
"""How long a packet may wait for its turn before it is dropped, as in the buffer of a switch."""
_COUNTERS = Path("/proc/net/dev")
_numbers = itertools.count(1)


class Traffic(NamedTuple):
    """Bytes that an interface has received and sent, with all headers."""

    received: int
    sent: int


def address_of(index: int) -> str:
    """The IPv4 address of the host with this index in the job, counted from 0."""
    block, last = divmod(index, _HOSTS_PER_BLOCK)
    return f"{_PREFIX}.{block}.{last + 1}"


def _batch(program: str, *commands: str) -> None:
    text = "\n".join(commands) + "\n"
    result = subprocess.run([program, "-batch", "-"], input=text, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise OSError(f"{program} {' / '.join(commands)}: {' '.join(result.stderr.split())}")


def _cap(interface: str, bits_per_second: float | None) -> None:
    """Limits what an interface of this namespace sends; measured over bulk TCP, 98.9 to 99.3 % of it are payload."""
    if bits_per_second is not None:
        bucket = f"rate {round(bits_per_second)}bit burst {_BURST_BYTES} latency {_QUEUE_SECONDS * 1e3:.0f}ms"
        _batch("tc", f"qdisc add dev {interface} root tbf {bucket}")


def raise_loopback() -> None:
    """Starts the loopback interface of the caller's new network namespace."""
    _batch("ip", "link set lo up")


def configure_host(address: str, bits_per_second: float | None) -> None:
    """Gives this namespace's plugged-in interface its address and limits what it sends; None means no limit.

    There is no default route, so nothing outside exists.
    """
    _cap(INTERFACE, bits_per_second)
    _batch("ip", "link set lo up", f"addr add {address}/16 dev {INTERFACE}", f"link set {INTERFACE} up")


def open_counters() -> TextIO:
    """The counters of this network namespace's interfaces, for `read_counters`; the namespace lives while it is open.

    It goes on to count for this namespace when another /proc has been mounted.
    """
    return _COUNTERS.open()


def read_counters(file: TextIO) -> Mapping[str, Traffic]:
    """What each interface has carried by now."""
    file.seek(0)
    lines = (line.split(":") for line in file.read().splitlines()[2:])  # two lines of headings
    return {name.strip(): Traffic(int(fields[0]), int(fields[8])) for name, text in lines for fields in [text.split()]}


class Bridge:
    """The switch of one job; several jobs in one sandbox do not see each other."""

    def __init__(self) -> None:
        self._name = f"job{next(_numbers)}"
        self._cables: dict[str, str] = {}
        _batch("ip", f"link add {self._name} type bridge", f"link set {self._name} up")

    def plug_in(self, host: str, bits_per_second: float | None, pid: int) -> None:
        """Gives the network namespace of process `pid` an interface on this switch; raises OSError.

        The host may receive `bits_per_second`, and without a limit if that is None.
        """
        cable = f"{self._name}p{len(self._cables)}"
        _batch(
            "ip",
            f"link add {cable} mtu {_MTU_BYTES} type veth peer name {INTERFACE} mtu {_MTU_BYTES} netns {pid}",
            f"link set {cable} master {self._name}",
        )
        _cap(cable, bits_per_second)
        _batch("ip", f"link set {cable} up")
        self._cables[cable] = host

    def set_link(self, host: str, *, is_up: bool) -> None:
        """Connects or cuts the cable of a host; its addresses and connections stay, and nothing comes through."""
        for cable, name in self._cables.items():
            if name == host:
                _batch("ip", f"link set {cable} {'up' if is_up else 'down'}")

    def traffic(self) -> Mapping[str, Traffic]:
        """What each plugged-in host has received and sent by now; a host that is gone is missing."""
        with open_counters() as file:
            counters = read_counters(file)
        return {
            self._cables[cable]: Traffic(received=seen.sent, sent=seen.received)  # seen from the other end
            for cable, seen in counters.items()
            if cable in self._cables
        }

    def remove(self) -> None:
        """Takes the switch and its cables away."""
        for link in (*self._cables, self._name):
            with contextlib.suppress(OSError):  # a cable goes by itself with its host's namespace
                _batch("ip", f"link del {link}")
