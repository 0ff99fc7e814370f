"""The parent of one host: makes its namespaces, starts its process 1 in them and tells how that ended."""

import json
import os
import signal
import socket
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

from infra.local import kernel, network

TOKEN_FILE = "/tmp/.counterpoise/token"
"""Where a host finds its job's token: in memory, in a directory that only its own processes can reach."""
EXIT_NOT_STARTED = 125
"""Exit code of a host whose process 1 could not be started; the reason is in the host's log."""


class Bind(NamedTuple):
    """A file or directory of this machine that a host sees at `target`."""

    source: str
    target: str
    is_read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class HostSpec:
    """All that makes one host; travels as JSON over the standard input of its `host_init`."""

    name: str
    address: str
    nic_bits_per_second: float | None
    command: Sequence[str]
    environment: Mapping[str, str]
    working_directory: str
    binds: Sequence[Bind]
    reachable: Sequence[str]
    """Directories that must stay what they are, even below a target of `binds`: checkout and interpreter."""
    shm_bytes: int
    token: str
    joins: Sequence[str]
    cpus: Sequence[int]

    def to_json(self) -> str:
        """This value as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "HostSpec":
        """The inverse of `to_json`."""
        fields = json.loads(text)
        return cls(**{**fields, "binds": [Bind(*bind) for bind in fields["binds"]]})


def run_host(status: int) -> int:
    """Runs one host to its end and returns the exit code of its process 1, 128 + n for an end by signal n.

    `status` is a descriptor that takes one JSON object a line: `ready`, then `process_one` (its pid out here),
    `left_processes` (others still alive when it began to exit), `cpu_seconds` (its own and of all it waited for),
    `bytes_received` and `bytes_sent` (over the network, by the whole host).
    """
    os.set_inheritable(status, False)

    def tell(**facts: float) -> None:
        os.write(status, json.dumps(facts).encode() + b"\n")

    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWNET)
    counters = network.open_counters()  # now, since process 1 will mount another /proc
    tell(ready=1)  # the runner plugs the network cable in before it sends the specification
    spec = HostSpec.from_json(sys.stdin.read())
    network.configure_host(spec.address, spec.nic_bits_per_second)
    kernel.unshare(kernel.CLONE_NEWPID)  # last, since the very next child is process 1
    child = os.fork()
    if child == 0:
        _become_process_one(spec)
    tell(process_one=child)
    kernel.hold_at_exit(child)
    while True:
        _, state, usage = os.wait4(child, 0)
        if not os.WIFSTOPPED(state):
            break
        if kernel.is_held_at_exit(state):
            tell(left_processes=_count_others())
        kernel.let_go_on(child, state)
    traffic = network.read_counters(counters)[network.INTERFACE]
    tell(cpu_seconds=usage.ru_utime + usage.ru_stime, bytes_received=traffic.received, bytes_sent=traffic.sent)
    code = os.waitstatus_to_exitcode(state)
    return code if code >= 0 else 128 - code


def _count_others() -> int:
    """Processes in the host besides process 1; /proc is the host's since process 1 mounted it in our shared view."""
    processes = [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal() and entry.name != "1"]
    return sum(not _has_ended(process) for process in processes)


def _has_ended(process: Path) -> bool:
    try:
        stat = (process / "stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def _become_process_one(spec: HostSpec) -> NoReturn:
    try:
        kernel.die_with_parent()
        _furnish(spec)
        os.chdir(spec.working_directory)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and programs inherit that
        os.execvpe(spec.command[0], list(spec.command), spec.environment)
    except OSError as error:
        print(f"counterpoise: host {spec.name} cannot start {spec.command[0]}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(EXIT_NOT_STARTED)


def _furnish(spec: HostSpec) -> None:
    """Gives the new host its limits, name, files and memory."""
    for file in spec.joins:
        Path(file).write_text("0")
    if spec.joins:
        kernel.unshare(kernel.CLONE_NEWCGROUP)  # its own group looks like the root, as in a container
    if spec.cpus:
        os.sched_setaffinity(0, spec.cpus)
    socket.sethostname(spec.name)
    kernel.mount_proc()
    closed = _closed_to_others(map(Path, spec.reachable))
    covered = [*closed, *(Path(bind.target) for bind in spec.binds)]
    kept = [path for path in map(Path, spec.reachable) if any(path.is_relative_to(target) for target in covered)]
    # Every source is opened before the first mount, which may cover the way to it.
    sources = [kernel.open_path(bind.source) for bind in spec.binds]
    kept_sources = [kernel.open_path(path) for path in kept]
    for directory in closed:
        kernel.mount_tmpfs(directory, "size=64k,mode=0755")
    for source, bind in zip(sources, spec.binds, strict=True):
        kernel.bind(source, bind.target, is_read_only=bind.is_read_only)
    for source, path in zip(kept_sources, kept, strict=True):
        path.mkdir(parents=True, exist_ok=True)
        kernel.bind(source, path)
    kernel.mount_tmpfs("/dev/shm", f"size={spec.shm_bytes},mode=1777")
    _write_token(spec.token)


def _closed_to_others(reachable: Iterable[Path]) -> list[Path]:
    """Directories on the way to those that must be reachable, whom an ordinary user may not pass; the upmost ones."""
    ways = {way for path in reachable for way in path.parents if not way.stat().st_mode & stat.S_IXOTH}
    return sorted(way for way in ways if ways.isdisjoint(way.parents))


def _write_token(token: str) -> None:
    file = Path(TOKEN_FILE)
    file.parent.mkdir(exist_ok=True)
    kernel.mount_tmpfs(file.parent, "size=64k,mode=0700")
    file.touch(mode=0o600)
    file.write_text(token)


def main() -> int:
    """Entry point; whatever keeps the host from starting is one line in its log."""
    try:
        return run_host(int(sys.argv[1]))
    except (OSError, ValueError) as error:
        print(f"counterpoise: host cannot start: {error}", file=sys.stderr)
        return EXIT_NOT_STARTED


if __name__ == "__main__":
    sys.exit(main())
