"""The product with a virtual accelerator, simulated: `python -m tests.benchmarks.cluster_job train` on every host.

Bootstrap, driver, data path and training loop are the product's; only forward and backward are exchanged for a step of
`accelerator.Accelerator`, which the environment of the job describes, and the balance is measured with turns of each
kind of host: all numbers that a bound is made of come from the same job.
"""

import functools
import importlib
import itertools
import os
from collections.abc import Callable
from typing import Any

from tests.benchmarks.accelerator import Accelerator
from tests.cluster.own_driver import replace, run

MODULE = "tests.benchmarks.cluster_job"
TURNS = {"cpu_hosts": ("cpu",), "gpu_hosts": ("gpu",), "all_hosts": None}
"""Groups of `virtual_cluster.article_cluster` by the name of a turn."""


def train(settings: dict[str, Any]) -> Any:
    """The product's loop, in a training worker, with the virtual accelerator."""
    loop, balance, step = (importlib.import_module(f"training.{name}") for name in ("loop", "balance", "step"))
    accelerator = Accelerator.of(os.environ)
    replace(step.Learner, "_add_gradients", simulated_gradients(accelerator))
    replace(balance, "compute_gradients", lambda *_: accelerator.step())
    replace(loop, "measure_balance", functools.partial(balance.measure_balance, turns=TURNS))
    replace(loop, "_report", reporting(loop._report, accelerator))
    return loop.train(settings)


def simulated_gradients(accelerator: Accelerator) -> Callable[..., Any]:
    """What takes the place of forward and backward: gradients stay what they are, the loss is 0."""
    import torch

    def add_gradients(_learner: Any, _batch: Any, _weight: float) -> torch.Tensor:
        accelerator.step()
        return torch.zeros(())

    return add_gradients


def reporting(report: Callable[..., None], accelerator: Accelerator) -> Callable[..., None]:
    """The product's report of a step, and the event `half_way` after the one that the accelerator names."""
    numbers = itertools.count(1)

    def report_step(rank: Any, *arguments: Any) -> None:
        report(rank, *arguments)
        if next(numbers) == accelerator.half_way_step:
            rank.events.emit("half_way")

    return report_step


if __name__ == "__main__":
    run(MODULE)
