"""Rows that are read in groups: the order is random, complete and the same everywhere, and groups are not scattered."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.data.locality import MIN_WINDOW_GROUPS, RUN_ROWS, WINDOW_ROWS
from training.data.permutation import Int64Array
from training.data.plan import RowPlan, split_rows

GROUP_SIZES = st.lists(st.integers(0, 90), min_size=1, max_size=60).filter(any)
SEEDS = st.integers(0, 2**31 - 1)


def ends_of(sizes: list[int]) -> Int64Array:
    return np.cumsum(np.array(sizes, np.int64))


def grouped_plan(sizes: list[int], seed: int = 0) -> RowPlan:
    return RowPlan(sum(sizes), seed, shuffle=True, read_groups=ends_of(sizes))


@given(sizes=GROUP_SIZES, seed=SEEDS, epoch=st.integers(0, 10**9))
def test_an_epoch_has_every_row_exactly_once(sizes: list[int], seed: int, epoch: int) -> None:
    num_rows = sum(sizes)
    rows = grouped_plan(sizes, seed).rows(epoch * num_rows, (epoch + 1) * num_rows)
    assert rows.dtype == np.int64
    assert np.array_equal(np.sort(rows), np.arange(num_rows))


@given(sizes=GROUP_SIZES, seed=SEEDS, cut=st.integers(0, 3000), length=st.integers(0, 3000))
def test_rows_do_not_depend_on_how_and_where_they_are_asked_for(
    sizes: list[int], seed: int, cut: int, length: int
) -> None:
    plan = grouped_plan(sizes, seed)
    elsewhere = pickle.loads(pickle.dumps(plan))
    later, first = elsewhere.rows(cut, cut + length), elsewhere.rows(0, cut)
    assert np.array_equal(np.concatenate([first, later]), plan.rows(0, cut + length))


@given(sizes=GROUP_SIZES, share=st.floats(0.05, 0.5), num_classes=st.integers(1, 5), seed=SEEDS)
def test_a_split_keeps_to_its_rows(sizes: list[int], share: float, num_classes: int, seed: int) -> None:
    num_rows = sum(sizes) + 2 * num_classes
    labels = np.sort(np.arange(num_rows, dtype=np.int64) % num_classes)
    split = split_rows(num_rows, share, seed, labels)
    for part in (split.training, split.validation):
        plan = RowPlan(len(part), seed, shuffle=True, subset=part, read_groups=ends_of([*sizes, 2 * num_classes]))
        rows = plan.rows(0, 2 * len(part)).reshape(2, len(part))
        expected = part[np.arange(len(part))].tolist()
        assert [sorted(epoch) for epoch in rows.tolist()] == [expected, expected]


@given(
    size=st.integers(8, 400), num_groups=st.integers(1, 80), seed=SEEDS, start=st.integers(0), count=st.integers(1, 300)
)
def test_neighbours_come_from_few_groups(size: int, num_groups: int, seed: int, start: int, count: int) -> None:
    plan = grouped_plan([size] * num_groups, seed)
    start %= size * num_groups
    groups = plan.rows(start, start + count) // size
    num_runs = np.count_nonzero(np.diff(groups)) + 1
    # Runs are half of RUN_ROWS or longer; a window that ends adds a run, and so does an epoch that ends.
    assert num_runs <= count // (RUN_ROWS // 2) + 2 + count // min(size * num_groups, WINDOW_ROWS // 2)


@pytest.mark.parametrize("size", [64, 100, 1000])
def test_a_window_has_few_groups_and_all_of_them(size: int) -> None:
    groups_of_window = max(MIN_WINDOW_GROUPS, WINDOW_ROWS // size)
    plan = grouped_plan([size] * groups_of_window * 5)
    window = groups_of_window * size
    windows = [set((plan.rows(start, start + window) // size).tolist()) for start in range(0, 5 * window, window)]
    assert [len(groups) for groups in windows] == [groups_of_window] * 5
    assert len(set.union(*windows)) == 5 * groups_of_window


@pytest.mark.parametrize("size", [16, 64, 100, 1000])
def test_batches_of_files_that_are_sorted_by_class_are_mixed(size: int) -> None:
    plan = grouped_plan([size] * 64)  # a class a group
    batches = plan.rows(0, 64 * size)[: size * 64 // 64 * 64].reshape(-1, 64) // size
    assert min(len(set(batch)) for batch in batches.tolist()) >= 2
    assert np.mean([len(set(batch)) for batch in batches.tolist()]) >= 3.4


def test_epochs_seeds_groups_and_rows_are_shuffled() -> None:
    sizes = [50] * 100
    first = grouped_plan(sizes, 1)
    orders = [first.rows(0, 5000), first.rows(5000, 10_000), grouped_plan(sizes, 2).rows(0, 5000)]
    for index, order in enumerate(orders):
        assert all(np.mean(order == other) < 0.01 for other in orders[:index])
        # Neither rows inside a run nor groups over the epoch keep a direction.
        assert 0.45 < np.mean(np.diff(order) > 0) < 0.55
        assert abs(np.corrcoef(np.arange(5000), order)[0, 1]) < 0.3


def test_every_row_comes_to_every_place_about_equally_often() -> None:
    plan = grouped_plan([4, 4, 4])
    places = plan.rows(0, 3600 * 12).reshape(3600, 12)
    counts = np.stack([np.bincount(column, minlength=12) for column in places.T])
    # 300 expected, standard deviation about 17; 6 of them leave room for 144 cells.
    assert abs(counts - 300).max() < 6 * 17


def test_the_order_is_the_same_on_every_machine_and_in_every_version() -> None:
    assert grouped_plan([4, 3, 3], 7).rows(0, 20).tolist() == [
        *(7, 8, 9, 1, 3, 2, 0, 4, 6, 5),
        *(3, 1, 2, 0, 9, 8, 7, 4, 6, 5),
    ]
    assert grouped_plan([20, 20], 7).rows(5, 15).tolist() == [29, 24, 33, 34, 32, 19, 2, 13, 9, 0]


def test_without_shuffling_groups_do_not_matter() -> None:
    plan = RowPlan(4, 0, shuffle=False, read_groups=np.array([2, 4]))
    assert plan.rows(2, 9).tolist() == [2, 3, 0, 1, 2, 3, 0]


def test_a_plan_costs_memory_by_groups_and_not_by_rows() -> None:
    plan = grouped_plan([10_000_000] * 3)
    assert len(pickle.dumps(plan)) < 1000
    plan = grouped_plan([64] * 10_000)
    plan.rows(0, 64 * 10_000)
    assert len(pickle.dumps(plan)) < 8 * 10_000 + 1000


def test_a_subset_in_another_order_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="must be ascending where rows are read in groups"):
        RowPlan(2, 0, shuffle=True, subset=np.array([3, 1]), read_groups=np.array([2, 4]))
