"""The training loop that every training worker runs: the article's experiment on today's APIs."""

import gc
import time
from typing import Any

import ray
import torch
from torch import nn

from training.balance import measure_balance
from training.data.feed import Batch, Feed, single_pass_spans
from training.metrics import StepTimes
from training.rank import Rank, TrainJob, check_bad_share
from training.step import compute_gradients, wait_for


def train(settings: dict[str, "ray.ObjectRef[TrainJob]"]) -> dict[str, Any]:
    """Train one model on this rank's share of every batch; the reporting rank also writes the model and the summary.

    Raises:
        ContractError: the first batch is not what the model takes.
        BadFiles: too many rows could not be read.
    """
    job = ray.get(settings["job"])
    rank = Rank(job)
    model, optimizer = rank.set_up()
    gc.freeze()  # as in the data workers: no collection walks through what the imports have left
    feed = rank.feed(job.training, rank.training_spans())
    try:
        stopped = _run_steps(rank, model, optimizer, feed)
    finally:
        feed.close()
    balance = None if stopped else measure_balance(rank, model)
    if not stopped:
        rank.note_last_step()
    accuracy = None if stopped or not job.num_validation_rows else _validate(rank, model)
    return rank.finish(model, stopped=stopped, accuracy=accuracy, balance=balance)


def _run_steps(rank: Rank, model: nn.Module, optimizer: torch.optim.Optimizer, feed: Feed) -> bool:
    """Make `steps` steps, fewer only when asked to stop; returns whether it was."""
    config, meter = rank.job.config, rank.meter
    model.train()
    batches = iter(feed)
    for step in range(1, config.steps + 1):
        began = time.perf_counter()
        batch = next(batches)
        waited = time.perf_counter()
        _note_bad_rows(rank, batch)
        loss = _step(rank, model, optimizer, batch, is_first=step == 1)
        ended = time.perf_counter()
        meter.add(
            wait_seconds=waited - began,
            compute_seconds=ended - waited,
            rows_by_host=batch.rows_by_host,
            num_valid=int(batch.valid.sum()),
            preparing_cpu_seconds=batch.cpu_seconds,
        )
        _report(rank, step, loss)
        is_stopped = step < config.steps and rank.is_asked_to_stop()
        if is_stopped or step == config.steps:
            meter.loss = _mean_loss(rank, loss)
        if is_stopped:
            rank.events.emit("stopped", step=step, steps=config.steps)
            return True
    return False


def _step(
    rank: Rank, model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, *, is_first: bool
) -> torch.Tensor:
    """One optimizer step, and its loss. Waits for the accelerator: it is timed."""
    loss = compute_gradients(rank, model, batch, is_first=is_first)
    optimizer.step()
    wait_for(rank.device)
    return loss


def _note_bad_rows(rank: Rank, batch: Batch) -> None:
    for row, text in batch.problems.items():
        if row not in rank.meter.bad_rows:
            rank.meter.bad_rows[row] = text
            rank.events.emit("unreadable", row=row, reason=text)
            check_bad_share(rank.meter.bad_rows, rank.job)


def _report(rank: Rank, step: int, loss: torch.Tensor) -> None:
    config, meter = rank.job.config, rank.meter
    rank.events.touch()
    if step == 1:
        rank.events.emit(
            "first_step", data_wait_seconds=meter.first_wait_seconds, compute_seconds=meter.first_compute_seconds
        )
    if step % config.report_every_steps == 0:
        mean_loss = _mean_loss(rank, loss)
        rank.events.emit("step", step=step, steps=config.steps, loss=round(mean_loss, 6), **_rates(meter.lap(), rank))


def _mean_loss(rank: Rank, loss: torch.Tensor) -> float:
    mean: float = rank.sum(float(loss)) / rank.world_size
    return mean


def _rates(times: StepTimes, rank: Rank) -> dict[str, float]:
    """The figures of a `step` event; none after the first step, whose time is no rate."""
    if not times.step_seconds:
        return {}
    return {
        "step_seconds": round(times.step_seconds, 6),
        "data_wait_seconds": round(times.data_wait_seconds, 6),
        "compute_seconds": round(times.compute_seconds, 6),
        "images_per_second": round(rank.job.config.batch_size * rank.world_size / times.step_seconds, 3),
    }


def _validate(rank: Rank, model: nn.Module) -> float:
    """Top-1 accuracy, 0..1, over the held-out rows; each row counts once, over all ranks."""
    job = rank.job
    spans = single_pass_spans(
        num_rows=job.num_validation_rows, batch_size=job.config.batch_size, rank=rank.index, world_size=rank.world_size
    )
    feed = rank.feed(job.validation, spans)
    bare = getattr(model, "module", model).eval()
    correct = scored = 0.0
    try:
        with torch.no_grad():
            for batch in feed:
                _note_bad_rows(rank, batch)
                images = job.transform.on_device(batch.images.to(rank.device))
                right = bare(images).argmax(dim=1).cpu() == batch.labels
                correct += float((right & torch.from_numpy(batch.valid)).sum())
                scored += float(batch.valid.sum())
                rank.events.touch()
    finally:
        feed.close()
    correct, scored = rank.sum(correct), rank.sum(scored)
    accuracy = correct / scored if scored else 0.0
    rank.events.emit("validation", accuracy=round(accuracy, 6), rows=int(scored))
    return accuracy
