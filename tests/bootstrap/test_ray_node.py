"""What Ray is told on each host, how its failure is named, and where its objects go."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from container.bootstrap import host
from container.bootstrap.errors import HostError
from container.bootstrap.host import object_store
from container.bootstrap.ray_node import RayNodeSettings, _cause
from tests.bootstrap.hosts import CPU, GPU, SECOND_GPU, host_context
from tests.bootstrap.job import TOKEN
from training.contract import TrainingConfig

GIB = 2**30
ON_CPU_HOSTS = TrainingConfig(preprocess_on="cpu_hosts")
NUM_CPUS = len(os.sched_getaffinity(0))


def told(settings: RayNodeSettings) -> dict[str, Any]:
    """What the program that starts the daemons is given."""
    *program, given = settings.command()
    assert program == [sys.executable, "-m", "container.ray_daemons"]
    values: dict[str, Any] = json.loads(given)
    return values


@pytest.fixture(autouse=True)
def _room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "shared_memory_free_bytes", lambda _: 10 * GIB)
    monkeypatch.setattr(host, "num_accelerators", lambda: 0)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=100 * GIB))


def test_the_head_opens_a_cluster_on_its_own_address(tmp_path: Path) -> None:
    assert told(host_context(tmp_path, GPU, CPU).ray_settings("10.0.0.1")) == {
        "is_head": True,
        "gcs_server_port": 6379,
        "node_ip_address": "10.0.0.1",
        "node_name": "10.0.0.1",
        "num_cpus": NUM_CPUS,
        "num_gpus": 0,
        "resources": {"trainer": 1},
        "labels": {"host": "algo-1", "group": "gpu"},
        "object_store_memory": int(8.5 * GIB),
        "plasma_directory": "/dev/shm",
    }


def test_a_worker_joins_the_head_with_its_own_address(tmp_path: Path) -> None:
    given = told(host_context(tmp_path, GPU, CPU, current="algo-2").ray_settings("10.0.0.9"))
    assert (given["is_head"], given["gcs_address"], given["node_ip_address"]) == (False, "10.0.0.9:6379", "10.0.0.1")
    assert (given["labels"], given["resources"]) == ({"host": "algo-2", "group": "cpu"}, {})
    assert "gcs_server_port" not in given


def test_the_token_is_never_on_a_command_line_but_its_file_always_known(tmp_path: Path) -> None:
    environ = {"PATH": "/bin", "RAY_AUTH_MODE": "none", "COUNTERPOISE_TOKEN_FILE": "/t"}
    settings = host_context(tmp_path, GPU, CPU, environ=environ).ray_settings("10.0.0.1")
    assert TOKEN not in f"{settings.command()} {settings} {settings.environment}"
    assert settings.environment["RAY_AUTH_MODE"] == "token"
    assert settings.environment["RAY_AUTH_TOKEN_PATH"] == str(tmp_path / "ray_token")
    assert settings.environment["PATH"] == "/bin"


@pytest.mark.parametrize("name", ["algo-1", "algo-3"])
def test_a_training_host_offers_a_place_for_each_of_its_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(host, "num_accelerators", lambda: 4)
    given = told(host_context(tmp_path, GPU, CPU, SECOND_GPU, current=name).ray_settings("10.0.0.1"))
    assert (given["num_gpus"], given["resources"]) == (4, {"trainer": 4})


def test_collectives_are_pinned_to_the_own_interface_where_several_hosts_train(tmp_path: Path) -> None:
    assert "GLOO_SOCKET_IFNAME" not in host_context(tmp_path, GPU, CPU).child_environment()
    assert host_context(tmp_path, GPU, SECOND_GPU).child_environment()["GLOO_SOCKET_IFNAME"] == "eth1"


def test_a_host_that_only_preprocesses_offers_a_worker_for_each_cpu(tmp_path: Path) -> None:
    for config in (TrainingConfig(), ON_CPU_HOSTS):
        assert host_context(tmp_path, GPU, CPU, current="algo-2", config=config).num_data_workers() == NUM_CPUS


def test_a_host_that_only_trains_offers_no_cpu_while_another_can_preprocess(tmp_path: Path) -> None:
    assert host_context(tmp_path, GPU, CPU).num_data_workers() == NUM_CPUS
    assert host_context(tmp_path, GPU, CPU, config=ON_CPU_HOSTS).num_data_workers() == 0
    # Alone, or among hosts that all train, it must preprocess, or nobody does.
    assert host_context(tmp_path, GPU, config=ON_CPU_HOSTS).num_data_workers() == NUM_CPUS
    assert host_context(tmp_path, GPU, SECOND_GPU, config=ON_CPU_HOSTS).num_data_workers() == NUM_CPUS


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        ("", ""),
        ("one\n\n  two  \n\n", "two"),
        ("Local node IP: 1\nTraceback\nConnectionError: no head\nbye", "ConnectionError: no head"),
        ("Failed to start\nRuntimeError: raylet timed out\n", "RuntimeError: raylet timed out"),
        ("x" * 1000, "x" * 300),
    ],
)
def test_the_cause_is_the_line_that_names_the_fault_or_the_last_one(output: str, cause: str) -> None:
    assert _cause(output) == cause


def test_objects_stay_in_shared_memory_and_within_the_hosts_memory(tmp_path: Path) -> None:
    assert object_store(10 * GIB, 100 * GIB, fallback=tmp_path) == ("/dev/shm", int(8.5 * GIB))
    assert object_store(90 * GIB, 100 * GIB, fallback=tmp_path) == ("/dev/shm", 30 * GIB)


def disk(monkeypatch: pytest.MonkeyPatch, free_bytes: int) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=free_bytes // 4096, f_frsize=4096))


def test_objects_go_to_the_disk_where_shared_memory_is_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    disk(monkeypatch, 100 * GIB)
    assert object_store(64 * 2**20, 100 * GIB, fallback=tmp_path) == (str(tmp_path), GIB)
    disk(monkeypatch, GIB)
    assert object_store(64 * 2**20, 100 * GIB, fallback=tmp_path) == (str(tmp_path), GIB // 2)
    assert capsys.readouterr().out.splitlines()[0] == (
        f"counterpoise: event=object_store_on_disk shared_free_bytes=67108864 directory={tmp_path} bytes={GIB}"
    )


def test_no_room_anywhere_is_an_error_with_its_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk(monkeypatch, 8192)
    with pytest.raises(HostError) as caught:
        object_store(1000, 100 * GIB, fallback=tmp_path)
    assert caught.value.exit_code == 3
    assert caught.value.reason == (
        f"object store: /dev/shm has 1000 bytes free and {tmp_path} 8192; needed: 134217728; "
        "give the container more shared memory"
    )
