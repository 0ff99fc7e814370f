"""Every row has its place in the run, and every place its row, whatever the numbers."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from training.contract import ContractError
from training.data.permutation import permute
from training.data.plan import PermutedRows, RowPlan, Split, check_enough_rows, split_rows

NUM_ROWS = st.integers(1, 700)
SEEDS = st.integers(0, 2**31 - 1)
SHARES = st.floats(0.001, 0.5)
# The rows and workers of C14.
CASES = [(10, 3, 4), (129, 2, 64), (2, 3, 4), (63, 1, 64), (1000, 3, 64)]


@given(num_rows=NUM_ROWS, seed=SEEDS, epoch=st.integers(0, 10**9), shuffle=st.booleans())
def test_an_epoch_has_every_row_exactly_once(num_rows: int, seed: int, epoch: int, shuffle: bool) -> None:
    rows = RowPlan(num_rows, seed, shuffle).rows(epoch * num_rows, (epoch + 1) * num_rows)
    assert rows.dtype == np.int64
    assert np.array_equal(np.sort(rows), np.arange(num_rows))


@given(num_rows=NUM_ROWS, seed=SEEDS, cut=st.integers(0, 300), length=st.integers(0, 300))
def test_rows_do_not_depend_on_how_they_are_asked_for(num_rows: int, seed: int, cut: int, length: int) -> None:
    plan = RowPlan(num_rows, seed, shuffle=True)
    parts = np.concatenate([plan.rows(0, cut), plan.rows(cut, cut + length)])
    assert np.array_equal(parts, plan.rows(0, cut + length))


@pytest.mark.parametrize(("num_rows", "num_workers", "batch_size"), [case for case in CASES if case[0] >= case[1]])
def test_every_worker_gets_full_batches_in_every_step(num_rows: int, num_workers: int, batch_size: int) -> None:
    check_enough_rows(num_rows, num_workers)
    plan = RowPlan(num_rows, seed=1, shuffle=True)
    rows_of_step = num_workers * batch_size
    steps = [plan.rows(step * rows_of_step, (step + 1) * rows_of_step) for step in range(20)]
    assert {rows.size for rows in steps} == {rows_of_step}
    uses = np.bincount(np.concatenate(steps), minlength=num_rows)
    assert uses.max() - uses.min() <= 1  # nothing is dropped at the end of an epoch


def test_fewer_rows_than_workers_are_refused_with_the_numbers() -> None:
    with pytest.raises(ContractError) as refusal:
        check_enough_rows(2, 3)
    assert str(refusal.value) == (
        "too few rows: 2 rows for 3 training workers; at least 3 are needed, add rows or train on fewer hosts"
    )
    with pytest.raises(ContractError, match="too few rows: 1 row for 2 training workers; "):
        check_enough_rows(1, 2)
    check_enough_rows(3, 3)


def test_no_rows_at_all_are_refused() -> None:
    with pytest.raises(ContractError, match="too few rows: 0 rows"):
        RowPlan(0, 0, shuffle=False)


def test_epochs_and_seeds_are_shuffled_differently() -> None:
    first = RowPlan(1000, 1, shuffle=True)
    orders = [first.rows(0, 1000), first.rows(1000, 2000), RowPlan(1000, 2, shuffle=True).rows(0, 1000)]
    for index, order in enumerate(orders):
        assert not np.array_equal(order, np.arange(1000))
        assert all(np.mean(order == other) < 0.05 for other in orders[:index])


@pytest.mark.parametrize("num_rows", [3, 10, 64])
def test_every_row_comes_to_every_place_about_equally_often(num_rows: int) -> None:
    num_epochs = 300 * num_rows
    plan = RowPlan(num_rows, 5, shuffle=True)
    places = plan.rows(0, num_epochs * num_rows).reshape(num_epochs, num_rows)
    counts = np.stack([np.bincount(column, minlength=num_rows) for column in places.T])
    # 300 expected, standard deviation about 17; 6 of them leave room for 4,096 cells.
    assert abs(counts - 300).max() < 6 * 18


def test_the_order_is_the_same_on_every_machine_and_in_every_version() -> None:
    assert RowPlan(10, 7, shuffle=True).rows(0, 20).tolist() == [
        *(0, 4, 2, 5, 3, 6, 8, 7, 9, 1),
        *(8, 4, 7, 2, 0, 6, 9, 3, 5, 1),
    ]


def test_a_billion_rows_cost_no_memory() -> None:
    rows = RowPlan(10**9, 0, shuffle=True).rows(10**9 - 32, 10**9 + 32)
    assert rows.size == 64
    assert 0 <= rows.min() < rows.max() < 10**9


@pytest.mark.parametrize("shuffle", [True, False])
def test_every_place_knows_its_epoch(shuffle: bool) -> None:
    plan = RowPlan(4, 0, shuffle)
    assert plan.epochs(2, 9).tolist() == [0, 0, 1, 1, 1, 1, 2]
    assert (plan.epochs(5, 5).size, str(plan.epochs(0, 1).dtype)) == (0, "int64")
    with pytest.raises(ValueError, match="0 <= start <= stop"):
        plan.epochs(3, 2)


def test_without_shuffling_rows_come_in_order() -> None:
    assert RowPlan(4, 0, shuffle=False).rows(2, 9).tolist() == [2, 3, 0, 1, 2, 3, 0]
    assert RowPlan(4, 0, shuffle=False).rows(5, 5).tolist() == []
    with pytest.raises(ValueError, match="0 <= start <= stop"):
        RowPlan(4, 0, shuffle=False).rows(3, 2)


@given(num_rows=st.integers(1, 2**40), seed=SEEDS, data=st.data())
def test_permuted_positions_stay_inside_and_apart(num_rows: int, seed: int, data: st.DataObject) -> None:
    position = st.integers(0, num_rows - 1)
    positions = np.array(data.draw(st.lists(position, unique=True, max_size=20)), np.int64)
    rows = permute(positions, num_rows, (seed,))
    assert len(set(rows.tolist())) == positions.size
    assert all(0 <= row < num_rows for row in rows.tolist())


def _all_rows(split: Split) -> tuple[list[int], list[int]]:
    training = split.training[np.arange(len(split.training))].tolist()
    return training, split.validation[np.arange(len(split.validation))].tolist()


@given(num_rows=st.integers(2, 700), share=SHARES, seed=SEEDS)
def test_a_split_is_disjoint_and_complete(num_rows: int, share: float, seed: int) -> None:
    training, validation = _all_rows(split_rows(num_rows, share, seed))
    assert sorted(training + validation) == list(range(num_rows))
    assert len(validation) == max(1, round(num_rows * share))
    assert training


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=12), share=SHARES, seed=SEEDS)
def test_a_split_by_class_keeps_every_class_in_training(sizes: list[int], share: float, seed: int) -> None:
    labels = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
    if max(sizes) < 2:
        with pytest.raises(ContractError, match=r"training\.validation_share: .* no class with two rows"):
            split_rows(labels.size, share, seed, labels)
        return
    training, validation = _all_rows(split_rows(labels.size, share, seed, labels))
    assert sorted(training + validation) == list(range(labels.size))
    assert validation
    held_out = np.bincount(labels[validation], minlength=len(sizes))
    for size, count in zip(sizes, held_out.tolist(), strict=True):
        assert count < size
        assert abs(count - size * share) < 1 or count in (0, 1)


def test_the_same_seed_holds_out_the_same_rows() -> None:
    labels = np.arange(200, dtype=np.int64) % 7
    for known in (None, labels):
        first, second = (_all_rows(split_rows(200, 0.2, 3, known)) for _ in range(2))
        assert first == second
        assert first != _all_rows(split_rows(200, 0.2, 4, known))


def test_without_a_share_nothing_is_held_out() -> None:
    for labels in (None, np.zeros(10, np.int64)):
        training, validation = _all_rows(split_rows(10, 0.0, 0, labels))
        assert training == list(range(10))
        assert validation == []


def test_one_row_cannot_be_split() -> None:
    with pytest.raises(ContractError) as refusal:
        split_rows(1, 0.5, 0)
    assert str(refusal.value) == "training.validation_share: 0.5 of 1 row holds out nothing; set it to 0 or add rows"


@pytest.mark.parametrize("labels", [None, np.arange(50, dtype=np.int64) % 3])
def test_a_plan_over_training_rows_uses_only_these(labels: NDArray[np.int64] | None) -> None:
    split = split_rows(50, 0.3, 1, labels)
    plan = RowPlan(len(split.training), 1, shuffle=True, subset=split.training)
    training, validation = _all_rows(split)
    assert sorted(plan.rows(0, len(training)).tolist()) == sorted(training)
    assert not set(plan.rows(0, 500).tolist()) & set(validation)


def test_a_subset_of_another_size_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="num_rows is 5, but the subset has 2 rows"):
        RowPlan(5, 0, shuffle=True, subset=np.array([1, 2]))


def test_a_plan_pickles_small() -> None:
    plan = RowPlan(900, 0, shuffle=True, subset=PermutedRows(1000, 0, 100, 1000))
    text = pickle.dumps(plan)
    assert len(text) < 400
    assert np.array_equal(pickle.loads(text).rows(0, 2000), plan.rows(0, 2000))
