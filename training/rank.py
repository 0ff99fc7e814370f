"""One training worker: what it is given, its place in the job, and what it leaves behind."""

import json
import os
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import ray
import ray.train
import ray.train.torch
import torch
import torch.distributed
from torch import nn

from training.checkpoints import Checkpoint, set_random_state
from training.contract import TrainingConfig
from training.data.feed import Feed
from training.data.spans import Span, training_spans
from training.data.transforms import Transform
from training.data.worker import Recipe
from training.data.worker_pool import HOST_VARIABLE, WorkerPool
from training.events import Events
from training.files import write_whole
from training.metrics import StepMeter, merge_ranks
from training.models import ModelDescription, save_model
from training.numerics import Numerics, build_for_training, set_precision
from training.step import Learner

SUMMARY_FILE = "training.json"

T = TypeVar("T")


class BadFiles(RuntimeError):
    """More of the dataset is unreadable than `max_bad_share` allows."""


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
    cpu_groups: tuple[str, ...]
    """Groups without accelerators, where there are others as well; else empty."""
    head_host: str
    events_file: Path
    stop_file: Path
    model_dir: Path
    output_dir: Path
    checkpoint_dir: Path | None
    """None where nobody keeps checkpoints."""
    resumed: "ray.ObjectRef[Checkpoint] | None"
    """What the training goes on from; None begins it."""
    identity: dict[str, Any]
    """What its checkpoints say of the training."""


