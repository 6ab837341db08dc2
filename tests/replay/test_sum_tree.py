"""The sum tree: sums, proportional and stratified draws, and no drift."""

from __future__ import annotations

import numpy as np
import pytest

from srl.replay.sum_tree import SumTree


def drawn(tree: SumTree, uniform: np.ndarray, stratum_count: int) -> np.ndarray:
    leaves, values = np.zeros(len(uniform), np.int64), np.zeros(len(uniform))
    tree.draw(uniform, stratum_count, leaves, values)
    assert (values == tree.leaves[leaves]).all()
    return leaves


def test_draws_are_where_the_running_sum_passes_the_share():
    tree = SumTree(4)
    tree.set(np.arange(4), np.array([1.0, 0.0, 2.0, 1.0]))
    assert tree.total == 4.0
    shares = np.array([0.0, 0.24, 0.25, 0.5, 0.74, 0.75, 0.999])
    assert drawn(tree, shares, 1).tolist() == [0, 0, 2, 2, 2, 3, 3]


def test_each_stratum_gets_one_draw():
    tree = SumTree(4)
    tree.set_range(0, np.ones(4))
    assert drawn(tree, np.full(8, 0.5), 4).tolist() == [0, 1, 2, 3, 0, 1, 2, 3]


def test_of_repeated_leaves_the_last_value_counts():
    tree = SumTree(100)
    tree.set(np.array([7, 7, 99]), np.array([5.0, 1.0, 2.0]))
    assert tree.total == 3.0
    assert tree.leaves[7] == 1.0


@pytest.mark.parametrize("num_leaves", [1, 7, 8, 9, 64, 65, 1000])
def test_draws_equal_those_of_a_cumulative_sum(num_leaves):
    rng = np.random.default_rng(num_leaves)
    tree = SumTree(num_leaves)
    values = rng.integers(0, 4, num_leaves).astype(float)  # integers, so that no order of summation rounds
    values[rng.integers(num_leaves)] = 1.0
    half = num_leaves // 2
    tree.set_range(0, values[:half])
    tree.set(np.arange(half, num_leaves), values[half:])
    uniform = rng.random(500)
    expected = np.searchsorted(np.cumsum(values), uniform * values.sum(), side="right")
    assert (drawn(tree, uniform, 1) == expected).all()


def test_sums_do_not_drift():
    rng = np.random.default_rng(0)
    tree, values = SumTree(1000), np.zeros(1000)
    for _ in range(2000):
        leaves = rng.integers(0, 1000, 32)
        new = 10.0 ** rng.uniform(-12, 12, 32)
        tree.set(leaves, new)
        values[leaves] = 0
        for leaf, value in zip(leaves, new, strict=True):
            values[leaf] = value
    fresh = SumTree(1000)
    fresh.set_range(0, values)
    assert tree.total == fresh.total


def test_a_leaf_of_value_zero_is_never_drawn():
    rng = np.random.default_rng(0)
    tree = SumTree(1000)
    values = np.where(rng.random(1000) < 0.5, 0.0, 10.0 ** rng.uniform(-9, 9, 1000))
    values[-20:] = 0.0
    tree.set_range(0, values)
    uniform = np.concatenate([rng.random(100_000), np.full(1000, np.nextafter(1.0, 0.0))])
    assert (values[drawn(tree, uniform, 1)] > 0).all()


def test_a_million_draws_have_the_right_frequencies():
    rng = np.random.default_rng(0)
    tree = SumTree(500)
    values = rng.random(500) ** 2
    tree.set_range(0, values)
    for stratum_count, limit in ((1, 603.0), (250, 603.0)):  # 499 degrees of freedom: p = 0.001
        counts = np.bincount(drawn(tree, rng.random(1_000_000), stratum_count), minlength=500)
        expected = values / values.sum() * 1_000_000
        assert float(((counts - expected) ** 2 / expected).sum()) < limit
