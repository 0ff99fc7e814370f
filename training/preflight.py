"""Every check of a run that needs no cluster; also a command, so that a mistake costs seconds and not a job."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.contract import ContractError, TrainingConfig
from training.data.plan import RowPlan, split_rows
from training.data.sources import Source, open_source
from training.data.transforms import Transform, check_transform, create_transform
from training.models import ModelDescription, check_model, model_mean_and_std

EXIT_BAD_INPUT = 2


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run will do, all of it checked; made without a cluster."""

    source: Source
    transform: Transform
    description: ModelDescription
    training: RowPlan
    validation: RowPlan | None
    notes: tuple[str, ...]
    """What is not wrong, but the user should know."""

    @property
    def identity(self) -> dict[str, Any]:
        """What a training that goes on from a checkpoint has in common with the one that wrote it, by name."""
        return {
            "training.model": self.description.name,
            "training.model_arguments": dict(self.description.arguments),
            "training.num_classes": self.description.num_classes,
            "training.image_size": self.description.image_size,
            "training.seed": self.training.seed,
            "rows to train on": self.num_training_rows,
        }

    @property
    def num_training_rows(self) -> int:
        """Rows of one epoch."""
        return self.training.num_rows

    @property
    def num_validation_rows(self) -> int:
        """Held-out rows."""
        return self.validation.num_rows if self.validation else 0


def check(config: TrainingConfig, data_dir: Path) -> Plan:
    """Open the data, look up the model, transform one row, lay out all of them.

    Raises:
        ContractError: whatever is wrong with the settings, the data or the user's code, one line per problem.
    """
    source = open_source(config, data_dir)
    num_classes = config.num_classes or source.num_classes
    check_model(config.model, num_classes, config.image_size, config.model_arguments)
    mean, std = model_mean_and_std(config.model)
    transform = create_transform(config, mean, std, data_dir)
    notes = check_transform(transform, source, config.image_size)
    split = split_rows(source.num_rows, config.validation_share, config.seed, source.known_labels())
    return Plan(
        source=source,
        transform=transform,
        description=ModelDescription(
            name=config.model,
            num_classes=num_classes,
            image_size=config.image_size,
            arguments=config.model_arguments,
            mean=mean,
            std=std,
            class_names=source.class_names,
        ),
        training=RowPlan(
            len(split.training),
            config.seed,
            shuffle=True,
            subset=split.training,
            read_groups=source.read_groups(),
        ),
        validation=RowPlan(len(split.validation), config.seed, shuffle=False, subset=split.validation)
        if len(split.validation)
        else None,
        notes=tuple(notes),
    )


def read_hyperparameters(path: Path) -> Mapping[str, Any]:
    """The platform's hyperparameters; a file that is absent is a job without any.

    Raises:
        ContractError: the file holds no JSON object.
    """
    if not path.exists():
        return {}
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ContractError([f"hyperparameters: cannot read {path} ({error}); it must hold a JSON object"]) from error
    if not isinstance(values, dict):
        raise ContractError([f"hyperparameters: {path} holds no JSON object; write one such as {{}}"])
    return values


def main(arguments: Sequence[str]) -> int:
    """Check settings and data; prints one line per problem and returns 2 if there is any."""
    parser = argparse.ArgumentParser(prog="python -m training.preflight", description=__doc__)
    parser.add_argument("--hyperparameters", type=Path, required=True, help="a hyperparameters.json")
    parser.add_argument("--data-dir", type=Path, required=True, help="the folder with one folder per input channel")
    values = parser.parse_args(arguments)
    try:
        plan = check(TrainingConfig.from_hyperparameters(read_hyperparameters(values.hyperparameters)), values.data_dir)
    except ContractError as error:
        print("\n".join(error.problems), file=sys.stderr)
        return EXIT_BAD_INPUT
    for note in plan.notes:
        print(f"note: {note}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
