"""Targets of R2D2, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from srl.algorithms.r2d2.returns import n_step_returns, rescale, sequence_priorities, unscale

GAMMA = 0.5


def returns_of(num_rows: int = 6, n_step: int = 2, **marked: list[int]):
    """Return the targets of one lane with the rewards 1, 2, 4, 8, ... Rows are marked by the name of an array."""
    arrays = {name: np.zeros((num_rows + 1, 1), bool) for name in ("terminated", "truncated", "first")}
    arrays |= {name: np.ones((num_rows + 1, 1), bool) for name in ("acting", "valid")}
    for name, rows in marked.items():
        arrays[name][rows] = not arrays[name][0, 0]
    reward = (2.0 ** np.arange(num_rows + 1, dtype=np.float32))[:, None]
    return n_step_returns(reward, **arrays, n_step=n_step, gamma=GAMMA)


def test_a_target_sums_n_rewards_and_at_the_end_of_the_sequence_those_that_there_are() -> None:
    found = returns_of(num_rows=4, n_step=3)
    assert found.reward[:, 0].tolist() == [1 + 1 + 1, 2 + 2 + 2, 4 + 4, 8]
    assert found.discount[:, 0].tolist() == [1 / 8, 1 / 8, 1 / 4, 1 / 2]
    assert found.end[:, 0].tolist() == [3, 4, 4, 4]
    assert found.learned.all()


def test_a_truncation_bootstraps_from_the_last_observation() -> None:
    """Row 3 is the last observation of the episode, row 4 begins the next one."""
    found = returns_of(n_step=3, truncated=[2], acting=[3], first=[4])
    assert found.end[:3, 0].tolist() == [3, 3, 3]
    assert found.discount[:3, 0].tolist() == [1 / 8, 1 / 4, 1 / 2]
    assert found.reward[:3, 0].tolist() == [3, 4, 4]
    assert found.learned[:, 0].tolist() == [True, True, True, False, True, True]


def test_a_termination_does_not_bootstrap() -> None:
    found = returns_of(n_step=3, terminated=[2], acting=[3], first=[4])
    assert found.discount[:3, 0].tolist() == [0, 0, 0]
    assert found.reward[:3, 0].tolist() == [3, 4, 4]
    assert found.reward[4:, 0].tolist() == [16 + 16, 32]


def test_a_sum_does_not_enter_the_next_episode_even_if_the_last_one_has_no_end() -> None:
    found = returns_of(n_step=3, first=[2])
    assert found.end[:2, 0].tolist() == [2, 2]
    assert found.reward[:2, 0].tolist() == [2, 2]


def test_the_last_remembered_row_only_bootstraps() -> None:
    found = returns_of(n_step=3, valid=[4, 5, 6])
    assert found.learned[:, 0].tolist() == [True, True, True, False, False, False]
    assert found.end[:3, 0].tolist() == [3, 3, 3]


def test_unscale_is_the_inverse_of_rescale() -> None:
    values = torch.cat((torch.linspace(-3.0, 3.0, 61), torch.tensor([-1e4, -50.0, 700.0, 1e5])))
    np.testing.assert_allclose(unscale(rescale(values)), values, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rescale(torch.tensor([3.0, -8.0])), [1.003, -2.008], rtol=1e-6)


def test_the_priority_of_a_sequence_mixes_its_largest_and_its_mean_error() -> None:
    errors = torch.tensor([[1.0, 7.0], [3.0, 7.0], [8.0, 7.0]])
    learned = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    assert sequence_priorities(errors, learned, 0.9).tolist() == pytest.approx([0.9 * 3 + 0.1 * 2, 0.0])
