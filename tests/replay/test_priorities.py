"""Prioritized replay: probabilities, importance weights, and feedback on units that were replaced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from replay.reference import empty_block, spec_of

from srl.api.dataflow import Priorities, Replay, Transitions
from srl.base.state import NotResumable
from srl.base.tree import ArraySpec
from srl.replay.memory import ReplayMemory


def memory_of(num_steps: int, priorities: Priorities | None, batch: int = 100, capacity: int | None = None) -> Any:
    """A memory with blocks of 10 steps of one lane, numbered by their observations."""
    spec = spec_of(10, 1)
    dataflow = Replay(Transitions(), batch, capacity or num_steps, priorities=priorities)
    memory = ReplayMemory(dataflow, spec, 0)
    for begin in range(0, num_steps, 10):
        insert(memory, begin)
    return memory


def insert(memory: Any, begin: int) -> None:
    arrays = empty_block(spec_of(10, 1))
    arrays["observation"][:, 0, 0] = np.arange(begin, begin + 11)
    arrays["acting"][...] = True
    memory.insert(arrays, "a", begin)


def set_priorities(memory: Any, priorities: np.ndarray) -> None:
    """Draw until every unit has got its priority, by its number."""
    missing = set(range(len(priorities)))
    while missing:
        drawn = memory.draw(1, 0.0)
        steps = drawn.batch.observation[..., 0].astype(int)
        memory.feedback(drawn, priorities[steps])
        missing -= set(steps.ravel().tolist())


def counts_of(memory: Any, num_draws: int, size: int) -> np.ndarray:
    return sum(
        np.bincount(memory.draw(10, 0.0).batch.observation[..., 0].astype(int).ravel(), minlength=size)
        for _ in range(num_draws)
    )  # type: ignore[return-value]


def test_draws_are_in_proportion_to_the_power_of_the_priority():
    memory = memory_of(100, Priorities(alpha=0.5, epsilon=0.0))
    priorities = np.random.default_rng(0).random(100) * 9 + 1
    set_priorities(memory, priorities)
    counts = counts_of(memory, 1000, 100)
    expected = priorities**0.5 / (priorities**0.5).sum() * 1_000_000
    assert float(((counts - expected) ** 2 / expected).sum()) < 149  # 99 degrees of freedom: p = 0.001


def test_alpha_0_draws_uniformly_with_equal_weights():
    memory = memory_of(100, Priorities(alpha=0.0))
    set_priorities(memory, np.random.default_rng(0).random(100))
    counts = counts_of(memory, 100, 100)
    assert float(((counts - 1000) ** 2 / 1000).sum()) < 149
    assert (memory.draw(2, 0.0).batch.weight == 1).all()


def test_weights_by_hand():
    memory = memory_of(10, Priorities(alpha=1.0, beta=0.5, beta_final=1.0, epsilon=0.0), batch=1000)
    set_priorities(memory, np.array([4.0] * 5 + [1.0] * 5))
    for progress, weight in ((0.0, 0.5), (1.0, 0.25), (2.0, 0.25)):
        batch = memory.draw(1, progress).batch
        expected = np.where(batch.observation[..., 0] < 5, weight, 1.0)
        np.testing.assert_allclose(batch.weight, expected, rtol=1e-6)


def test_the_divisors_of_weights_make_those_of_several_memories_comparable():
    priorities = Priorities(alpha=1.0, beta=0.5, epsilon=0.0)
    own, other = (memory_of(10, priorities, batch=8) for _ in range(2))
    set_priorities(own, np.arange(1.0, 11.0))
    set_priorities(other, np.full(10, 55.0))
    for memory, probability in ((own, np.arange(1.0, 11.0) / 55), (other, np.full(10, 0.1))):
        batch = memory.draw(3, 0.0).batch
        exact = probability[batch.observation[..., 0].astype(int)] ** -0.5
        np.testing.assert_allclose(batch.weight * batch.largest_weight[:, None], exact, rtol=1e-6)
        np.testing.assert_allclose(batch.weight.max(axis=1), 1.0)
    assert memory_of(10, None, batch=4).draw(1, 0.0).batch.largest_weight is None


def test_weighted_means_are_unbiased():
    memory = memory_of(1000, Priorities(alpha=1.0, beta=1.0, epsilon=0.0), batch=1000)
    rng = np.random.default_rng(0)
    set_priorities(memory, rng.random(1000) + 0.05)
    values = rng.standard_normal(1000) + 3 * memory._priorities._tree.leaves  # priorities and values are correlated
    plain, weighted = [], []
    for _ in range(200):
        batch = memory.draw(1, 1.0).batch
        drawn = values[batch.observation[0, :, 0].astype(int)]
        plain.append(drawn.mean())
        weighted.append((batch.weight[0] * drawn).sum() / batch.weight[0].sum())
    error = np.std(weighted) / np.sqrt(200)
    assert abs(np.mean(weighted) - values.mean()) < 4 * error + 1e-3
    assert abs(np.mean(plain) - values.mean()) > 0.2, "without weights the mean is biased"


def test_new_units_get_the_highest_priority_so_far():
    memory = memory_of(10, Priorities(alpha=1.0, epsilon=0.0), capacity=20)
    set_priorities(memory, np.arange(1.0, 11.0))
    insert(memory, 10)
    leaves = memory._priorities._tree.leaves
    assert leaves[10:].tolist() == [10.0] * 10


def test_new_units_can_get_the_error_of_the_decisions_of_their_actors():
    spec = spec_of(3, 2, value=ArraySpec((), "float32"), action_value=ArraySpec((), "float32"))
    dataflow = Replay(Transitions(2, 0.5), 4, 12, priorities=Priorities(1.0, epsilon=0.0, from_decisions=True))
    memory: Any = ReplayMemory(dataflow, spec, 0)
    for begin in (0, 3):
        arrays = empty_block(spec)
        arrays["acting"][...] = True
        arrays["reward"][:3] = [[1, 2], [10, 20], [100, 200]]
        arrays["decision/value"][...] = [[4, 8], [40, 80], [400, 800], [4000, 8000]]
        arrays["decision/action_value"][...] = [[3, 5], [30, 50], [300, 500], [np.nan, np.nan]]
        arrays["truncated"][1, 0] = arrays["terminated"][1, 1] = True  # in lane 0 and lane 1
        arrays["acting"][2] = False  # the last observation
        memory.insert(arrays, "a", begin)
    leaves = memory._priorities._tree.leaves.tolist()
    one_lane = [1.0, 1.0, 0.0]  # the value after the truncation is not known: the highest priority so far
    other_lane = [abs(2 + 0.5 * 20 - 5), abs(20 - 50), 0.0]
    assert leaves == 2 * [*one_lane, *other_lane]


def test_the_first_error_of_a_row_at_the_end_of_a_block_has_the_steps_that_are_known():
    spec = spec_of(2, 1, value=ArraySpec((), "float32"), action_value=ArraySpec((), "float32"))
    dataflow = Replay(Transitions(2, 0.5), 4, 12, priorities=Priorities(1.0, epsilon=0.0, from_decisions=True))
    memory: Any = ReplayMemory(dataflow, spec, 0)
    arrays = empty_block(spec)
    arrays["acting"][...] = True
    arrays["reward"][:2, 0] = [1, 10]
    arrays["decision/value"][:, 0] = [4, 40, 400]
    memory.insert(arrays, "a", 0)
    assert memory._priorities._tree.leaves[:2].tolist() == [1 + 0.5 * 10 + 0.25 * 400, 10 + 0.5 * 400]
    with pytest.raises(ValueError, match="need transitions, and decisions with `value` and `action_value`"):
        ReplayMemory(dataflow, spec_of(2, 1), 0)


def test_feedback_on_replaced_units_is_ignored():
    memory = memory_of(20, Priorities(alpha=1.0, epsilon=0.0), batch=200)
    drawn = memory.draw(1, 0.0)
    insert(memory, 20)  # replaces steps 0 to 9
    memory.feedback(drawn, np.full((1, 200), 0.5))
    leaves = memory._priorities._tree.leaves
    assert leaves[:10].tolist() == [1.0] * 10
    assert leaves[10:].tolist() == [0.5] * 10


def test_rows_without_decisions_have_no_priority():
    memory = memory_of(10, Priorities(), capacity=20)
    arrays = empty_block(spec_of(10, 1))
    arrays["acting"][:5] = True
    memory.insert(arrays, "b", 0)
    assert memory._priorities._tree.leaves[10:].tolist() == [1.0] * 5 + [0.0] * 5


def test_priorities_that_are_not_finite_are_ignored():
    memory = memory_of(10, Priorities())
    drawn = memory.draw(1, 0.0)
    memory.feedback(drawn, np.full((1, 100), np.nan))
    memory.feedback(drawn, np.full((1, 100), np.inf))
    assert memory._priorities.total == 10.0


def test_a_state_without_priorities_is_not_restored():
    with pytest.raises(NotResumable, match="no priorities"):
        memory_of(10, Priorities()).restore(memory_of(10, None).state())
