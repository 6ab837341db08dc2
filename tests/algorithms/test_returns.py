"""Generalised advantages: by hand, at a fixed point, and against a slow reference."""

from __future__ import annotations

import numpy as np
import pytest

from srl.algorithms.returns import generalised_advantages
from srl.base.tree import Array


def column(*numbers: float) -> Array:
    return np.array(numbers, np.float32)[:, None]


def flags(*numbers: int) -> Array:
    return np.array(numbers, bool)[:, None]


NEVER, ALWAYS = flags(0, 0, 0, 0), flags(1, 1, 1, 1)


def advantages(
    reward: Array, value: Array, terminated: Array = NEVER, truncated: Array = NEVER, acting: Array = ALWAYS
) -> list[float]:
    found = generalised_advantages(reward, value, terminated, truncated, acting, gamma=0.5, gae_lambda=0.5)
    result: list[float] = found[:, 0].tolist()
    return result


REWARD, VALUE = column(1, 2, 3, 99), column(4, 8, 16, 32)


def test_three_steps_by_hand() -> None:
    # delta = 1 + 8/2 - 4 = 1;  2 + 16/2 - 8 = 2;  3 + 32/2 - 16 = 3;  gamma * lambda = 1/4
    assert advantages(REWARD, VALUE) == [1 + (2 + 3 / 4) / 4, 2 + 3 / 4, 3]


def test_termination_drops_the_next_value_and_stops_the_sum() -> None:
    # Row 1 terminates: delta = 2 - 8 = -6. Row 2 holds the last observation, and nobody acts there.
    found = advantages(REWARD, VALUE, terminated=flags(0, 1, 0, 0), acting=flags(1, 1, 0, 1))
    assert found == [1 - 6 / 4, -6, 0]


def test_truncation_keeps_the_value_of_the_last_observation_and_stops_the_sum() -> None:
    found = advantages(REWARD, VALUE, truncated=flags(0, 1, 0, 0), acting=flags(1, 1, 0, 1))
    assert found == [1 + 2 / 4, 2, 0]


def test_an_end_in_the_last_row_looks_at_the_bootstrap_row() -> None:
    assert advantages(REWARD, VALUE, truncated=flags(0, 0, 1, 0))[2] == 3
    assert advantages(REWARD, VALUE, terminated=flags(0, 0, 1, 0))[2] == 3 - 16


def test_the_sum_stops_before_a_step_that_never_happened() -> None:
    assert advantages(REWARD, VALUE, acting=flags(1, 0, 1, 1)) == [1, 0, 3]


def test_what_nobody_acted_on_never_leaks() -> None:
    reward, value = REWARD.copy(), VALUE.copy()
    reward[2] = np.nan
    value[2] = np.nan
    found = advantages(reward, value, terminated=flags(0, 1, 0, 0), acting=flags(1, 1, 0, 1))
    assert found == [1 - 6 / 4, -6, 0]


def test_a_constant_reward_that_is_only_ever_truncated_is_worth_r_over_one_minus_gamma() -> None:
    rows, gamma, worth = 41, 0.9, 1.0 / (1.0 - 0.9)
    truncated = (np.arange(rows) % 10 == 8)[:, None]  # acts 9 times, then one idle row
    acting = (np.arange(rows) % 10 != 9)[:, None]
    reward = acting.astype(np.float32)
    none = np.zeros_like(acting)
    value = np.full((rows, 1), worth, np.float32)
    found = generalised_advantages(reward, value, none, truncated, acting, gamma, 0.95)
    np.testing.assert_allclose(found, 0.0, atol=1e-5)
    # From any other value the target moves towards it, and by iterating arrives.
    value = np.zeros((rows, 1), np.float32)
    for _ in range(200):
        target = generalised_advantages(reward, value, none, truncated, acting, gamma, 0.95) + value[:-1]
        value[:] = target[acting[:-1]].mean()
    np.testing.assert_allclose(value, worth, rtol=1e-4)


def slow_advantages(
    reward: Array, value: Array, terminated: Array, truncated: Array, acting: Array, gamma: float, gae_lambda: float
) -> Array:
    """Lane by lane, in float64, by the recursion as the textbook writes it."""
    steps, lanes = reward.shape[0] - 1, reward.shape[1]
    result = np.zeros((steps, lanes))
    for lane in range(lanes):
        advantage = 0.0
        for t in reversed(range(steps)):
            if not acting[t, lane]:
                advantage = 0.0
                continue
            bootstrap = 0.0 if terminated[t, lane] else gamma * float(value[t + 1, lane])
            delta = float(reward[t, lane]) + bootstrap - float(value[t, lane])
            goes_on = not (terminated[t, lane] or truncated[t, lane])
            advantage = delta + (gamma * gae_lambda * advantage if goes_on else 0.0)
            result[t, lane] = advantage
    return result


@pytest.mark.parametrize("seed", range(20))
def test_random_trajectories_agree_with_a_slow_reference(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, lanes = int(rng.integers(2, 30)), int(rng.integers(1, 6))
    terminated = rng.random((rows, lanes)) < 0.15
    truncated = rng.random((rows, lanes)) < 0.15
    acting = rng.random((rows, lanes)) < 0.95
    acting[1:] &= ~(terminated | truncated)[:-1]
    reward, value = rng.standard_normal((2, rows, lanes)).astype(np.float32)
    gamma, gae_lambda = rng.random(2)
    arguments = (reward, value, terminated, truncated, acting, float(gamma), float(gae_lambda))
    found = generalised_advantages(*arguments)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, slow_advantages(*arguments), atol=1e-5)
