"""This process as the only training worker, without a cluster: a rank, a batch and a small model for tests."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from training.checkpoints import Checkpoint
from training.contract import TrainingConfig
from training.data.batch import Batch, Part
from training.data.transforms import Normalize
from training.events import Events
from training.metrics import StepMeter
from training.models import ModelDescription
from training.rank import Rank, TrainJob

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
