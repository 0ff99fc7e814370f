"""Places of the row plan, batch by batch and rank by rank. Pure functions."""

import itertools
from collections.abc import Iterator

Span = tuple[int, int]
"""Places `start` to `stop` (excluded) of the plan."""


def training_spans(*, num_batches: int, batch_size: int, rank: int, world_size: int, first: int = 0) -> Iterator[Span]:
    """The places of one rank's batches: from `first` on all ranks together cover the plan, no gap and no overlap."""
    for number in range(num_batches):
        start = first + (number * world_size + rank) * batch_size
        yield (start, start + batch_size)


def single_pass_spans(*, num_rows: int, batch_size: int, rank: int, world_size: int) -> Iterator[Span]:
    """The places of one rank's batches when every row is wanted exactly once; the last span may be short."""
    for start in range(rank * batch_size, num_rows, world_size * batch_size):
        yield (start, min(start + batch_size, num_rows))


def cut(span: Span, chunk_rows: int) -> list[Span]:
    """Cut a span into parts of at most `chunk_rows`, as even as they can be."""
    start, stop = span
    num_parts = -(-(stop - start) // chunk_rows)
    edges = [start + (stop - start) * part // num_parts for part in range(num_parts + 1)]
    return list(itertools.pairwise(edges))
