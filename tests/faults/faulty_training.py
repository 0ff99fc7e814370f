"""The product's training at a set pace, which notes its rows and fails where it is told to, on every host.

`python -m tests.faults.faulty_training train`; the environment says how.
"""

import importlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.cluster.own_driver import replace, run

MODULE = "tests.faults.faulty_training"
STEP_SECONDS_VARIABLE = "COUNTERPOISE_TEST_STEP_SECONDS"
FAULT_VARIABLE = "COUNTERPOISE_TEST_FAULT"
"""`<what> <step> <rank>`: what happens before that step of this job, on that rank: raise, hang or nan."""


def train(settings: dict[str, Any]) -> Any:
    """The product's loop, in a training worker."""
    loop, step = (importlib.import_module(f"training.{name}") for name in ("loop", "step"))
    replace(step.Learner, "step", paced(step.Learner.step))
    replace(loop, "_noted", noting(loop._noted))
    return loop.train(settings)


def paced(make_step: Callable[..., Any]) -> Callable[..., Any]:
    """A step that takes some time, and the fault."""
    import ray.train

    seconds = float(os.environ[STEP_SECONDS_VARIABLE])
    what, at, rank = os.environ.get(FAULT_VARIABLE, "none 0 0").split()
    is_here = ray.train.get_context().get_world_rank() == int(rank)
    numbers = itertools.count(1)

    def one_step(learner: Any, batches: Any, sum_rows: Any) -> Any:
        is_due = next(numbers) == int(at) and is_here
        time.sleep(seconds)
        if is_due and what == "raise":
            raise ArithmeticError("a step that must not be made")
        if is_due and what == "hang":
            threading.Event().wait(600)
        loss = make_step(learner, batches, sum_rows)
        return loss * float("nan") if is_due and what == "nan" else loss

    return one_step


def noting(noted: Callable[..., Iterable[Any]]) -> Callable[..., Iterator[Any]]:
    """The same batches; the rows of each are a line of a file of this rank, in the folder of results."""
    import ray

    def note(rank: Any, batches: Iterable[Any]) -> Iterator[Any]:
        plan = ray.get(rank.job.training).plan
        file = rank.job.output_dir / f"rows-{rank.index}.txt"
        for batch in noted(rank, batches):
            with file.open("a") as lines:
                lines.write(" ".join(map(str, plan.rows(*batch.span))) + "\n")
            yield batch

    return note


if __name__ == "__main__":
    run(MODULE)
