"""Measures one contender in a process of its own: `python -m ... CONTENDER WORKLOAD` as process 1 of a local host."""

import importlib
import sys
import time
from collections.abc import Iterator

import torch

from container.bootstrap import log
from container.bootstrap.addresses import num_usable_cpus
from container.bootstrap.telemetry import HostMeter
from tests.benchmarks.contenders.work import BATCH_SIZE, WORKLOADS, Work

_PAGE_BYTES = 4096


def main(contender: str, workload_name: str) -> None:
    """Prints one event: images and CPU seconds between the end of the warm-up and the last batch."""
    workload, meter = WORKLOADS[workload_name], HostMeter()
    work = Work(
        source=workload.source,
        transform=workload.transform,
        num_batches=workload.num_warm_up_batches + workload.num_batches,
        num_workers=num_usable_cpus(meter.quota_cores()),
    )
    batches = importlib.import_module(f"tests.benchmarks.contenders.{contender}").batches(work)
    use(batches, workload.num_warm_up_batches)
    began, cpu_seconds_before = time.perf_counter(), meter.sample().cpu_seconds
    use(batches, workload.num_batches)
    seconds = time.perf_counter() - began
    cpu_seconds = meter.sample().cpu_seconds - cpu_seconds_before
    num_images = workload.num_batches * BATCH_SIZE
    log.event(
        "measured",
        images_per_second=num_images / seconds,
        cpu_ms_per_image=1e3 * cpu_seconds / num_images,
        cpu_ms_per_mb=1e3 * cpu_seconds / (num_images * work.new_images().nbytes / 1e6),
    )


def use(batches: Iterator[tuple[torch.Tensor, torch.Tensor]], num_batches: int) -> None:
    """Take batches, and look at every page of them, as a copy to a device would."""
    for _ in range(num_batches):
        images, labels = next(batches)
        assert len(images) == len(labels) == BATCH_SIZE
        images.view(torch.uint8).flatten()[::_PAGE_BYTES].sum()


if __name__ == "__main__":
    main(*sys.argv[1:])
