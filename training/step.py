"""What the device does with batches: forward and backward through the model, gradients summed up, an optimizer step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from training.checkpoints import with_prefix, without_prefix
from training.data.transforms import check_batch
from training.models import bare
from training.numerics import Numerics
from training.timing import Moment

if TYPE_CHECKING:
    from training.data.batch import Batch
    from training.rank import Rank


class Learner:
    """A model in training.

    Args:
        model: on its device, data-parallel where several ranks train it.
        numerics: how its device computes.
        num_classes: what the labels of the first batch have to keep to.
        num_ranks: how many train it.
    """

    def __init__(self, model: nn.Module, numerics: Numerics, *, num_classes: int, num_ranks: int = 1) -> None:
        config = numerics.config
        self.model = model
        self._numerics = numerics
        self._num_classes = num_classes
        self._num_batches = config.accumulate_batches
        self._expected_rows = config.batch_size * config.accumulate_batches
        self._num_ranks = num_ranks
        self._optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate, momentum=config.momentum)
        # Small gradients vanish in fp16, so they are made large. Looking whether they became too large, before every
        # step, makes the host wait for the device; no other format does.
        self._scaler = torch.amp.GradScaler(numerics.device.type, enabled=config.precision == "fp16")
        self._is_checked = False

    def step(self, batches: Iterator[Batch], rows_of_all: Callable[[int], float]) -> torch.Tensor:
        """Make one optimizer step of the next `accumulate_batches` batches; the host does not wait for the device.

        Every readable row of every rank weighs the same; unreadable ones count for nothing. `rows_of_all` is called
        once, with the number of this rank's readable rows, and returns that of all ranks.

        Returns:
            The loss, on the device: its mean over the ranks is the mean over the rows of all.

        Raises:
            ContractError: the first batch is not what the model takes.
        """
        self.model.zero_grad()
        num_rows = 0
        loss = torch.zeros((), device=self._numerics.device)
        for number in range(1, self._num_batches + 1):
            batch = next(batches)
            valid = int(batch.valid.sum())
            num_rows += valid
            weight = valid / self._expected_rows
            if number < self._num_batches:
                with self._without_exchange():
                    loss += self._add_gradients(batch, weight)
                continue
            # Now it is known how many rows there are. Data-parallel training takes the mean of the ranks' gradients.
            correction = self._expected_rows * self._num_ranks / max(rows_of_all(num_rows), 1)
            if correction != 1 and number > 1:
                loss *= correction
                self._scale_gradients(correction)
            loss += self._add_gradients(batch, weight * correction)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        return loss

    def state(self) -> dict[str, torch.Tensor]:
        """All that later steps depend on but the data and the random numbers: copies on the CPU, by name."""
        tensors = dict(with_prefix("model", bare(self.model).state_dict()))
        for name, parameter in bare(self.model).named_parameters():
            values = self._optimizer.state.get(parameter, {})
            found = {key: value for key, value in values.items() if isinstance(value, torch.Tensor)}
            tensors.update(with_prefix(f"optimizer.{name}", found))
        scaler = {key: torch.tensor(value) for key, value in self._scaler.state_dict().items()}
        tensors.update(with_prefix("scaler", scaler))
        return tensors

    def load_state(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Go on from what `state` returned, for a model of the same name, arguments and number of classes."""
        bare(self.model).load_state_dict(without_prefix("model", tensors))
        for name, parameter in bare(self.model).named_parameters():
            for key, value in without_prefix(f"optimizer.{name}", tensors).items():
                self._optimizer.state[parameter][key] = value.to(parameter.device, copy=True)
        scaler = {key: value.item() for key, value in without_prefix("scaler", tensors).items()}
        if self._scaler.is_enabled() and scaler:
            self._scaler.load_state_dict(scaler)

    def _add_gradients(self, batch: Batch, weight: float) -> torch.Tensor:
        images, labels = usable_rows(batch)
        inputs = self._numerics.inputs(images)
        if not self._is_checked:
            check_batch(inputs, labels, self._num_classes)
            self._is_checked = True
        loss = weight * self._numerics.loss(self.model, inputs, labels)
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _without_exchange(self) -> contextlib.AbstractContextManager[None]:
        if isinstance(self.model, DistributedDataParallel):
            return self.model.no_sync()
        return contextlib.nullcontext()

    def _scale_gradients(self, factor: float) -> None:
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(factor)


class LossNotFinite(RuntimeError):
    """The loss is not a number, or infinite; the text names the step."""


class LossWatch:
    """Notes, on the device, the first step whose loss is not finite; only asking for it makes the host wait."""

    def __init__(self, device: torch.device) -> None:
        self._first_bad = torch.zeros((), dtype=torch.int64, device=device)

    def note(self, step: int, loss: torch.Tensor) -> None:
        """Look at the loss of a step."""
        is_fine = torch.isfinite(loss) | (self._first_bad > 0)
        self._first_bad = torch.where(is_fine, self._first_bad, step)

    def check(self) -> None:
        """Raise LossNotFinite if a loss was not finite."""
        step = int(self._first_bad)
        if step:
            raise LossNotFinite(
                f"the loss of step {step} is not a finite number; the last checkpoint is from before that; "
                "try a smaller learning_rate, or precision bf16 or fp32 instead of fp16"
            )


def usable_rows(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and labels of the rows that could be read; of a batch without any, all of them.

    Left out, not only weighted: a layer that normalises over the batch would mix the zeros of unreadable rows into the
    others. A batch without any good row stays whole, since every rank has to take part in every step.
    """
    if batch.valid.all() or not batch.valid.any():
        return batch.images, batch.labels
    # Not a mask on the device: it would have to tell the host how many rows it leaves.
    places = torch.from_numpy(np.flatnonzero(batch.valid)).to(batch.images.device, non_blocking=True)
    return batch.images[places], batch.labels[places]


def compute_gradients(rank: Rank, model: nn.Module, batch: Batch) -> None:
    """Replace the gradients of a model, another one than that in training, by those of a batch."""
    images, labels = usable_rows(batch)
    model.zero_grad()
    numerics = rank.numerics
    numerics.loss(model, numerics.inputs(images), labels).backward()  # type: ignore[no-untyped-call]


def wait_for(device: torch.device) -> None:
    """Wait until the device has done what it was given, so that a clock read now tells the truth."""
    Moment(device).wait()
