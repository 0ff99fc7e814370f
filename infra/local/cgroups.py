"""Limits of hosts by control groups, version 1 or 2, and the removal of groups whose owner was killed."""

import contextlib
import itertools
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.local.limits import CpuPlaces, CpuSets, HostLimits, Limits

CGROUP_ROOT = Path("/sys/fs/cgroup")
_PERIOD_US = 50_000  # half the kernel's default: a throttled host answers sooner; at 20 ms an image costs 10 % more CPU
_MIN_QUOTA_US = 1_000  # the kernel's own floor
_CONTROLLERS = ("cpu", "cpuacct", "memory")
_NAME = re.compile(r"counterpoise-(\d+)-(\d+)")


@dataclass(frozen=True)
class Owner:
    """The process that control groups belong to, by pid and start time, so that a reused pid is no match."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int, proc: Path = Path("/proc")) -> "Owner":
        """The owner behind a pid; raises OSError if there is no such process."""
        stat = (proc / str(pid) / "stat").read_text()
        return cls(pid, int(stat.rpartition(")")[2].split()[19]))  # field 22; the name before ')' may hold anything

    @property
    def group_name(self) -> str:
        """The name of the control group under which this process keeps those of its hosts."""
        return f"counterpoise-{self.pid}-{self.start_ticks}"

    def is_alive(self, proc: Path = Path("/proc")) -> bool:
        """Whether this very process still runs."""
        try:
            return Owner.of(self.pid, proc) == self
        except OSError:
            return False


class _Group(HostLimits):
    """A host's control group; the two versions differ in file names and formats."""

    def __init__(self, name: str, parents: Mapping[str, Path]) -> None:
        self._directories = {controller: parent / name for controller, parent in parents.items()}
        unique = tuple(dict.fromkeys(self._directories.values()))
        for directory in unique:
            directory.mkdir()
        self.joins = tuple(directory / "cgroup.procs" for directory in unique)
        self.views = tuple((directory, directory.parent.parent) for directory in unique)

    def _write(self, controller: str, file: str, text: str) -> None:
        (self._directories[controller] / file).write_text(text)

    def _read(self, controller: str, file: str) -> str | None:
        try:
            return (self._directories[controller] / file).read_text()
        except (KeyError, OSError):
            return None

    def _sum(self, controller: str, file: str, keys: Sequence[str]) -> int | None:
        text = self._read(controller, file)
        if text is None:
            return None
        values = dict(line.split(maxsplit=1) for line in text.splitlines())
        return sum(int(values.get(key, 0)) for key in keys)

    def remove(self) -> None:
        for directory in set(self._directories.values()):
            _remove_group(directory)


class _GroupV1(_Group):
    def set_cpu_share(self, cores: float | None) -> None:
        self._write("cpu", "cpu.cfs_period_us", str(_PERIOD_US))
        self._write("cpu", "cpu.cfs_quota_us", "-1" if cores is None else str(_quota_us(cores)))

    def cpu_seconds(self) -> float | None:
        text = self._read("cpuacct", "cpuacct.usage")
        return None if text is None else int(text) / 1e9

    def memory_bytes(self) -> int | None:
        return self._sum("memory", "memory.stat", ("total_rss", "total_shmem"))


class _GroupV2(_Group):
    def set_cpu_share(self, cores: float | None) -> None:
        self._write("cpu", "cpu.max", f"{'max' if cores is None else _quota_us(cores)} {_PERIOD_US}")

    def cpu_seconds(self) -> float | None:
        microseconds = self._sum("cpu", "cpu.stat", ("usage_usec",))
        return None if microseconds is None else microseconds / 1e6

    def memory_bytes(self) -> int | None:
        return self._sum("memory", "memory.stat", ("anon", "shmem"))


def _quota_us(cores: float) -> int:
    return max(_MIN_QUOTA_US, round(cores * _PERIOD_US))


def _remove_group(directory: Path) -> None:
    """Removes an empty control group; a process that was killed a moment ago may keep it busy for up to two seconds."""
    for _ in range(40):
        try:
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.05)
        else:
            return


class ControlGroups(Limits):
    """Limits by control groups, version 1 or 2, in a group of its own below `root` in each hierarchy."""

    def __init__(self, root: Path, owner: Owner) -> None:
        self._version = 2 if (root / "cgroup.controllers").exists() else 1
        self._parents = {name: path / owner.group_name for name, path in _hierarchies(root).items()}
        self._numbers = itertools.count(1)
        self._places = CpuPlaces(sorted(os.sched_getaffinity(0)))
        self.description = f"CPU quotas of control groups, version {self._version}, period {_PERIOD_US // 1000} ms"
        if "cpu" not in self._parents:
            raise OSError(f"no cpu controller below {root}")
        try:
            for parent in set(self._parents.values()):
                parent.mkdir()
            if self._version == 2:
                _enable_controllers(root)
                _enable_controllers(root / owner.group_name)
            self._try_out()
        except OSError:
            self.close()
            raise

    def _try_out(self) -> None:
        """Lets a child join a limited group, since only this shows whether it is allowed; raises OSError if not."""
        host = self._new_group("trial")
        host.set_cpu_share(None)
        child = os.fork()
        if child == 0:
            with contextlib.suppress(OSError):
                for file in host.joins:
                    file.write_text("0")
                os._exit(0)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        host.remove()
        if status != 0:
            raise OSError("processes may not be moved into control groups here")

    def add_host(self, name: str, shares: Sequence[float | None]) -> HostLimits:
        host = self._new_group(name)
        host.set_cpu_share(shares[0])
        # A quota alone would let a host of half a core run on every CPU at once, where priorities mean nothing.
        host.cpus = self._places.take(shares)
        return host

    def _new_group(self, name: str) -> _Group:
        kind = _GroupV2 if self._version == 2 else _GroupV1
        return kind(f"{next(self._numbers)}-{name}", self._parents)

    def close(self) -> None:
        for parent in set(self._parents.values()):
            _remove_tree(parent)


def _hierarchies(root: Path) -> dict[str, Path]:
    if (root / "cgroup.controllers").exists():
        return dict.fromkeys(_CONTROLLERS, root)
    # `cpu` is often a link to `cpu,cpuacct`: one directory, one group
    return {name: (root / name).resolve() for name in _CONTROLLERS if (root / name).is_dir()}


def _enable_controllers(directory: Path) -> None:
    (directory / "cgroup.subtree_control").write_text("+cpu")
    with contextlib.suppress(OSError):  # without it, memory is not accounted, and that is all
        (directory / "cgroup.subtree_control").write_text("+memory")


def _remove_tree(directory: Path) -> None:
    if directory.is_dir():
        for child in directory.iterdir():
            if child.is_dir():
                _remove_group(child)
        _remove_group(directory)


def remove_stale(root: Path = CGROUP_ROOT, proc: Path = Path("/proc")) -> None:
    """Removes control groups of owners that were killed before they could do so themselves."""
    for path in set(_hierarchies(root).values()):
        for directory in path.glob("counterpoise-*"):
            match = _NAME.fullmatch(directory.name)
            if match and not Owner(int(match[1]), int(match[2])).is_alive(proc):
                _remove_tree(directory)


def open_limits(owner: Owner, root: Path = CGROUP_ROOT) -> Limits:
    """The best limits that this machine and this user allow."""
    remove_stale(root)
    try:
        return ControlGroups(root, owner)
    except OSError as error:
        return CpuSets(sorted(os.sched_getaffinity(0)), error.strerror or str(error))
