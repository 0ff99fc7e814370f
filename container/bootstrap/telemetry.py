"""What a host used: CPU time, memory and accelerator time, read from its own cgroup and from NVML.

Inside a container the kernel's /proc counters describe the whole machine; the cgroup describes the container. Both
cgroup versions are read; where there is none, the machine's counters are the host's.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One reading of a host's counters.

    `cpu_seconds` counts since some fixed moment, `cores` is how many cores' worth of time the host has now,
    `accelerator_share` is 0..1, None without a device.
    """

    cpu_seconds: float
    cores: float
    memory_bytes: int
    accelerator_share: float | None


class HostMeter:
    """Reads this host's counters; every reading is independent, so a missed one costs nothing."""

    def __init__(self, *, proc_cgroup: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> None:
        self._cpu = _cgroup_dir(proc_cgroup, root, "cpuacct")
        self._memory = _cgroup_dir(proc_cgroup, root, "memory")
        self._quota = _cgroup_dir(proc_cgroup, root, "cpu")
        self._accelerator_share = _accelerator_reader()

    def quota_cores(self) -> float | None:
        """How many cores' worth of time this host may use; None without a limit."""
        if (text := _read(self._quota, "cpu.max")) is not None:
            quota, period = text.split()
            return None if quota == "max" else int(quota) / int(period)
        quota_us, period_us = _read(self._quota, "cpu.cfs_quota_us"), _read(self._quota, "cpu.cfs_period_us")
        if quota_us is None or period_us is None or int(quota_us) <= 0:
            return None
        return int(quota_us) / int(period_us)

    def sample(self) -> Sample:
        """Read all counters now."""
        return Sample(
            cpu_seconds=self._cpu_seconds(),
            cores=min(self.quota_cores() or float("inf"), float(len(os.sched_getaffinity(0)))),
            memory_bytes=self._memory_bytes(),
            accelerator_share=self._accelerator_share(),
        )

    def _cpu_seconds(self) -> float:
        if (text := _read(self._cpu, "cpuacct.usage")) is not None:
            return int(text) / 1e9
        if (text := _read(self._cpu, "cpu.stat")) is not None:
            return int(_fields(text)["usage_usec"]) / 1e6
        times = psutil.cpu_times()
        return float(times.user + times.system + times.nice)

    def _memory_bytes(self) -> int:
        text = _read(self._memory, "memory.stat")
        if text is None:
            return int(psutil.virtual_memory().used)
        fields = _fields(text)
        # What cannot be dropped: process memory and shared memory (Ray's object store), not the page cache.
        if "total_rss" in fields:
            return int(fields["total_rss"]) + int(fields.get("total_shmem", fields.get("total_mapped_file", 0)))
        return int(fields["anon"]) + int(fields["shmem"])


def num_accelerators() -> int:
    """CUDA devices of this host."""
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def _cgroup_dir(proc_cgroup: Path, root: Path, controller: str) -> Path | None:
    """The folder of this process's cgroup for one controller; the root cgroup stands for the whole machine."""
    unified: Path | None = None
    for line in (_read(proc_cgroup.parent, proc_cgroup.name) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return _existing(root / controller, path)
        if controllers == "":
            unified = _existing(root, path)
    return unified


def _existing(mount: Path, path: str) -> Path | None:
    # Without a cgroup namespace a container still reads the host's path, while the mount shows its own cgroup alone.
    for directory in (mount / path.lstrip("/"), mount):
        if directory.is_dir():
            return directory
    return None


def _read(directory: Path | None, name: str) -> str | None:
    if directory is None:
        return None
    try:
        return (directory / name).read_text().strip()
    except OSError:
        return None


def _fields(text: str) -> dict[str, str]:
    return dict(line.split(None, 1) for line in text.splitlines())


def _accelerator_reader() -> Callable[[], float | None]:
    """A function that gives the mean utilisation of the devices; it says None where NVML is absent or fails."""
    if not num_accelerators():
        return lambda: None
    try:
        import pynvml
    except ImportError:
        return lambda: None
    try:
        pynvml.nvmlInit()
        devices = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:  # the driver is not there, or does not fit
        return lambda: None

    def read() -> float | None:
        try:
            shares: list[Any] = [pynvml.nvmlDeviceGetUtilizationRates(device).gpu for device in devices]
        except pynvml.NVMLError:  # a device may fall off the bus; training finds out by itself
            return None
        return sum(shares) / len(shares) / 100 if shares else None

    return read


def shared_memory_free_bytes(directory: str = "/dev/shm") -> int:
    """Free space where Ray would put its object store."""
    stats = os.statvfs(directory)
    return stats.f_bavail * stats.f_frsize