class Rank:
    """This training worker's place in the job."""

    def __init__(self, job: TrainJob) -> None:
        context = ray.train.get_context()
        self.job = job
        self.index = context.get_world_rank()
        self.world_size = context.get_world_size()
        self.device = ray.train.torch.get_device()
        self.address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        # One rank of the head reports, whatever its number: the model, the events and the summary are files there.
        self.is_reporting = os.environ.get(HOST_VARIABLE) == job.head_host and context.get_local_rank() == 0
        self.events = Events(job.events_file if self.is_reporting else None)
        self.meter = StepMeter()
        self.is_stopping = False
        """Whether SIGTERM had reached the head when `rows_of_all` was last called; the same on every rank."""
        self.wants_checkpoint = self.is_saving = False
        """Whether the reporting rank asks for a checkpoint after this step; `is_saving` is the same on every rank."""
        self.resumed: Checkpoint | None = None if job.resumed is None else ray.get(job.resumed)
        if self.resumed is not None:
            self.meter.bad_rows.update({int(row): text for row, text in self.resumed.figures["bad_rows"].items()})
        # Figures of the host have a group of their own: through the accelerator's they would wait for all of its work.
        self._hosts: Any = torch.distributed.new_group(backend="gloo") if self.world_size > 1 else None

    @property
    def num_steps_before(self) -> int:
        """Optimizer steps that earlier jobs have made."""
        return self.resumed.step if self.resumed else 0

    @property
    def num_steps(self) -> int:
        """Optimizer steps of the training, with those of earlier jobs."""
        return self.job.config.num_steps(
            self.job.num_training_rows,
            self.world_size,
            steps_before=self.num_steps_before,
            rows_before=self.rows_taken(self.num_steps_before),
        )

    def rows_taken(self, step: int) -> int:
        """Places of the plan that all ranks together, and earlier jobs, have used after a step of this job."""
        taken: int = (step - self.num_steps_before) * self.rows_per_step * self.world_size
        return taken + (self.resumed.rows_taken if self.resumed else 0)

    @property
    def rows_per_step(self) -> int:
        """Rows of this rank in one optimizer step."""
        return self.job.config.batch_size * self.job.config.accumulate_batches

    @property
    def numerics(self) -> Numerics:
        """How this rank's device computes."""
        return Numerics(device=self.device, config=self.job.config, transform=self.job.transform)

    def set_up(self) -> Learner:
        """The model with fresh weights, on its device and wrapped for several ranks, ready to learn."""
        config = self.job.config
        set_precision(config.precision)
        torch.manual_seed(config.seed)
        model = ray.train.torch.prepare_model(build_for_training(self.job.description, config))
        self.events.emit(
            "training_started",
            model=config.model,
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            ranks=self.world_size,
            device=str(self.device),
            precision=config.precision,
            **self._collectives(),
        )
        if config.precision == "tf32" and self.device.type == "cpu":
            self.events.emit("note", text="precision tf32 has no effect on a CPU; it computes as with fp32")
        learner = Learner(model, self.numerics, num_classes=self.job.description.num_classes, num_ranks=self.world_size)
        if self.resumed is not None:
            learner.load_state(self.resumed.tensors)
            set_random_state(self.device, self.resumed.tensors, self.index)
        return learner

    def _collectives(self) -> dict[str, Any]:
        """What gradients are exchanged with and through which network interface, as process 1 has chosen it."""
        if self.world_size == 1:
            return {}
        backend = torch.distributed.get_backend()
        return {"backend": backend, "interface": os.environ.get(f"{backend.upper()}_SOCKET_IFNAME")}

    def feed(
        self, recipe: "ray.ObjectRef[Recipe]", spans: Iterable[Span], groups: Collection[str] | None = None
    ) -> Feed:
        """A feed of this rank's batches, prepared by the hosts of `groups`, or by all; every rank has to ask for it."""
        config, transform = self.job.config, self.job.transform
        feed = Feed(
            spans,
            batch_rows=config.batch_size,
            wire_shape=transform.wire_shape(config.image_size),
            wire_dtype=transform.wire_dtype,
            address=self.address,
            device=self.device,
            prefetch_batches=config.prefetch_batches,
        )
        endpoints = self.gather(feed.endpoint)
        if self.is_reporting:
            feed.workers = WorkerPool(recipe, endpoints, groups=groups, on_failure=feed.fail)
        return feed

    def training_spans(self) -> Iterator[Span]:
        """The places of this rank's training batches."""
        config = self.job.config
        return training_spans(
            num_batches=(self.num_steps - self.num_steps_before) * config.accumulate_batches,
            batch_size=config.batch_size,
            rank=self.index,
            world_size=self.world_size,
            first=self.rows_taken(self.num_steps_before),
        )

    def is_asked_to_stop(self) -> bool:
        """Whether SIGTERM has reached the head; all ranks answer alike, so that none waits for one that has left."""
        return self.sum(self._sees_stop_file()) > 0

    def rows_of_all(self, num_rows: int) -> int:
        """The sum of a step's rows over all ranks. The same exchange tells every rank whether to stop or to save."""
        total, asked, wanted = self._sums(num_rows, self._sees_stop_file(), self.wants_checkpoint)
        self.is_stopping, self.is_saving = asked > 0, wanted > 0
        return int(total)

    def _sees_stop_file(self) -> bool:
        return self.is_reporting and self.job.stop_file.exists()

    def note_last_step(self) -> None:
        """Say that the last batch has been used: from here on the job ends."""
        self.meter.work_ended_at = time.time()
        self.events.emit("last_step", step=self.num_steps)

    def gather(self, value: T) -> list[T]:
        """What every rank gives, in the order of the ranks."""
        if self.world_size == 1:
            return [value]
        values: list[Any] = [None] * self.world_size
        torch.distributed.all_gather_object(values, value, group=self._hosts)
        return values

    def sum(self, value: float) -> float:
        """The sum of a number over all ranks."""
        (total,) = self._sums(value)
        return total

    def _sums(self, *values: float) -> tuple[float, ...]:
        if self.world_size == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64)
        torch.distributed.all_reduce(tensor, group=self._hosts)
        return tuple(tensor.tolist())

    def finish(
        self, model: nn.Module, *, stopped: bool, accuracy: float | None, balance: dict[str, list[float]] | None
    ) -> dict[str, Any]:
        """Gather every rank's figures; the reporting rank writes model and summary, each whole or not at all."""
        summary = {
            **merge_ranks(self.gather(self.meter.summary()), self.rows_per_step),
            "stopped": stopped,
            "resumed_from_step": self.num_steps_before,
            "validation_accuracy": accuracy,
            "validation_rows": self.job.num_validation_rows,
            "balance": balance,
        }
        check_bad_share(summary["bad_rows"], self.job)
        if self.is_reporting:
            save_model(model, self.job.model_dir, self.job.description)
            self.job.output_dir.mkdir(parents=True, exist_ok=True)
            text = json.dumps(summary, indent=1)
            write_whole(self.job.output_dir / SUMMARY_FILE, lambda path: path.write_text(text))
            self.events.emit("model_saved", directory=str(self.job.model_dir))
        return summary


def check_bad_share(bad_rows: dict[Any, str], job: TrainJob) -> None:
    """Raise BadFiles, naming the first few, when more rows are unreadable than the settings allow."""
    share = job.config.max_bad_share
    num_rows = job.num_training_rows + job.num_validation_rows
    if len(bad_rows) / num_rows > share:  # not share * num_rows: 0.29 * 100 is less than 29
        names = "; ".join(list(bad_rows.values())[:3])
        raise BadFiles(
            f"{len(bad_rows)} of {num_rows} images are unreadable, allowed: {share:.4g} of all (max_bad_share); "
            f"first: {names}; mend or remove them, or raise the limit"
        )
