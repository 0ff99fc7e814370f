"""The same job with Ray Data in place of the feed: the contender of docs/adr/0002, not part of the product.

Process 1, driver and training loop are the product's; only what brings the batches is exchanged. It uses what was
found best for Ray Data on this kind of work: blocks that equal batches, one fused read-and-map task per block.
"""

import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

MODULE = "tests.benchmarks.ray_data_job"


class RayDataFeed:
    """The interface of training.data.feed.Feed over a Ray Data pipeline that runs in the training worker."""

    def __init__(self, recipe: Any, spans: Iterable[tuple[int, int]], *, prefetch_batches: int, **_: Any) -> None:
        import ray.data

        edges = list(spans)
        start, stop = edges[0][0], edges[-1][1]
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = False
        dataset: Any = ray.data.range(stop - start, override_num_blocks=len(edges))
        self._batches = dataset.map_batches(
            prepare_rows, batch_size=None, fn_kwargs={"recipe": recipe, "offset": start}, zero_copy_batch=True
        ).iter_batches(batch_size=edges[0][1] - edges[0][0], batch_format="numpy", prefetch_batches=prefetch_batches)

    def __iter__(self) -> Iterator[Any]:
        import time

        import torch

        from training.data.feed import Batch, Part

        names = os.environ["COUNTERPOISE_HOSTS"].split(",")
        for block in self._batches:
            counts = np.bincount(block["host"], minlength=len(names)).tolist()
            seconds_per_row = float(block["cpu_seconds"].mean())
            yield Batch(
                images=torch.from_numpy(np.array(block["image"])),
                labels=torch.from_numpy(np.array(block["label"])),
                rows=block["row"],
                valid=np.array(block["valid"]),
                parts=tuple(
                    Part(name, count, count * seconds_per_row, time.time())
                    for name, count in zip(names, counts, strict=True)
                ),
                problems={},
            )

    def close(self) -> None:
        """Nothing to stop: the pipeline ends with the job."""


def prepare_rows(block: dict[str, Any], recipe: Any, offset: int) -> dict[str, Any]:
    """Prepare the rows of one block with the product's own code."""
    import time

    import ray

    from training.data.feed import become_data_worker
    from training.data.transforms import prepare_batch

    become_data_worker()
    began = time.process_time()
    recipe = ray.get(recipe)
    places = block["id"] + offset
    rows = recipe.plan.rows(int(places[0]), int(places[-1]) + 1)
    prepared = dict(prepare_batch(recipe.source, recipe.transform, rows, recipe.image_size))
    names = os.environ["COUNTERPOISE_HOSTS"].split(",")
    prepared["host"] = np.full(len(rows), names.index(os.environ["COUNTERPOISE_HOST"]))
    prepared["cpu_seconds"] = np.full(len(rows), (time.process_time() - began) / len(rows))
    return prepared


def train(settings: dict[str, Any]) -> Any:
    """The product's loop with the other feed."""
    rank: Any = importlib.import_module("training.rank")
    rank.Feed = RayDataFeed
    return importlib.import_module("training.loop").train(settings)


def main() -> int:
    """As process 1: the bootstrap with this file as its driver. As the driver: training.main with `train` from here."""
    if sys.argv[1:] == ["train"]:
        from container.bootstrap import __main__ as bootstrap
        from container.bootstrap.driver import Driver

        command = Driver.command
        Driver.command = lambda self: [MODULE if part == "training.main" else part for part in command(self)]  # type: ignore[method-assign]
        return bootstrap.main()
    trainer: Any = importlib.import_module("training.trainer")
    trainer.train = importlib.import_module(MODULE).train  # by its real name, so that the training worker finds it
    return int(importlib.import_module("training.main").main(sys.argv[1:]))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
