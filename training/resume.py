"""Whether a training goes on from a checkpoint, decided on the head before the cluster is used."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training import checkpoints
from training.checkpoints import Checkpoint
from training.contract import ContractError
from training.events import Events

_WAYS_OUT = "take other checkpoints, or the settings that they were made with"


def find_resume(folder: Path, identity: Mapping[str, Any], events: Events) -> Checkpoint | None:
    """The checkpoint to go on from; None where there is none. Says in events which, and which ones are damaged.

    Raises:
        ContractError: the newest whole checkpoint is of another training.
    """
    found = checkpoints.find(folder)
    for name in found.damaged:
        events.emit("checkpoint_damaged", file=name)
    newest = found.newest
    if newest is None:
        return None
    problems = [
        f"{name}: {own!r}, but {then!r} at the checkpoint of step {newest.step}; {_WAYS_OUT}"
        for name, own in identity.items()
        if (then := newest.identity.get(name)) != own
    ]
    if problems:
        raise ContractError(problems)
    events.emit("resumed", step=newest.step, rows=newest.rows_taken, loss=newest.figures["loss"])
    return newest
