"""Generalized advantages and V-trace: by hand, at a fixed point, and against slow references."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from srl.algorithms.returns.gae import generalized_advantages
from srl.algorithms.returns.vtrace import VTrace, vtrace
from srl.base.tree import Array


def column(*numbers: float) -> Array:
    return np.array(numbers, np.float32)[:, None]


def flags(*numbers: int) -> Array:
    return np.array(numbers, bool)[:, None]


NEVER, ALWAYS = flags(0, 0, 0, 0), flags(1, 1, 1, 1)


def advantages(
    reward: Array, value: Array, terminated: Array = NEVER, truncated: Array = NEVER, acting: Array = ALWAYS
) -> list[float]:
    found = generalized_advantages(reward, value, terminated, truncated, acting, gamma=0.5, gae_lambda=0.5)
    result: list[float] = found[:, 0].tolist()
    return result


REWARD, VALUE = column(1, 2, 3, 99), column(4, 8, 16, 32)


def test_three_steps_by_hand() -> None:
    # delta = 1 + 8/2 - 4 = 1;  2 + 16/2 - 8 = 2;  3 + 32/2 - 16 = 3;  gamma * lambda = 1/4
    assert advantages(REWARD, VALUE) == [1 + (2 + 3 / 4) / 4, 2 + 3 / 4, 3]


def test_termination_drops_the_next_value_and_stops_the_sum() -> None:
    # Row 1 terminates: delta = 2 - 8 = -6. Row 2 holds the last observation, without a decision.
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


def test_rows_without_a_decision_have_no_effect() -> None:
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
    found = generalized_advantages(reward, value, none, truncated, acting, gamma, 0.95)
    np.testing.assert_allclose(found, 0.0, atol=1e-5)
    # From any other value, iterated targets converge to it.
    value = np.zeros((rows, 1), np.float32)
    for _ in range(200):
        target = generalized_advantages(reward, value, none, truncated, acting, gamma, 0.95) + value[:-1]
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


class Case(NamedTuple):
    reward: Array
    value: Array
    log_ratio: Array
    terminated: Array
    truncated: Array
    acting: Array

    @property
    def ends(self) -> tuple[Array, Array, Array]:
        return self.terminated, self.truncated, self.acting


CALLS, LANES = 200, 50
"""Every lane is a separate case: 10,000 in all. The lanes of one call have the same length and discount."""


def random_case(rng: np.random.Generator, lanes: int = 3) -> Case:
    rows = int(rng.integers(2, 14))
    terminated = rng.random((rows, lanes)) < 0.15
    truncated = rng.random((rows, lanes)) < 0.15
    acting = rng.random((rows, lanes)) < 0.95
    acting[1:] &= ~(terminated | truncated)[:-1]
    numbers = rng.standard_normal((3, rows, lanes)).astype(np.float32)
    # Rows without a decision hold arbitrary numbers; their values may bootstrap.
    numbers *= np.where(acting, 1.0, rng.choice([1.0, 1e6], lanes)).astype(np.float32)
    numbers[1] = np.clip(numbers[1], -9.0, 9.0)
    reward, value, log_ratio = numbers
    return Case(reward, value, log_ratio, terminated, truncated, acting)


def assert_close(found: Array, wanted: Array) -> None:
    """Up to the last digit of float32: 1e-6 of numbers of the size of 1."""
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-6)


def test_advantages_agree_with_a_slow_reference_in_ten_thousand_cases() -> None:
    rng = np.random.default_rng(0)
    for _ in range(CALLS):
        case = random_case(rng, LANES)
        gamma, gae_lambda = rng.random(2).tolist()
        found = generalized_advantages(case.reward, case.value, *case.ends, gamma, gae_lambda)
        assert_close(found, slow_advantages(case.reward, case.value, *case.ends, gamma, gae_lambda))


def slow_vtrace(case: Case, gamma: float, gae_lambda: float, rho_clip: float, c_clip: float) -> VTrace:
    """Remark 1 of the paper, lane by lane in float64: the sum over all later steps of an episode, written out."""
    steps, lanes = case.reward.shape[0] - 1, case.reward.shape[1]
    target, advantage, weight = np.zeros((3, steps, lanes))
    for lane in range(lanes):
        reward, value, log_ratio = (part[:, lane].astype(float).tolist() for part in case[:3])
        terminated, truncated, acting = (part[:, lane].tolist() for part in case[3:])
        for s in reversed(range(steps)):
            weight[s, lane] = min(rho_clip, math.exp(log_ratio[s]) if acting[s] else 1.0)
            target[s, lane] = value[s]
            if not acting[s]:
                continue
            product, t = 1.0, s
            while True:
                bootstrap = 0.0 if terminated[t] else gamma * value[t + 1]
                rho = min(rho_clip, math.exp(log_ratio[t]))
                target[s, lane] += product * rho * (reward[t] + bootstrap - value[t])
                if terminated[t] or truncated[t] or t + 1 == steps or not acting[t + 1]:
                    break
                product *= gamma * gae_lambda * min(c_clip, math.exp(log_ratio[t]))
                t += 1
            goes_on = t > s
            after = gae_lambda * (target[s + 1, lane] - value[s + 1]) + value[s + 1] if goes_on else value[s + 1]
            advantage[s, lane] = reward[s] + (0.0 if terminated[s] else gamma * after) - value[s]
    return VTrace(target, advantage, weight)


def test_vtrace_agrees_with_a_slow_reference_in_ten_thousand_cases() -> None:
    rng = np.random.default_rng(1)
    for _ in range(CALLS):
        case = random_case(rng, LANES)
        gamma, gae_lambda = rng.random(2).tolist()
        rho_clip, c_clip = rng.uniform(0.5, 2.0, 2).tolist()
        options = {"gamma": gamma, "gae_lambda": gae_lambda, "rho_clip": rho_clip, "c_clip": c_clip}
        for found, wanted in zip(vtrace(*case, **options), slow_vtrace(case, **options), strict=True):
            assert_close(found, wanted)


def test_vtrace_by_hand() -> None:
    # Ratios 2, 1/2 and 1; deltas 1, 2 and 3 as above; gamma = 1/2, lambda = 1.
    log_ratio = np.log(column(2, 0.5, 1, 1))
    traced = vtrace(REWARD, VALUE, log_ratio, NEVER, NEVER, ALWAYS, gamma=0.5)
    assert traced.weight[:, 0].tolist() == [1, 0.5, 1]
    # v - V: 3;  0.5 * 2 + 0.5 * 0.5 * 3 = 1.75;  1 * 1 + 0.5 * 1 * 1.75 = 1.875
    assert traced.target[:, 0].tolist() == [4 + 1.875, 8 + 1.75, 16 + 3]
    # delta + gamma * (v - V of the next row)
    assert traced.advantage[:, 0].tolist() == [1 + 1.75 / 2, 2 + 3 / 2, 3]
    # A higher bound lets the first sample count twice, and pass twice as much on: 2 * 1 + 0.5 * 2 * 1.75
    wide = vtrace(REWARD, VALUE, log_ratio, NEVER, NEVER, ALWAYS, gamma=0.5, rho_clip=4.0, c_clip=4.0)
    assert wide.weight[0, 0] == 2
    assert wide.target[0, 0] == 4 + 2 + 1.75


def test_vtrace_of_current_data_equals_gae() -> None:
    case = random_case(np.random.default_rng(5))
    options: dict[str, Any] = {"gamma": 0.9, "gae_lambda": 0.8}
    traced = vtrace(case.reward, case.value, np.zeros_like(case.value), *case.ends, **options)
    advantage = generalized_advantages(case.reward, case.value, *case.ends, **options)
    np.testing.assert_array_equal(traced.advantage, advantage)
    np.testing.assert_allclose(traced.target, advantage + case.value[:-1], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(traced.weight, 1.0)


def test_ratios_of_rows_without_a_decision_have_no_effect() -> None:
    log_ratio = np.zeros_like(VALUE)
    log_ratio[2] = np.nan
    traced = vtrace(REWARD, VALUE, log_ratio, flags(0, 1, 0, 0), NEVER, flags(1, 1, 0, 1), gamma=0.5)
    assert np.isfinite(np.stack(traced)).all()
