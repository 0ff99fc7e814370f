"""The private network of a job: one bridge in the sandbox, one cable and one address for every host."""

import contextlib
import itertools
import subprocess

INTERFACE = "eth0"
_PREFIX = "10.117"  # any private range does: nothing outside the sandbox is connected to it
_HOSTS_PER_BLOCK = 250
_numbers = itertools.count(1)


def address_of(index: int) -> str:
    """The IPv4 address of the host with this index in the job, counted from 0."""
    block, last = divmod(index, _HOSTS_PER_BLOCK)
    return f"{_PREFIX}.{block}.{last + 1}"


def _ip(*commands: str) -> None:
    batch = "\n".join(commands) + "\n"
    result = subprocess.run(["ip", "-batch", "-"], input=batch, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise OSError(f"ip {' / '.join(commands)}: {' '.join(result.stderr.split())}")


def raise_loopback() -> None:
    """Starts the loopback interface of the caller's new network namespace."""
    _ip("link set lo up")


def configure_host(address: str) -> None:
    """Gives this namespace's plugged-in interface its address; there is no default route, so nothing outside exists."""
    _ip("link set lo up", f"addr add {address}/16 dev {INTERFACE}", f"link set {INTERFACE} up")


class Bridge:
    """The switch of one job; several jobs in one sandbox do not see each other."""

    def __init__(self) -> None:
        self._name = f"job{next(_numbers)}"
        self._cables: list[str] = []
        _ip(f"link add {self._name} type bridge", f"link set {self._name} up")

    def plug_in(self, pid: int) -> None:
        """Gives the network namespace of process `pid` an interface on this switch; raises OSError."""
        cable = f"{self._name}p{len(self._cables)}"
        _ip(
            f"link add {cable} type veth peer name {INTERFACE} netns {pid}",
            f"link set {cable} master {self._name}",
            f"link set {cable} up",
        )
        self._cables.append(cable)

    def remove(self) -> None:
        """Takes the switch and its cables away."""
        for link in (*self._cables, self._name):
            with contextlib.suppress(OSError):  # a cable goes by itself with its host's namespace
                _ip(f"link del {link}")
