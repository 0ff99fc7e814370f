"""Ray Data with its defaults in place of the product's feed: this module with `train` on every host.

Process 1, driver, training loop and the preparation of an image are the product's; only what brings the batches is
exchanged. Rows come in the order in which they happen to be ready.
"""

import importlib
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.benchmarks import cluster_job
from tests.cluster import own_driver

if TYPE_CHECKING:
    from training.data.batch import Batch
    from training.data.spans import Span
    from training.data.worker import Recipe
    from training.rank import Rank

MODULE = "tests.benchmarks.contenders.ray_data"


class RayDataFeed:
    """The interface of training.data.feed.Feed over a Ray Data pipeline that runs in the training worker."""

    def __init__(self, rank: "Rank", recipe: Any, spans: Iterable["Span"]) -> None:
        import ray.data

        edges = list(spans)
        start, stop = edges[0][0], edges[-1][1]
        dataset: Any = ray.data.range(stop - start)
        dataset = dataset.map_batches(prepare, fn_args=(ray.get(recipe), start))
        self._batches = dataset.iter_torch_batches(batch_size=rank.job.config.batch_size, device=rank.device)

    def __iter__(self) -> Iterator["Batch"]:
        from training.data.batch import Batch, Part

        for block in self._batches:
            num_rows, cpu_seconds = len(block["label"]), float(block["cpu_seconds"].sum())
            yield Batch(
                span=(0, num_rows),
                images=block["image"],
                labels=block["label"],
                valid=block["valid"].cpu().numpy(),
                parts=(Part("", num_rows, cpu_seconds, time.time()),),
                problems={},
            )

    def close(self) -> None:
        """Nothing to stop: the pipeline ends with the job."""


def prepare(block: dict[str, Any], recipe: "Recipe", offset: int) -> dict[str, Any]:
    """Prepare the rows of one block with the product's own code."""
    from training.data.prepare import prepare_rows

    began = time.process_time()
    start, stop = int(block["id"][0]) + offset, int(block["id"][-1]) + offset + 1
    rows, epochs = recipe.plan.rows(start, stop), recipe.plan.epochs(start, stop)
    images = np.empty((len(rows), *recipe.transform.wire_shape(recipe.image_size)), recipe.transform.wire_dtype)
    labels, valid = np.empty(len(rows), np.int64), np.empty(len(rows), np.bool_)
    prepare_rows(recipe.source, recipe.transform, rows, epochs, images, labels, valid)
    cpu_seconds = np.full(len(rows), (time.process_time() - began) / len(rows))
    return {"image": images, "label": labels, "valid": valid, "cpu_seconds": cpu_seconds}


def open_feed(rank: "Rank", recipe: Any, spans: Iterable["Span"]) -> RayDataFeed:
    """In the place of `Rank.feed`."""
    return RayDataFeed(rank, recipe, spans)


def train(settings: dict[str, Any]) -> Any:
    """The product's loop with the other feed, and with the virtual accelerator."""
    rank: Any = importlib.import_module("training.rank")
    rank.Rank.feed = open_feed
    return cluster_job.train(settings)


if __name__ == "__main__":
    own_driver.run(MODULE)
