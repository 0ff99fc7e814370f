"""Control groups of both versions, on a pretended tree, and the affinity that stands in for them."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.local import cgroups
from infra.local.cgroups import ControlGroups, Owner, open_limits, remove_stale
from infra.local.limits import CpuPlaces, CpuSets

ME = Owner.of(os.getpid())
DEAD = Owner(os.getpid(), ME.start_ticks + 1)  # the same pid, of a process that started at another time


@pytest.fixture(autouse=True)
def _kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a real tree the kernel removes a group's files with it."""
    monkeypatch.setattr(Path, "rmdir", shutil.rmtree)


@pytest.fixture
def v1(tmp_path: Path) -> Path:
    for name in ("cpu,cpuacct", "memory", "pids"):
        (tmp_path / name).mkdir()
    (tmp_path / "cpu").symlink_to("cpu,cpuacct")
    (tmp_path / "cpuacct").symlink_to("cpu,cpuacct")
    return tmp_path


@pytest.fixture
def v2(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    return tmp_path


def test_version_1_limits_and_accounts(v1: Path) -> None:
    limits = ControlGroups(v1, ME)
    host = limits.add_host("algo-1", [0.5])
    cpu = next((v1 / "cpu" / ME.group_name).iterdir())
    memory = v1 / "memory" / ME.group_name / cpu.name
    assert (cpu / "cpu.cfs_period_us").read_text() == "50000"
    assert (cpu / "cpu.cfs_quota_us").read_text() == "25000"
    # cpu and cpuacct are one hierarchy here, so that there is one group to join
    assert set(host.joins) == {(cpu / "cgroup.procs").resolve(), memory / "cgroup.procs"}
    assert set(host.views) == {(cpu.resolve(), (v1 / "cpu").resolve()), (memory, v1 / "memory")}
    (cpu / "cpuacct.usage").write_text("2500000000\n")
    (memory / "memory.stat").write_text("cache 9\nrss 1\nshmem 1\ntotal_cache 9\ntotal_rss 100\ntotal_shmem 20\n")
    assert host.cpu_seconds() == 2.5
    assert host.memory_bytes() == 120
    assert "version 1" in limits.description


def test_version_2_limits_and_accounts(v2: Path) -> None:
    limits = ControlGroups(v2, ME)
    host = limits.add_host("algo-1", [1.5])
    group = next(entry for entry in (v2 / ME.group_name).iterdir() if entry.is_dir())
    assert (group / "cpu.max").read_text() == "75000 50000"
    assert host.joins == (group / "cgroup.procs",)
    assert host.views == ((group, v2),)
    (group / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (group / "memory.stat").write_text("anon 100\nfile 9\nshmem 20\n")
    assert host.cpu_seconds() == 2.5
    assert host.memory_bytes() == 120
    assert "version 2" in limits.description


def test_a_share_can_change_and_has_a_floor(v1: Path) -> None:
    host = ControlGroups(v1, ME).add_host("algo-1", [None, 0.25])
    quota = host.views[0][0] / "cpu.cfs_quota_us"
    assert quota.read_text() == "-1"
    host.set_cpu_share(0.25)
    assert quota.read_text() == "12500"
    host.set_cpu_share(0.001)
    assert quota.read_text() == "1000"


def test_no_limit_in_version_2(v2: Path) -> None:
    host = ControlGroups(v2, ME).add_host("algo-1", [None])
    assert (host.views[0][0] / "cpu.max").read_text() == "max 50000"


def test_two_hosts_of_one_name_have_two_groups(v2: Path) -> None:
    limits = ControlGroups(v2, ME)
    assert limits.add_host("algo-1", [1.0]).joins != limits.add_host("algo-1", [1.0]).joins


def test_what_is_not_accounted_is_unknown(v2: Path) -> None:
    host = ControlGroups(v2, ME).add_host("algo-1", [1.0])
    assert host.cpu_seconds() is None
    assert host.memory_bytes() is None


def test_closing_removes_all_groups(v1: Path) -> None:
    limits = ControlGroups(v1, ME)
    limits.add_host("algo-1", [1.0])
    limits.close()
    assert list(v1.rglob("counterpoise-*")) == []


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_groups_of_the_dead_are_removed_and_others_kept(version: str, request: pytest.FixtureRequest) -> None:
    root: Path = request.getfixturevalue(version)
    for owner in (ME, DEAD):
        ControlGroups(root, owner).add_host("algo-1", [1.0])
    foreign = root / "cpu" / "counterpoise-of-somebody"
    foreign.mkdir(parents=True)
    remove_stale(root)
    left = {path.name for path in root.rglob("counterpoise-*")}
    assert left == {ME.group_name, foreign.name}


def test_a_missing_tree_gives_affinity_and_says_why(tmp_path: Path) -> None:
    limits = open_limits(ME, tmp_path / "none")
    assert isinstance(limits, CpuSets)
    assert "no cpu controller below" in limits.description


def test_a_tree_that_may_not_be_written_gives_affinity(v1: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    limits = open_limits(ME, v1)
    assert isinstance(limits, CpuSets)
    assert "Permission denied" in limits.description


def test_a_process_is_known_by_its_start_too() -> None:
    assert ME.is_alive()
    assert not DEAD.is_alive()
    assert cgroups.Owner.of(os.getpid()) == ME


def test_a_process_name_may_hold_anything(tmp_path: Path) -> None:
    directory = tmp_path / "7"
    directory.mkdir()
    (directory / "stat").write_text("7 (a) S (b) 1) S " + " ".join(str(field) for field in range(4, 53)))
    assert Owner.of(7, tmp_path) == Owner(7, 22)


def test_affinity_takes_cpus_in_turn() -> None:
    limits = CpuSets([0, 1, 2, 3], "no reason")
    sets = [limits.add_host("host", [cores]).cpus for cores in (0.5, 2.0, 1.5, None, 9.0)]
    assert sets == [{0}, {1, 2}, {3, 0}, {0, 1, 2, 3}, {0, 1, 2, 3}]


def test_a_host_gets_cpus_for_its_largest_share() -> None:
    places = CpuPlaces([0, 1, 2])
    assert len(places.take([0.5, 1.5, 0.2])) == 2
    assert len(places.take([0.5, None])) == 3


@given(st.integers(1, 16), st.floats(0.05, 0.5))
def test_no_cpu_is_promised_much_more_than_another(num_hosts: int, large: float) -> None:
    """A large host and many small ones, whose shares until the first step are all alike."""
    places, small = CpuPlaces([0, 1]), 1.0 / num_hosts
    promised = {0: 0.0, 1: 0.0}
    for share in [large, *[small] * num_hosts]:
        [cpu] = places.take([1.0, share])
        promised[cpu] += share
    assert abs(promised[0] - promised[1]) <= max(large, small) + 1e-9
