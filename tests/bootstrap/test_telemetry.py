"""Counters of a host, read from cgroups of both versions, from the machine, and from the devices."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace

import psutil
import pytest

from container.bootstrap import telemetry
from container.bootstrap.telemetry import HostMeter, shared_memory_free_bytes

V1 = {
    "cpuacct/cpuacct.usage": "2500000000",
    "cpu/cpu.cfs_quota_us": "38000",
    "cpu/cpu.cfs_period_us": "100000",
    "memory/memory.stat": "cache 999\nrss 1\ntotal_rss 3000\ntotal_mapped_file 5\ntotal_shmem 400",
}
V1_PATHS = "5:cpuacct,cpu:{path}\n4:memory:{path}\n1:name=systemd:/\n0::/\n"
V2 = {
    "cpu.stat": "usage_usec 2500000\nuser_usec 1",
    "cpu.max": "152000 100000",
    "memory.stat": "anon 3000\nfile 999\nshmem 400",
}


def meter(directory: Path, paths: str, files: Mapping[str, str]) -> HostMeter:
    proc_cgroup = directory / "cgroup"
    proc_cgroup.write_text(paths)
    for name, text in files.items():
        file = directory / "sys" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return HostMeter(proc_cgroup=proc_cgroup, root=directory / "sys")


def below(path: str, files: Mapping[str, str]) -> dict[str, str]:
    """The files of a v1 tree moved to a cgroup below each controller."""
    return {f"{name.partition('/')[0]}/{path}/{name.partition('/')[2]}": text for name, text in files.items()}


@pytest.mark.parametrize("path", ["/", "/docker/abc"])
def test_version_1_as_a_container_sees_it(tmp_path: Path, path: str) -> None:
    host = meter(tmp_path, V1_PATHS.format(path=path), V1)  # the mount shows the own cgroup, whatever the path says
    assert host.quota_cores() == 0.38
    sample = host.sample()
    assert (sample.cpu_seconds, sample.cores, sample.memory_bytes) == (2.5, 0.38, 3400)
    assert sample.accelerator_share is None


def test_version_1_prefers_the_own_cgroup(tmp_path: Path) -> None:
    others = {**V1, "cpuacct/cpuacct.usage": "9" * 12, "cpu/cpu.cfs_quota_us": "-1"}
    host = meter(tmp_path, V1_PATHS.format(path="/job/algo-1"), {**others, **below("job/algo-1", V1)})
    assert (host.quota_cores(), host.sample().cpu_seconds) == (0.38, 2.5)


def test_version_1_with_an_old_kernel_counts_mapped_files(tmp_path: Path) -> None:
    files = {**V1, "memory/memory.stat": "total_rss 3000\ntotal_mapped_file 5"}
    assert meter(tmp_path, V1_PATHS.format(path="/"), files).sample().memory_bytes == 3005


@pytest.mark.parametrize("path", ["/", "/docker/abc"])
def test_version_2_as_a_container_sees_it(tmp_path: Path, path: str) -> None:
    host = meter(tmp_path, f"0::{path}\n", V2)
    assert host.quota_cores() == 1.52
    assert (host.sample().cpu_seconds, host.sample().memory_bytes) == (2.5, 3400)


def test_version_2_prefers_the_own_cgroup(tmp_path: Path) -> None:
    own = {f"job/algo-1/{name}": text for name, text in V2.items()}
    host = meter(tmp_path, "0::/job/algo-1\n", {"cpu.max": "max 100000", "cpu.stat": "usage_usec 0", **own})
    assert (host.quota_cores(), host.sample().cpu_seconds) == (1.52, 2.5)


@pytest.mark.parametrize(
    ("paths", "files"),
    [
        (V1_PATHS.format(path="/"), {**V1, "cpu/cpu.cfs_quota_us": "-1"}),
        ("0::/\n", {**V2, "cpu.max": "max 100000"}),
        ("0::/\n", {"cgroup.procs": "1"}),
        ("", {}),
    ],
)
def test_without_a_quota_the_affinity_mask_counts(tmp_path: Path, paths: str, files: dict[str, str]) -> None:
    host = meter(tmp_path, paths, files)
    assert host.quota_cores() is None
    assert host.sample().cores == len(os.sched_getaffinity(0))


def test_a_quota_beyond_the_affinity_mask_gives_no_more_cores(tmp_path: Path) -> None:
    host = meter(tmp_path, "0::/\n", {**V2, "cpu.max": "9900000 100000"})
    assert (host.quota_cores(), host.sample().cores) == (99.0, len(os.sched_getaffinity(0)))


def test_without_cgroups_the_machine_is_the_host(tmp_path: Path) -> None:
    host = HostMeter(proc_cgroup=tmp_path / "absent", root=tmp_path)
    sample = host.sample()
    assert sample.cpu_seconds > 0
    assert 0 < sample.memory_bytes <= psutil.virtual_memory().total


def test_this_machine_can_be_read() -> None:
    first, second = (HostMeter().sample() for _ in range(2))
    assert second.cpu_seconds >= first.cpu_seconds > 0
    assert first.memory_bytes > 0
    assert shared_memory_free_bytes("/") > 0


class Nvml(ModuleType):
    """Stands in for pynvml: two devices, each step of which may fail."""

    class NVMLError(Exception):
        """What the library raises, whatever it is."""

    def __init__(self, broken: str = "") -> None:
        super().__init__("pynvml")
        self.broken = broken

    def _step(self, name: str) -> None:
        if self.broken == name:
            raise self.NVMLError(name)

    def nvmlInit(self) -> None:
        self._step("init")

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUtilizationRates(self, device: int) -> SimpleNamespace:
        self._step("rates")
        return SimpleNamespace(gpu=(40, 80)[device])


@pytest.mark.parametrize(("broken", "share"), [("", 0.6), ("init", None), ("rates", None)])
def test_the_share_of_the_devices_is_their_mean_or_unknown(
    monkeypatch: pytest.MonkeyPatch, broken: str, share: float | None
) -> None:
    monkeypatch.setattr(telemetry, "num_accelerators", lambda: 2)
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(broken))
    assert HostMeter().sample().accelerator_share == share


def test_devices_without_their_library_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "num_accelerators", lambda: 2)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert HostMeter().sample().accelerator_share is None
