"""One optimizer step: what it learns from, how batches and ranks weigh, and the number formats it can run in."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.unit.one_rank import CLASSES, DESCRIPTION, ROWS, SIZE, make_batch
from training.contract import ContractError, TrainingConfig
from training.data.batch import Batch
from training.data.transforms import Normalize
from training.numerics import Numerics, build_for_training
from training.step import Learner, usable_rows

Gradients = dict[str, torch.Tensor]


def without_unreadable(batch: Batch) -> Batch:
    """The same batch as if its unreadable rows had never been asked for."""
    keep = torch.from_numpy(batch.valid)
    return replace(
        batch, images=batch.images[keep], labels=batch.labels[keep], valid=batch.valid[batch.valid], problems={}
    )


def joined(batches: list[Batch]) -> Batch:
    """One batch of the rows of all."""
    return replace(
        batches[0],
        images=torch.cat([batch.images for batch in batches]),
        labels=torch.cat([batch.labels for batch in batches]),
        valid=np.concatenate([batch.valid for batch in batches]),
    )


def batches_of(masks: list[list[bool]]) -> list[Batch]:
    """Batches with different images; True are the rows that can be read."""
    batches = []
    for number, mask in enumerate(masks):
        batch = make_batch(mask, rows=len(mask))
        batches.append(replace(batch, images=batch.images.roll(7 * number, dims=1), labels=batch.labels.roll(number)))
    return batches


def make_model() -> nn.Module:
    """Small, always the same, and with a layer that normalises over the batch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 5), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(CLASSES))
    model(torch.zeros(2, 3, SIZE, SIZE))  # gives the lazy layer its shape
    return model.train()


def make_linear() -> nn.Module:
    """As above, but every row is treated by itself."""
    torch.manual_seed(0)
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(3 * (SIZE // 4) ** 2, CLASSES))


def make_learner(model: nn.Module, *, num_ranks: int = 1, **options: Any) -> Learner:
    config = TrainingConfig(**{"batch_size": ROWS, "learning_rate": 0.1, **options})
    numerics = Numerics(device=torch.device("cpu"), config=config, transform=Normalize())
    return Learner(model, numerics, num_classes=CLASSES, num_ranks=num_ranks)


def make_step(learner: Learner, batches: list[Batch], rows_elsewhere: int = 0) -> tuple[float, Gradients]:
    """Loss and gradients of a step of these batches, while other ranks have so many rows."""
    loss = learner.step(iter(batches), lambda num_rows: num_rows + rows_elsewhere)
    gradients = {name: value.grad.clone() for name, value in learner.model.named_parameters() if value.grad is not None}
    return float(loss), gradients


def test_unreadable_rows_count_for_nothing() -> None:
    batch = make_batch([True, False, True, True, False, True])
    model, expected_model = make_model(), make_model()
    loss, gradients = make_step(make_learner(model), [batch])
    expected_loss, expected_gradients = make_step(make_learner(expected_model), [without_unreadable(batch)])
    assert loss == pytest.approx(expected_loss, rel=1e-6)
    assert any(gradient.abs().max() > 0 for gradient in gradients.values())
    torch.testing.assert_close(gradients, expected_gradients)
    torch.testing.assert_close(dict(model.state_dict()), dict(expected_model.state_dict()))


def test_a_batch_without_a_readable_row_changes_no_weight() -> None:
    model = make_model()
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    loss, gradients = make_step(make_learner(model), [make_batch([False] * ROWS)])
    assert loss == 0.0
    assert gradients
    assert all(torch.count_nonzero(gradient) == 0 for gradient in gradients.values())
    torch.testing.assert_close(dict(model.named_parameters()), before, rtol=0, atol=0)
    assert all(torch.isfinite(value).all() for value in model.state_dict().values())


def test_where_every_row_is_good_nothing_is_copied() -> None:
    for batch in (make_batch(), make_batch([False] * ROWS)):
        images, labels = usable_rows(batch)
        assert images is batch.images
        assert labels is batch.labels


@settings(max_examples=50)
@given(st.lists(st.lists(st.booleans(), min_size=ROWS, max_size=ROWS), min_size=1, max_size=5))
def test_batches_of_one_step_weigh_as_one_large_batch_does(masks: list[list[bool]]) -> None:
    batches = batches_of(masks)
    learner = make_learner(make_linear(), accumulate_batches=len(batches))
    loss, gradients = make_step(learner, batches)
    if not any(any(mask) for mask in masks):
        assert loss == 0.0
        return
    large = without_unreadable(joined(batches))
    expected_loss, expected_gradients = make_step(make_learner(make_linear(), batch_size=len(large.labels)), [large])
    assert loss == pytest.approx(expected_loss, rel=1e-6)
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-5, atol=1e-7)


@settings(max_examples=50)
@given(st.lists(st.lists(st.booleans(), min_size=ROWS, max_size=ROWS), min_size=4, max_size=4))
def test_ranks_weigh_by_their_readable_rows(masks: list[list[bool]]) -> None:
    """Two ranks, two batches each: the mean of their gradients, which data-parallel training takes, is that of all."""
    batches = batches_of(masks)
    shares = [batches[:2], batches[2:]]
    rows = [sum(int(batch.valid.sum()) for batch in share) for share in shares]
    results = [
        make_step(make_learner(make_linear(), accumulate_batches=2, num_ranks=2), share, rows_elsewhere=sum(rows) - own)
        for share, own in zip(shares, rows, strict=True)
    ]
    loss = sum(loss for loss, _ in results) / 2
    gradients = {name: (results[0][1][name] + results[1][1][name]) / 2 for name in results[0][1]}
    if not sum(rows):
        assert loss == 0.0
        return
    large = without_unreadable(joined(batches))
    expected_loss, expected_gradients = make_step(make_learner(make_linear(), batch_size=len(large.labels)), [large])
    assert loss == pytest.approx(expected_loss, rel=1e-6)
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-5, atol=1e-7)


