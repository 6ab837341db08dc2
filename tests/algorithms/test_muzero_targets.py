"""Windows of MuZero: which rewards, values and policies a sequence says something about, and values as bins."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from srl.algorithms.muzero.targets import Windows, bin_loss, two_hot, windows
from srl.algorithms.r2d2.returns import rescale, unscale

STEPS, N_STEP, GAMMA = 3, 2, 0.5
ROWS = STEPS + N_STEP + 1
RANDOM = np.full((STEPS, 1), 7)


def cut(reward: list[float], **flags: list[int]) -> Windows:
    """Cut a window of one lane. Actions are 1, 2, 3, ... in the rows; flags are lists of rows."""

    def marked(name: str) -> Any:
        found = np.zeros((ROWS, 1), bool)
        found[flags.get(name, [])] = True
        return found

    action = np.arange(1, ROWS + 1)[:, None]
    acting, valid = ~marked("silent"), ~marked("unknown")
    rows = np.array(reward, np.float32)[:, None]
    ends = marked("terminated"), marked("truncated")
    return windows(action, rows, *ends, acting, marked("first"), valid, RANDOM, STEPS, N_STEP, GAMMA)


def column(array: Any) -> list[Any]:
    found: list[Any] = array[:, 0].tolist()
    return found


def test_a_window_within_an_episode_sums_n_rewards_and_bootstraps_after_them() -> None:
    found = cut([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    assert column(found.action) == [1, 2, 3]
    assert column(found.reward) == [1.0, 2.0, 4.0]  # that of action k is predicted from place k + 1
    assert column(found.total) == [1.0 + 1.0, 2.0 + 2.0, 4.0 + 4.0, 8.0 + 8.0]
    assert column(found.discount) == [0.25] * 4
    assert column(found.end) == [2, 3, 4, 5]
    assert all(column(found.has_policy))
    assert all(column(found.has_value))
    assert all(column(found.has_reward))


def test_places_after_a_termination_are_absorbing() -> None:
    """Row 1 ends the episode, row 2 is its last observation, row 3 begins the next one."""
    found = cut([1.0, 2.0, 99.0, 99.0, 99.0, 99.0], terminated=[1], silent=[2], first=[3])
    assert column(found.action) == [1, 2, 7]
    assert column(found.reward) == [1.0, 2.0, 0.0]
    assert column(found.total) == [2.0, 2.0, 0.0, 0.0]
    assert column(found.discount) == [0.0, 0.0, 0.0, 0.0]
    assert column(found.has_reward) == [True, True, True]
    assert column(found.has_value) == [True, True, True, True]
    assert column(found.has_policy) == [True, True, False, False]


def test_nothing_is_known_after_a_truncation_which_bootstraps_from_the_last_observation() -> None:
    found = cut([1.0, 2.0, 99.0, 99.0, 99.0, 99.0], truncated=[1], silent=[2], first=[3])
    assert column(found.reward)[:2] == [1.0, 2.0]
    assert column(found.total)[:2] == [2.0, 2.0]
    assert column(found.discount)[:2] == [0.25, 0.5]
    assert column(found.end)[:2] == [2, 2]
    assert column(found.has_reward) == [True, True, False]
    assert column(found.has_value) == [True, True, False, False]
    assert column(found.has_policy) == [True, True, False, False]


def test_a_termination_beyond_the_unrolled_steps_ends_sums_but_nothing_is_absorbing() -> None:
    found = cut([0.0, 0.0, 0.0, 5.0, 99.0, 99.0], terminated=[3], silent=[4], first=[5])
    assert column(found.total) == [0.0, 0.0, 2.5, 5.0]
    assert column(found.discount) == [0.25, 0.25, 0.0, 0.0]
    assert all(column(found.has_policy))


def test_a_window_that_starts_at_a_last_observation_says_nothing() -> None:
    found = cut([99.0] * ROWS, silent=[0], first=[1])
    assert not any(column(found.has_policy))
    assert not any(column(found.has_value))
    assert not any(column(found.has_reward))


def test_a_sequence_that_is_not_remembered_to_its_end_bootstraps_from_its_last_row() -> None:
    """As replay marks it: the last known row has no decision, and the row before it is truncated."""
    found = cut([1.0, 1.0, 1.0, 99.0, 99.0, 99.0], truncated=[2], silent=[3, 4, 5], unknown=[4, 5])
    assert column(found.end)[:3] == [2, 3, 3]
    assert column(found.total)[:3] == [1.5, 1.5, 1.0]
    assert column(found.has_value) == [True, True, True, False]


def test_a_sum_does_not_go_on_in_the_next_episode_if_the_environment_failed_without_an_end() -> None:
    """Row 2 begins another episode, and no row ends the one before."""
    found = cut([1.0, 2.0, 99.0, 99.0, 99.0, 99.0], first=[2])
    assert column(found.total)[:2] == [2.0, 2.0]
    assert column(found.end)[:2] == [2, 2]
    assert column(found.has_policy) == [True, True, False, False]
    assert column(found.has_value) == [True, True, False, False]


def test_the_h_transform_and_its_inverse_cancel() -> None:
    values = torch.cat((torch.linspace(-600.0, 600.0, 2001), torch.tensor([0.0, 1e-4, -1e-4])))
    torch.testing.assert_close(unscale(rescale(values)), values, rtol=1e-4, atol=1e-4)


def test_two_bins_stand_for_a_value_and_outer_bins_for_all_beyond() -> None:
    bins = torch.arange(-3.0, 4.0)
    values = unscale(torch.tensor([-9.0, -3.0, -0.25, 0.0, 1.5, 3.0, 9.0]))
    lower, upper_weight = two_hot(values, 7, 1.0)
    mean = torch.lerp(bins[lower], bins[lower + 1], upper_weight)
    torch.testing.assert_close(mean, torch.tensor([-3.0, -3.0, -0.25, 0.0, 1.5, 3.0, 3.0]), rtol=0, atol=1e-5)


def test_the_loss_of_bins_is_lowest_where_their_mean_is_the_value() -> None:
    value = torch.tensor([2.0])
    lower, weight = two_hot(value, 5, 1.0)
    target = torch.zeros(1, 5)
    target[0, lower], target[0, lower + 1] = 1.0 - weight, weight
    logits = (target + 1e-6).log().requires_grad_()
    bin_loss(logits, value, 1.0).backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, torch.zeros(1, 5), rtol=0, atol=1e-4)
