"""SPDL: a thread per CPU, each makes a whole batch where it stays."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from spdl.pipeline import PipelineBuilder

from tests.benchmarks.contenders.work import BATCH_SIZE, Work
from training.data.prepare import prepare_rows


def batches(work: Work) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Images in wire form, and labels."""

    def prepare(rows: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = work.new_images(len(rows)), np.empty(len(rows), np.int64)
        valid = np.empty(len(rows), np.bool_)
        prepare_rows(work.source, work.transform, rows, np.zeros_like(rows), images, labels, valid)
        return torch.from_numpy(images), torch.from_numpy(labels)

    torch.set_num_threads(1)  # each of SPDL's own is one CPU's
    builder: Any = PipelineBuilder()  # its own annotations do not follow a builder from stage to stage
    pipeline = (
        builder.add_source(work.rows().reshape(-1, BATCH_SIZE))
        .pipe(prepare, concurrency=work.num_workers, output_order="input")
        .add_sink()
        .build(num_threads=work.num_workers)
    )
    with pipeline.auto_stop():
        yield from pipeline
