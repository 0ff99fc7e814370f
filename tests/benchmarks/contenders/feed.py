"""The product's feed with a data worker per CPU on its own host, without a Ray cluster around them."""

import multiprocessing
from collections.abc import Iterator

import torch

from tests.benchmarks.contenders.work import BATCH_SIZE, IMAGE_SIZE, SEED, Work
from training.data.feed import Feed
from training.data.plan import RowPlan
from training.data.spans import training_spans
from training.data.worker import Recipe, serve


def batches(work: Work) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Images in wire form, and labels."""
    feed = open_feed(work, "127.0.0.1")
    for number in range(work.num_workers):
        # Forked, as the DataLoader's are; each of them uses one thread, as the DataLoader's do.
        worker = multiprocessing.get_context("fork").Process(
            target=serve, args=(recipe_of(work), [feed.endpoint], f"worker-{number}"), daemon=True
        )
        worker.start()
    for batch in feed:
        yield batch.images, batch.labels
    feed.close()


def open_feed(work: Work, address: str) -> Feed:
    """A feed of all batches of the work that listens on `address`."""
    return Feed(
        training_spans(num_batches=work.num_batches, batch_size=BATCH_SIZE, rank=0, world_size=1),
        batch_rows=BATCH_SIZE,
        wire_shape=work.transform.wire_shape(IMAGE_SIZE),
        wire_dtype=work.transform.wire_dtype,
        address=address,
        device=torch.device("cpu"),
    )


def recipe_of(work: Work) -> Recipe:
    """What a data worker needs for the work."""
    plan = RowPlan(work.source.num_rows, SEED, shuffle=True)
    return Recipe(source=work.source, transform=work.transform, plan=plan, image_size=IMAGE_SIZE)
