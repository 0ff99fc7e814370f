"""One training worker: what it is given, its place in the job, and what it leaves behind."""

import json
import os
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import ray.train
import ray.train.torch
import torch
import torch.distributed
from torch import nn

from training.contract import TrainingConfig
from training.data.feed import HOST_VARIABLE, Feed, Recipe, Span, training_spans
from training.data.transforms import Transform
from training.events import Events
from training.metrics import StepMeter, merge_ranks
from training.models import ModelDescription, build_model, save_model

SUMMARY_FILE = "training.json"


class BadFiles(RuntimeError):
    """More of the dataset is unreadable than `max_bad_file_share` allows."""


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """What each training worker is given; everything in it pickles small. Files are those of the head."""

    config: TrainingConfig
    description: ModelDescription
    transform: Transform
    training: "ray.ObjectRef[Recipe]"
    num_training_rows: int
    validation: "ray.ObjectRef[Recipe]"
    num_validation_rows: int
    max_tasks: int
    cpu_groups: tuple[str, ...]
    """Groups without accelerators, where there are others as well; else empty."""
    head_host: str
    events_file: Path
    stop_file: Path
    model_dir: Path
    output_dir: Path


class Rank:
    """This training worker's place in the job."""

    def __init__(self, job: TrainJob) -> None:
        context = ray.train.get_context()
        self.job = job
        self.index = context.get_world_rank()
        self.world_size = context.get_world_size()
        self.device = ray.train.torch.get_device()
        # One rank of the head reports, whatever its number: the model, the events and the summary are files there.
        self.is_reporting = os.environ.get(HOST_VARIABLE) == job.head_host and context.get_local_rank() == 0
        self.events = Events(job.events_file if self.is_reporting else None)
        self.meter = StepMeter()

    def set_up(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        """The model on its device, wrapped for several ranks, and its optimizer."""
        config, description = self.job.config, self.job.description
        torch.manual_seed(config.seed)
        model = build_model(description.name, description.num_classes, description.image_size, description.arguments)
        wrapped: nn.Module = ray.train.torch.prepare_model(model)
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=config.learning_rate, momentum=config.momentum)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        device = str(self.device)
        self.events.emit(
            "training_started", model=config.model, parameters=parameters, ranks=self.world_size, device=device
        )
        return wrapped, optimizer

    def feed(
        self, recipe: "ray.ObjectRef[Recipe]", spans: Iterable[Span], groups: Collection[str] | None = None
    ) -> Feed:
        """A feed of this rank's batches, prepared by the hosts of `groups`, or by all."""
        config = self.job.config
        return Feed(
            recipe,
            spans,
            batch_rows=config.batch_size,
            max_tasks=max(2, self.job.max_tasks // self.world_size),
            prefetch_batches=config.prefetch_batches,
            groups=groups,
        )

    def training_spans(self) -> Iterator[Span]:
        """The places of this rank's training batches."""
        config = self.job.config
        return training_spans(
            num_steps=config.steps, batch_size=config.batch_size, rank=self.index, world_size=self.world_size
        )

    def is_asked_to_stop(self) -> bool:
        """Whether SIGTERM has reached the head; all ranks answer alike, so that none waits for one that has left."""
        asked = self.is_reporting and self.job.stop_file.exists()
        return asked if self.world_size == 1 else bool(self.sum(float(asked)))

    def note_last_step(self) -> None:
        """Say that the last batch has been used: from here on the job ends."""
        self.meter.work_ended_at = time.time()
        self.events.emit("last_step", step=self.job.config.steps)

    def sum(self, value: float) -> float:
        """The sum of a number over all ranks."""
        if self.world_size == 1:
            return value
        tensor = torch.tensor(value, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(tensor)
        return float(tensor.item())

    def finish(
        self, model: nn.Module, *, stopped: bool, accuracy: float | None, balance: dict[str, list[float]] | None
    ) -> dict[str, Any]:
        """Gather every rank's figures; the reporting rank writes model and summary, each whole or not at all."""
        ranks = [self.meter.summary()]
        if self.world_size > 1:
            ranks = [{} for _ in range(self.world_size)]
            torch.distributed.all_gather_object(ranks, self.meter.summary())
        summary = {
            **merge_ranks(ranks, self.job.config.batch_size),
            "stopped": stopped,
            "validation_accuracy": accuracy,
            "validation_rows": self.job.num_validation_rows,
            "balance": balance,
        }
        check_bad_share(summary["bad_rows"], self.job)
        if self.is_reporting:
            save_model(model, self.job.model_dir, self.job.description)
            self.job.output_dir.mkdir(parents=True, exist_ok=True)
            partial = self.job.output_dir / f".{SUMMARY_FILE}.partial"
            partial.write_text(json.dumps(summary, indent=1))
            partial.rename(self.job.output_dir / SUMMARY_FILE)
            self.events.emit("model_saved", directory=str(self.job.model_dir))
        return summary


def check_bad_share(bad_rows: dict[Any, str], job: TrainJob) -> None:
    """Raise BadFiles, naming the first few, when more rows are unreadable than the settings allow."""
    share = job.config.max_bad_file_share
    num_rows = job.num_training_rows + job.num_validation_rows
    if len(bad_rows) / num_rows > share:  # not share * num_rows: 0.29 * 100 is less than 29
        names = "; ".join(list(bad_rows.values())[:3])
        raise BadFiles(
            f"{len(bad_rows)} of {num_rows} images are unreadable, allowed: {share:.4g} of all (max_bad_file_share); "
            f"first: {names}; mend or remove them, or raise the limit"
        )
