"""What a host knows about itself and its job, read once at the start and passed on as one value."""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from container.bootstrap import log
from container.bootstrap.addresses import (
    OwnAddress,
    choose_own_address,
    collective_environment,
    num_usable_cpus,
    usable_addresses,
)
from container.bootstrap.cluster import Cluster
from container.bootstrap.environment import JobPaths
from container.bootstrap.errors import CLUSTER_NOT_FORMED, HostError
from container.bootstrap.ray_node import RayNodeSettings
from container.bootstrap.telemetry import HostMeter, num_accelerators, shared_memory_free_bytes
from container.bootstrap.token import Token
from container.bootstrap.user import User
from training.contract import TrainingConfig

SHARED_MEMORY = "/dev/shm"
OBJECT_STORE_SHARE_OF_SHARED_MEMORY = 0.85
OBJECT_STORE_SHARE_OF_MEMORY = 0.3
OBJECT_STORE_MINIMUM_BYTES = 128 * 2**20
"""Below this a few batches of float32 images block each other."""


@dataclass(frozen=True, kw_only=True)
class HostContext:
    """One host of one job. `runtime_dir` is this host's own, mode 0700."""

    cluster: Cluster
    config: TrainingConfig
    paths: JobPaths
    runtime_dir: Path
    token: Token
    own: OwnAddress
    meter: HostMeter
    user: User | None
    """Who Ray and the driver run as; None: who process 1 is."""
    environ: Mapping[str, str]

    @property
    def versions(self) -> dict[str, str]:
        """What has to be the same on every host."""
        major, minor, _ = platform.python_version_tuple()
        return {"python": f"{major}.{minor}", "ray": version("ray")}

    @property
    def role(self) -> str:
        """`head` or `worker`."""
        return "head" if self.cluster.is_head else "worker"

    @property
    def is_training(self) -> bool:
        """Whether training workers run here."""
        return self.cluster.current_host in self.cluster.training_hosts

    def num_data_workers(self) -> int:
        """How many data workers run here, one per CPU; Ray is told this number as the host's CPUs.

        On a host that trains as well they give way to the trainer and to Ray, by priority: how much they do is what
        those two leave. None on a host that only trains, as long as another host is there.
        """
        has_others = len(self.cluster.training_hosts) < len(self.cluster.hosts)
        if self.is_training and has_others and self.config.preprocess_on == "cpu_hosts":
            return 0
        return num_usable_cpus(self.meter.quota_cores())

    def child_environment(self) -> dict[str, str]:
        """The environment of Ray and of the driver."""
        return {
            **self.environ,
            **(self.user.environment() if self.user else {}),
            **self.token.ray_environment(),
            **collective_environment(self.own.interface, num_training_hosts=len(self.cluster.training_hosts)),
            # Data workers lower their own priority; the rest of Ray must not, or preprocessing starves it.
            "RAY_worker_niceness": "0",
            "COUNTERPOISE_HOST": self.cluster.current,
            # Tensors of an image come and go many times; glibc would give their pages back and take them again,
            # which made an image of the article's transform cost 63 ms of CPU time instead of 39.
            "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
            "MALLOC_MMAP_THRESHOLD_": str(64 << 20),
            # Nobody reads Ray's own metrics and records here; they cost a small GPU host a few percent of a core.
            "RAY_enable_metrics_collection": "0",
            "RAY_task_events_report_interval_ms": "0",
            "RAY_event_stats": "0",
            # How often Ray looks for memory that runs out; its 250 ms cost an idle host a quarter of what it costs.
            "RAY_memory_monitor_refresh_ms": "1000",
            # A process that has paid its imports is kept for the next feed; by default Ray ends it after a second.
            "RAY_idle_worker_killing_time_threshold_ms": "86400000",
            "RAY_USAGE_STATS_ENABLED": "0",
            # Work of a job asks for an environment of its own, so what Ray starts without work is never used.
            "RAY_prestart_worker_first_driver": "0",
            "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
            "RAY_TRAIN_METRICS_ENABLED": "0",
        }

    def process_options(self) -> dict[str, Any]:
        """What else subprocess.Popen has to be told for them."""
        return self.user.process_options() if self.user else {}

    def ray_settings(self, head_address: str) -> RayNodeSettings:
        """What Ray is told here."""
        directory, size_bytes = object_store(
            shared_memory_free_bytes(SHARED_MEMORY), int(psutil.virtual_memory().total), fallback=self.runtime_dir
        )
        return RayNodeSettings(
            is_head=self.cluster.is_head,
            address=self.own.address,
            head_address=head_address,
            num_cpus=self.num_data_workers(),
            num_accelerators=num_accelerators(),
            num_trainers=max(1, num_accelerators()) if self.is_training else 0,
            labels={"host": self.cluster.current, "group": self.cluster.current_host.group},
            object_store_bytes=size_bytes,
            plasma_directory=directory,
            environment=self.child_environment(),
            process_options=self.process_options(),
        )


def make_context(
    cluster: Cluster,
    config: TrainingConfig,
    paths: JobPaths,
    token: Token,
    *,
    user: User | None,
    runtime_dir: Path,
    environ: Mapping[str, str],
) -> HostContext:
    """Read this machine once; `environ` goes to every child.

    Raises:
        HostError: this host has no address that another could reach.
    """
    return HostContext(
        cluster=cluster,
        config=config,
        paths=paths,
        runtime_dir=runtime_dir,
        token=token,
        own=choose_own_address(cluster.interface, usable_addresses(), cluster.current),
        meter=HostMeter(),
        user=user,
        environ=dict(environ),
    )


def object_store(shared_free_bytes: int, memory_bytes: int, *, fallback: Path) -> tuple[str, int]:
    """Where Ray keeps objects and how many bytes of them: in shared memory, or on disk where that has no room.

    Raises:
        HostError: neither shared memory nor the disk has room.
    """
    size_bytes = int(
        min(shared_free_bytes * OBJECT_STORE_SHARE_OF_SHARED_MEMORY, memory_bytes * OBJECT_STORE_SHARE_OF_MEMORY)
    )
    if size_bytes >= OBJECT_STORE_MINIMUM_BYTES:
        return SHARED_MEMORY, size_bytes
    disk = os.statvfs(fallback)
    disk_free_bytes = disk.f_bavail * disk.f_frsize
    size_bytes = int(min(2**30, disk_free_bytes * 0.5))
    if size_bytes < OBJECT_STORE_MINIMUM_BYTES:
        raise HostError(
            CLUSTER_NOT_FORMED,
            f"object store: {SHARED_MEMORY} has {shared_free_bytes} bytes free and {fallback} {disk_free_bytes}; "
            f"needed: {OBJECT_STORE_MINIMUM_BYTES}; give the container more shared memory",
        )
    log.event("object_store_on_disk", shared_free_bytes=shared_free_bytes, directory=str(fallback), bytes=size_bytes)
    return str(fallback), size_bytes
