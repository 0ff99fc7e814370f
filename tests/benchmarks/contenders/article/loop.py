"""The training loop of the article's program."""

import itertools
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import ray.train
import ray.train.torch
import torch
from torch import nn

from container.bootstrap import log
from tests.benchmarks.accelerator import STEP_SECONDS_VARIABLE, Accelerator
from training.contract import TrainingConfig
from training.data.sources import DEFAULT_NUM_CLASSES
from training.metrics import StepFigures, StepMeter, merge_ranks
from training.models import build_model


def train_loop_per_worker(settings: dict[str, Any]) -> dict[str, Any]:
    """The article's loop, timed as the product's is; returns the figures of the first rank."""
    config: TrainingConfig = settings["config"]
    context = ray.train.get_context()
    torch.manual_seed(config.seed)
    num_classes = config.num_classes or DEFAULT_NUM_CLASSES
    model = build_model(config.model, num_classes, config.image_size, config.model_arguments)
    model = ray.train.torch.prepare_model(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate, momentum=config.momentum)
    meter, loss = StepMeter(), torch.zeros(())  # the article's loss has no value before the first batch
    batches = epochs(config)
    steps = config.num_steps(config.num_records, context.get_world_size())
    for step in range(1, steps + 1):
        began = time.perf_counter()
        batch = next(batches)
        waited = time.perf_counter()
        loss = make_step(model, optimizer, batch)
        figures = StepFigures(
            wait_seconds=waited - began,
            compute_seconds=time.perf_counter() - waited,
            rows_by_host={},
            num_valid=len(batch["label"]),
            preparing_cpu_seconds=0.0,
        )
        meter.add(figures)
        if context.get_world_rank() == 0:
            report(step, steps, config, meter)
    ray.train.report({"loss": float(loss)})
    return merge_ranks([meter.summary()] * context.get_world_size(), config.batch_size)


def epochs(config: TrainingConfig) -> Iterator[dict[str, torch.Tensor]]:
    """Batches of this worker's shard, pass after pass."""
    shard = ray.train.get_dataset_shard("train")
    assert shard is not None
    # The article's loop reads a `prefetch_batches` that nobody passes, a KeyError; this is Ray's default.
    return itertools.chain.from_iterable(
        shard.iter_torch_batches(batch_size=config.batch_size, prefetch_batches=1) for _ in itertools.count()
    )


def make_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """One step of the optimizer, or of the virtual accelerator where the job has one, and its loss."""
    if STEP_SECONDS_VARIABLE in os.environ:
        Accelerator.of(os.environ).step()
        return torch.zeros(())
    loss: torch.Tensor = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


def report(step: int, steps: int, config: TrainingConfig, meter: StepMeter) -> None:
    """The product's lines about its steps."""
    if step == 1:
        log.event("first_step", data_wait_seconds=meter.first_wait_seconds, at=now())
    elif step % config.report_every_steps == 0:
        lap = meter.lap()
        times = {"step_seconds": lap.step_seconds, "data_wait_seconds": lap.data_wait_seconds}
        log.event("step", step=step, steps=steps, **times, at=now())
    if step == steps:
        log.event("last_step", step=step, at=now())


def now() -> str:
    """When it happened: a line of a training worker takes its time through Ray to the driver."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
