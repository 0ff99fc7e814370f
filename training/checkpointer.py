"""When a training saves its state: every so many steps, beside the steps that follow, and where it is stopped."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import torch

from training import checkpoints
from training.checkpoints import Checkpoint
from training.rank import Rank
from training.step import Learner

WRITE_SECONDS = 60.0
"""Longest wait for the last checkpoint; SageMaker gives a stopped job 120 s for everything."""


class Checkpointer:
    """Saves the state of one training. Every rank calls it alike; the reporting one writes.

    Copies are taken between two steps; a thread writes them while the next steps run. A checkpoint that is due while
    the one before is still being written is saved as soon as that has ended.
    """

    def __init__(self, rank: Rank, learner: Learner) -> None:
        self._rank = rank
        self._learner = learner
        self._folder = rank.job.checkpoint_dir
        self._next_step = rank.num_steps_before + rank.job.config.checkpoint_every_steps
        self._writing: threading.Thread | None = None
        self._kept: list[Path] = []
        if rank.is_reporting and self._folder is not None and rank.resumed is not None:
            # Newer ones than that are damaged: nothing to go on from, so they take nobody's place.
            self._kept = [
                path for path in checkpoints.files(self._folder) if checkpoints.step_of(path) <= rank.resumed.step
            ]

    def before_step(self, step: int) -> None:
        """Ask for a checkpoint after this step, if one is due; every rank hears of it during the step."""
        is_due = self._folder is not None and self._next_step <= step < self._rank.num_steps
        self._rank.wants_checkpoint = self._rank.is_reporting and is_due and not self._is_writing

    def after_step(self, step: int, loss: torch.Tensor) -> None:
        """Save, if that was asked for, or if the run is being stopped."""
        is_stopped = self._rank.is_stopping and step < self._rank.num_steps
        if self._folder is not None and (self._rank.is_saving or is_stopped):
            self._save(step, loss)
            self._next_step = step + self._rank.job.config.checkpoint_every_steps

    def close(self) -> None:
        """Wait for what is being written."""
        if self._writing is not None:
            self._writing.join(WRITE_SECONDS)
            if self._writing.is_alive():
                self._rank.events.emit("checkpoint_failed", reason=f"not written within {WRITE_SECONDS:.0f} s")

    @property
    def _is_writing(self) -> bool:
        return self._writing is not None and self._writing.is_alive()

    def _save(self, step: int, loss: torch.Tensor) -> None:
        rank = self._rank
        own = checkpoints.random_state(rank.device, rank.index), float(loss)
        everyone: list[Any] = rank.gather(own)
        if not rank.is_reporting:
            return
        tensors = self._learner.state()
        for random_state, _ in everyone:
            tensors.update(random_state)
        checkpoint = Checkpoint(
            step=step,
            rows_taken=rank.rows_taken(step),
            tensors=tensors,
            identity=rank.job.identity,
            figures={
                "loss": sum(loss for _, loss in everyone) / len(everyone),
                "bad_rows": {str(row): text for row, text in rank.meter.bad_rows.items()},
            },
        )
        self.close()  # of two that are due at once, as a stopped run's, the later waits
        self._writing = threading.Thread(target=self._write, args=(checkpoint,), name="checkpoint", daemon=True)
        self._writing.start()

    def _write(self, checkpoint: Checkpoint) -> None:
        assert self._folder is not None
        began = time.monotonic()
        try:
            path = checkpoints.write(self._folder, checkpoint)
        except OSError as error:
            # The training itself lacks nothing; the checkpoints before this one are still there.
            self._rank.events.emit("checkpoint_failed", step=checkpoint.step, reason=f"{self._folder}: {error}")
            return
        size_bytes = path.stat().st_size
        self._kept = [*(kept for kept in self._kept if kept != path), path]
        while len(self._kept) > self._rank.job.config.keep_checkpoints:
            self._kept.pop(0).unlink(missing_ok=True)
        self._rank.events.emit(
            "checkpoint", step=checkpoint.step, bytes=size_bytes, seconds=round(time.monotonic() - began, 3)
        )