def test_a_step_takes_its_own_batches_and_asks_the_other_ranks_once() -> None:
    asked: list[int] = []

    def rows_of_all(num_rows: int) -> int:
        asked.append(num_rows)
        return num_rows

    source = iter(batches_of([[True] * ROWS] * 5))
    learner = make_learner(make_linear(), accumulate_batches=2)
    for _ in range(2):
        learner.step(source, rows_of_all)
    assert asked == [2 * ROWS] * 2
    assert len(list(source)) == 1


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_gradients_are_exchanged_once_a_step() -> None:
    num_exchanges = 0

    Gradient = torch.futures.Future[torch.Tensor]

    # DistributedDataParallel looks at the annotations, one of which the type checker does not know.
    def count(_: object, bucket: torch.distributed.GradBucket) -> Gradient:  # type: ignore[name-defined]
        nonlocal num_exchanges
        num_exchanges += 1
        future: Gradient = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    model = DistributedDataParallel(make_linear())
    model.register_comm_hook(None, count)
    batches = batches_of([[True] * ROWS, [True, False] * 3, [True] * ROWS])
    loss, gradients = make_step(make_learner(model, accumulate_batches=3), batches)
    assert num_exchanges == 1
    expected_loss, expected_gradients = make_step(make_learner(make_linear(), accumulate_batches=3), batches)
    assert loss == pytest.approx(expected_loss, rel=1e-6)
    torch.testing.assert_close(gradients, {f"module.{name}": value for name, value in expected_gradients.items()})


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
@pytest.mark.parametrize("channels_last", [False, True])
def test_steps_make_the_loss_smaller(precision: str, channels_last: bool) -> None:
    torch.manual_seed(0)
    learner = make_learner(
        build_for_training(DESCRIPTION, TrainingConfig()), precision=precision, channels_last=channels_last
    )
    losses = [make_step(learner, [make_batch()])[0] for _ in range(6)]
    assert losses[-1] < losses[0]


class Overflowing(nn.Module):
    """Class scores so wrong that the gradient of a loss scaled by 2 ** 16 is infinite in fp16."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(1, 2, bias=False)
        nn.init.constant_(self.scores.weight, 0.0)
        with torch.no_grad():
            self.scores.weight[0] = 30.0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.scores(torch.ones(len(images), 1))
        return scores


def test_in_fp16_a_step_with_gradients_that_overflow_is_left_out_and_the_next_one_is_smaller() -> None:
    model = Overflowing()
    learner = make_learner(model, precision="fp16", batch_size=1)
    batch = replace(make_batch(rows=1), labels=torch.tensor([1]))
    before = model.scores.weight.detach().clone()
    make_step(learner, [batch])
    assert torch.equal(model.scores.weight, before)
    make_step(learner, [batch])
    assert not torch.equal(model.scores.weight, before)
    assert torch.isfinite(model.scores.weight).all()


def test_the_first_batch_is_checked() -> None:
    batch = make_batch()
    wrong = replace(batch, labels=batch.labels + CLASSES)
    with pytest.raises(ContractError, match=r"batch labels: 3 to 5; expected 0 to 2"):
        make_step(make_learner(make_model()), [wrong])
