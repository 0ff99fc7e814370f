"""The training loop that every training worker runs: the article's experiment on today's APIs."""

import contextlib
import gc
from collections.abc import Iterable, Iterator
from typing import Any

import ray
import torch

from training.balance import measure_balance
from training.checkpointer import Checkpointer
from training.data.batch import Batch
from training.data.spans import single_pass_spans
from training.metrics import StepTimes
from training.models import bare
from training.numerics import compile_errors_in_one_line
from training.rank import Rank, TrainJob, check_bad_share
from training.step import Learner, LossWatch, usable_rows
from training.timing import StepTimer


def train(settings: dict[str, "ray.ObjectRef[TrainJob]"]) -> dict[str, Any]:
    """Train one model on this rank's share of every batch; the reporting rank also writes the model and the summary.

    Raises:
        ContractError: the first batch is not what the model takes, or the model cannot be compiled.
        BadFiles: too many rows could not be read.
        LossNotFinite: the loss is no number any more; no checkpoint was made of that.
    """
    job = ray.get(settings["job"])
    with compile_errors_in_one_line() if job.config.compile else contextlib.nullcontext():
        return _train(Rank(job))


def _train(rank: Rank) -> dict[str, Any]:
    job = rank.job
    feed = rank.feed(job.training, rank.training_spans())  # first: rows are prepared while the model is built
    try:
        learner = rank.set_up()
        gc.freeze()  # as in the data workers: no collection walks through what the imports have left
        with contextlib.closing(Checkpointer(rank, learner)) as checkpointer:
            stopped = _run_steps(rank, learner, feed, checkpointer)
    finally:
        feed.close()
    balance = None if stopped else measure_balance(rank, learner.model)
    if not stopped:
        rank.note_last_step()
    accuracy = None if stopped or not job.num_validation_rows else _validate(rank, learner)
    return rank.finish(learner.model, stopped=stopped, accuracy=accuracy, balance=balance)


def _run_steps(rank: Rank, learner: Learner, feed: Iterable[Batch], checkpointer: Checkpointer) -> bool:
    """Make every optimizer step, fewer only when asked to stop; returns whether it was.

    The host waits for the device, to read the times and the loss, only where something is to be told; else it reads the
    times of a step when the device already has the next one.
    """
    meter, num_steps = rank.meter, rank.num_steps
    learner.model.train()
    timer, watch = StepTimer(rank.device), LossWatch(rank.device)
    batches = _noted(rank, timer.timed(feed))
    first_step = rank.num_steps_before + 1
    for step in range(first_step, num_steps + 1):
        checkpointer.before_step(step)
        loss = learner.step(batches, rank.rows_of_all)
        watch.note(step, loss)
        timer.end_step()
        is_last = step == num_steps or rank.is_stopping
        is_told = is_last or rank.is_saving or step == first_step or step % rank.job.config.report_every_steps == 0
        if is_told:
            watch.check()
        for figures in timer.read(but=0 if is_told else 1):
            meter.add(figures)
        _report(rank, step, loss)
        checkpointer.after_step(step, loss)
        if is_last:
            meter.loss = _mean_loss(rank, loss)
            break
    last_step = rank.num_steps_before + meter.num_steps
    if last_step < num_steps:
        rank.events.emit("stopped", step=last_step, steps=num_steps)
    return last_step < num_steps


def _noted(rank: Rank, batches: Iterable[Batch]) -> Iterator[Batch]:
    """The same batches; new unreadable rows are reported, and too many end the run."""
    for batch in batches:
        for row, text in batch.problems.items():
            if row not in rank.meter.bad_rows:
                rank.meter.bad_rows[row] = text
                rank.events.emit("unreadable", row=row, reason=text)
                check_bad_share(rank.meter.bad_rows, rank.job)
        yield batch


def _report(rank: Rank, step: int, loss: torch.Tensor) -> None:
    config, meter = rank.job.config, rank.meter
    rank.events.touch()
    if step == rank.num_steps_before + 1:
        rank.events.emit(
            "first_step", data_wait_seconds=meter.first_wait_seconds, compute_seconds=meter.first_compute_seconds
        )
    if step % config.report_every_steps == 0:
        mean_loss = _mean_loss(rank, loss)
        rank.events.emit("step", step=step, steps=rank.num_steps, loss=round(mean_loss, 6), **_rates(meter.lap(), rank))


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
        "images_per_second": round(rank.rows_per_step * rank.world_size / times.step_seconds, 3),
    }


def _validate(rank: Rank, learner: Learner) -> float:
    """Top-1 accuracy, 0..1, over the held-out rows; each row counts once, over all ranks."""
    job = rank.job
    spans = single_pass_spans(
        num_rows=job.num_validation_rows, batch_size=job.config.batch_size, rank=rank.index, world_size=rank.world_size
    )
    feed = rank.feed(job.validation, spans)
    try:
        correct, scored = _score(rank, learner, feed)
    finally:
        feed.close()
    correct, scored = rank.sum(correct), rank.sum(scored)
    accuracy = correct / scored if scored else 0.0
    rank.events.emit("validation", accuracy=round(accuracy, 6), rows=int(scored))
    return accuracy


def _score(rank: Rank, learner: Learner, feed: Iterable[Batch]) -> tuple[float, float]:
    """Rows of this rank whose class the model gets right, and rows that could be read."""
    numerics = rank.numerics
    model = bare(learner.model).eval()  # ranks have different numbers of batches
    correct = torch.zeros((), dtype=torch.int64, device=rank.device)
    scored = 0
    with torch.no_grad():
        for batch in _noted(rank, StepTimer(rank.device).timed(feed)):
            rank.events.touch()
            if batch.valid.any():
                images, labels = usable_rows(batch)
                correct += (numerics.scores(model, numerics.inputs(images)).argmax(dim=1) == labels).sum()
                scored += len(labels)
    return float(correct), float(scored)
