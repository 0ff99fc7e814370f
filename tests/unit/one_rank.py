"""This process as the only training worker, without a cluster: a rank, a batch and a small model for tests."""

import contextlib
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from training import checkpoints
from training.checkpointer import Checkpointer
from training.checkpoints import Checkpoint
from training.contract import TrainingConfig
from training.data.batch import Batch, Part
from training.data.transforms import Normalize
from training.events import Events
from training.loop import _run_steps
from training.metrics import StepMeter
from training.models import ModelDescription
from training.numerics import build_for_training
from training.rank import Rank, TrainJob
from training.step import Learner

ROWS, SIZE, CLASSES = 6, 16, 3
DESCRIPTION = ModelDescription(
    name="test_vit",
    num_classes=CLASSES,
    image_size=SIZE,
    arguments={"depth": 1, "embed_dim": 16, "num_heads": 2, "patch_size": 8},
    mean=(0.5, 0.5, 0.5),
    std=(0.5, 0.5, 0.5),
    class_names=("a", "b", "c"),
)

WITH_DROPOUT = replace(DESCRIPTION, arguments={**DESCRIPTION.arguments, "proj_drop_rate": 0.3})


def make_rank(
    folder: Path,
    *,
    is_reporting: bool = True,
    checkpoint_dir: Path | None = None,
    resumed: Checkpoint | None = None,
    **settings: Any,
) -> Rank:
    """This process as the only training worker; the real class, without the question to Ray who it is."""
    config = TrainingConfig(**{"batch_size": ROWS, "report_every_steps": 2, **settings})
    rank = Rank.__new__(Rank)
    rank.job = TrainJob(
        config=config,
        description=DESCRIPTION,
        transform=Normalize(),
        training=cast(Any, None),
        num_training_rows=100,
        validation=cast(Any, None),
        num_validation_rows=0,
        cpu_groups=("cpu",),
        head_host="algo-1",
        events_file=folder / "events.jsonl",
        stop_file=folder / "stop",
        model_dir=folder / "model",
        output_dir=folder / "output",
        checkpoint_dir=checkpoint_dir,
        resumed=None,
        identity={"training.model": DESCRIPTION.name},
    )
    rank.job.events_file.touch()
    rank.index, rank.world_size, rank.device, rank.address = 0, 1, torch.device("cpu"), "127.0.0.1"
    rank.is_reporting = is_reporting
    rank.events = Events(rank.job.events_file if is_reporting else None)
    rank.meter = StepMeter()
    rank.is_stopping = rank.wants_checkpoint = rank.is_saving = False
    rank.resumed = resumed
    return rank


def make_batch(valid: list[bool] | None = None, rows: int = ROWS, ended_at: float = 0.0) -> Batch:
    good = np.ones(rows, np.bool_) if valid is None else np.array(valid, np.bool_)
    generator = torch.Generator().manual_seed(5)
    images = torch.randint(0, 256, (rows, SIZE, SIZE, 3), generator=generator, dtype=torch.uint8)
    images[torch.from_numpy(~good)] = 0
    return Batch(
        images=images,
        labels=torch.arange(rows) % CLASSES,
        span=(0, rows),
        valid=good,
        parts=(Part("algo-1", rows, 0.1, ended_at),),
        problems={row: f"{row}.jpg: broken" for row in np.flatnonzero(~good).tolist()},
    )


def wait_for_the_writer() -> None:
    for thread in threading.enumerate():
        if thread.name == "checkpoint":
            thread.join(60)


def batches_of(rank: Rank, *, is_in_a_hurry: bool = False) -> Iterator[Batch]:
    """Batches whose pixels depend on their place in the plan; they wait for checkpoints that are being written."""
    for start, stop in rank.training_spans():
        if not is_in_a_hurry:
            wait_for_the_writer()
        batch = make_batch()
        generator = torch.Generator().manual_seed(start)
        images = torch.randint(0, 256, batch.images.shape, generator=generator, dtype=torch.uint8)
        yield replace(batch, images=images, span=(start, stop))


def train(rank: Rank, batches: Iterable[Batch] | None = None) -> tuple[Learner, bool]:
    torch.manual_seed(0)
    model = build_for_training(WITH_DROPOUT, rank.job.config)
    learner = Learner(model, rank.numerics, num_classes=CLASSES)
    if rank.resumed is not None:
        learner.load_state(rank.resumed.tensors)
        checkpoints.set_random_state(rank.device, rank.resumed.tensors, rank.index)
    with contextlib.closing(Checkpointer(rank, learner)) as checkpointer:
        stopped = _run_steps(rank, learner, batches_of(rank) if batches is None else batches, checkpointer)
    return learner, stopped
