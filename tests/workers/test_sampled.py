"""Decisions of a trainer that draws from several replay workers: minibatches per update, shares, weights."""

from __future__ import annotations

import numpy as np
import pytest

from srl.api.block import BlockSpec
from srl.api.dataflow import Replay, Sequences, Transitions
from srl.api.streams import Inserted
from srl.base.tree import ArraySpec
from srl.streams.sample import SampleStream
from srl.workers.trainer.sampled import importance_weights, shares, side_by_side, steps_due


def facts(before: int, collected: int, mass: float = 1.0) -> Inserted:
    return Inserted(0, before, collected, collected, mass)


@pytest.mark.parametrize("ratio", [1.0, 0.25, 0.3, 2.5])
def test_minibatches_keep_their_ratio_to_the_decisions_of_all_shards(ratio: float) -> None:
    flow = Replay(Transitions(), 8, 1000, updates_per_decision=ratio)
    steps = [steps_due(flow, [facts(7 * u, 7 * u + 7), facts(3 * u, 3 * u + 3)]) for u in range(40)]
    assert sum(steps) == int(400 * ratio + 1e-6)
    assert max(steps) - min(steps) <= 1


def test_the_warm_up_counts_the_decisions_of_all_shards() -> None:
    flow = Replay(Transitions(), 8, 1000, warmup=20)
    assert steps_due(flow, [facts(9, 10), facts(8, 9)]) == 0
    assert steps_due(flow, [facts(9, 10), facts(9, 10)]) == 2
    assert steps_due(flow, [facts(9, 10, mass=0.0), facts(9, 10, mass=0.0)]) == 0


def test_a_shard_that_starts_again_does_not_change_the_ratio() -> None:
    flow = Replay(Transitions(), 8, 1000, updates_per_decision=0.5)
    assert steps_due(flow, [facts(1000, 1004), facts(0, 4)]) == 4


def test_shares_follow_the_masses_exactly_on_average() -> None:
    masses = [1.0, 2.5, 0.0, 0.25]
    found = np.array([shares(10, masses, update) for update in range(2000)])
    assert (found.sum(axis=1) == 10).all()
    assert (found >= 0).all()
    np.testing.assert_allclose(found.mean(axis=0), 10 * np.array(masses) / sum(masses), atol=0.01)
    assert shares(10, [0.0, 0.0], 0) == [5, 5]


def test_importance_weights_are_those_of_the_probability_over_all_shards() -> None:
    # Three units of shard 0 and one of shard 1: a unit's probability among all is 3/4 and 1/4 of that in its shard.
    weights, largest = importance_weights([np.array([[0.4, 0.2, 0.1]], np.float32), np.array([[0.6]], np.float32)], 1.0)
    lowest = 0.75 * 0.1
    np.testing.assert_allclose(largest, [1 / lowest], rtol=1e-6)
    np.testing.assert_allclose(weights, [[lowest / 0.3, lowest / 0.15, 1.0, lowest / 0.15]], rtol=1e-6)
    assert importance_weights([np.ones((0, 3), np.float32), np.ones((0, 1), np.float32)], 0.5)[0].shape == (0, 4)


def test_parts_are_joined_along_the_axis_of_their_units() -> None:
    spec = BlockSpec(4, 2, ArraySpec((3,), "float32"), {"action": ArraySpec((), "int64")})
    stream = SampleStream("policy", spec, Sequences(length=2, burn_in=1, num_agents=2))
    parts = [
        {path: np.full(stream.leading(path, 5, count), count) for path in ("reward", "state/h", "weight")}
        for count in (1, 3)
    ]
    found = side_by_side(stream, parts)
    assert {path: array.shape for path, array in found.items()} == {
        "reward": (5, 4, 8),
        "state/h": (5, 8),
        "weight": (5, 4),
    }
    assert found["reward"][0, 0].tolist() == [1, 1, 3, 3, 3, 3, 3, 3]
