"""What the accelerator does with a batch: forward and backward through the model."""

import torch
from torch import nn

from training.data.feed import Batch
from training.data.transforms import check_batch
from training.rank import Rank


def compute_gradients(rank: Rank, model: nn.Module, batch: Batch, *, is_first: bool = False) -> torch.Tensor:
    """Replace the model's gradients by those of a batch and return its loss; unreadable rows count for nothing.

    Raises:
        ContractError: the batch `is_first` and not what the model takes.
    """
    host_images, host_labels, weight = _usable_rows(batch)
    images, labels = rank.job.transform.on_device(host_images.to(rank.device)), host_labels.to(rank.device)
    if is_first:
        check_batch(images, labels, rank.job.description.num_classes)
    with torch.autocast(rank.device.type, dtype=torch.bfloat16, enabled=rank.job.config.precision == "bf16"):
        loss = weight * nn.functional.cross_entropy(model(images), labels)
    model.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def wait_for(device: torch.device) -> None:
    """Wait until the device has done what it was given, so that a clock read now tells the truth."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _usable_rows(batch: Batch) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Images and labels of the rows that could be read, and the weight of their loss: 1, or 0 where there is none.

    Left out, not only weighted: a layer that normalises over the batch would mix the zeros of unreadable rows into the
    others. A batch without any good row stays whole, since every rank has to take part in every step.
    """
    if batch.valid.all() or not batch.valid.any():
        return batch.images, batch.labels, float(batch.valid.any())
    valid = torch.from_numpy(batch.valid)
    return batch.images[valid], batch.labels[valid], 1.0
