"""One training in many processes, each killed at a random step: `python -m tests.faults.many_lives <folder>`.

Prints JSON: of each life the step that it went on from and the step that it was killed in, and the last loss of the
whole and of the same training without an interruption. The lives are forks of this process, which has paid the imports.
"""

import json
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from tests.unit.one_rank import batches_of, make_rank, train
from training import checkpoints
from training.data.batch import Batch
from training.rank import Rank

NUM_KILLS, EVERY, STEPS = 20, 5, 400
LONGEST_LIFE = 25
"""Steps until a life's kill; short enough that the training is not over before the last one."""


def telling(rank: Rank, pipe: int) -> Iterator[Batch]:
    """The rank's batches; the number of the step that takes one is written to the pipe."""
    batches = batches_of(rank)
    for step in range(rank.num_steps_before + 1, rank.num_steps + 1):
        os.write(pipe, f"{step}\n".encode())  # before the wait for a checkpoint: a kill may come while it is written
        yield next(batches)


def live(folder: Path, pipe: int) -> None:
    """Go on with the training in `folder` to its end; its last loss goes to the pipe."""
    kept = folder / "checkpoints"
    kept.mkdir(parents=True, exist_ok=True)
    rank = make_rank(
        folder,
        checkpoint_dir=kept,
        resumed=checkpoints.find(kept).newest,
        steps=STEPS,
        checkpoint_every_steps=EVERY,
    )
    os.write(pipe, f"from {rank.num_steps_before}\n".encode())
    train(rank, telling(rank, pipe))
    os.write(pipe, f"loss {rank.meter.loss!r}\n".encode())


def one_life(folder: Path, num_steps: int) -> dict[str, Any]:
    """Live in a process of its own, which is killed in its `num_steps`-th step, or reaches the end before that."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        live(folder, writing)
        os._exit(0)
    os.close(writing)
    life: dict[str, Any] = {"steps": []}
    with os.fdopen(reading) as lines:
        for line in lines:
            words = line.split()
            if words[0] in ("from", "loss"):
                life[words[0]] = float(words[1])
                continue
            life["steps"].append(int(words[0]))
            if len(life["steps"]) == num_steps:
                os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return life


def main(folder: Path) -> None:
    torch.set_num_threads(1)  # threads do not survive a fork
    chance = random.Random(7)
    lives = [one_life(folder / "killed", chance.randint(2, LONGEST_LIFE)) for _ in range(NUM_KILLS)]
    last, through = one_life(folder / "killed", STEPS + 1), one_life(folder / "through", STEPS + 1)
    print(json.dumps({"lives": [*lives, last], "loss": last["loss"], "loss_through": through["loss"]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
