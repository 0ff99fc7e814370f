"""torch's DataLoader: a process per CPU, batches through shared memory."""

from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, Dataset

from tests.benchmarks.contenders.work import BATCH_SIZE, Work


class Rows(Dataset[tuple[torch.Tensor, int]]):
    """The rows of a source, prepared one by one."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        image = self._work.new_images()
        self._work.transform.on_host(self._work.source.read(row), (0, row), image)
        return torch.from_numpy(image), self._work.source.label(row)


def batches(work: Work) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Images in wire form, and labels."""
    return iter(
        DataLoader(
            Rows(work),
            batch_size=BATCH_SIZE,
            sampler=work.rows().tolist(),
            num_workers=work.num_workers,
            persistent_workers=True,
        )
    )
