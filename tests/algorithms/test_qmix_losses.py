"""Targets of joint steps, by hand: terminations, truncations, agents that die, padding, n steps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from srl.algorithms.qmix.losses import (
    JointSteps,
    continuing_agents,
    joint_targets,
    learned_rows,
    present_agents,
    team_reward,
)


def steps(acting: list[list[int]], terminated: object = (), truncated: object = (), valid: int = 99) -> JointSteps:
    """Return the steps of one team. `acting` has a row per step and a number per agent; `terminated` and `truncated`
    are (row, agent) pairs; rows from `valid` on are padding. The reward is 10 * row + agent."""
    rows, agents = len(acting), len(acting[0])
    flags = torch.zeros(2, rows, 1, agents, dtype=torch.bool)
    for flag, places in zip(flags, (terminated, truncated), strict=True):
        for row, agent in places:  # type: ignore[attr-defined]
            flag[row, 0, agent] = True
    known = (torch.arange(rows) < valid)[:, None, None].expand(rows, 1, agents)
    reward = 10.0 * torch.arange(rows)[:, None, None] + torch.arange(agents)
    return JointSteps(reward, flags[0], flags[1], torch.tensor(acting).bool()[:, None], known)


def row(tensor: Tensor) -> list[float]:
    return tensor[:, 0].tolist()


BOTH = [[1, 1], [1, 1], [0, 0], [1, 1]]  # two steps, the row of the last observation, and the next episode


def test_termination_does_not_bootstrap_and_truncation_does() -> None:
    terminated, truncated = steps(BOTH, [(1, 0), (1, 1)]), steps(BOTH, (), [(1, 0), (1, 1)])
    value = torch.tensor([[100.0], [200.0], [300.0]])  # of rows 1, 2 and 3
    for given, last in ((terminated, 10.5), (truncated, 10.5 + 0.9 * 200.0)):
        learned = learned_rows(given, 0)
        assert row(learned) == [True, True, False], "no action in the row of the last observation"
        continues = continuing_agents(given).any(-1)
        target = joint_targets(team_reward(given, "mean"), continues, value, learned, 0.9, 1)
        assert row(target)[:2] == pytest.approx([0.5 + 0.9 * 100.0, last])


def test_an_agent_that_dies_leaves_the_value_to_the_others() -> None:
    given = steps([[1, 1], [0, 1], [0, 0]], [(0, 0), (1, 1)])
    assert continuing_agents(given)[:, 0].tolist() == [[False, True], [False, False]]
    assert row(learned_rows(given, 0)) == [True, True]
    assert row(team_reward(given, "mean")) == [0.5, 11.0], "the mean over those that act"
    assert row(team_reward(given, "sum")) == [1.0, 11.0]
    assert present_agents(given)[:, 0].tolist() == [[True, True], [True, True], [False, True]]


def test_padding_is_not_learned_from_and_a_row_before_it_only_if_it_needs_no_value() -> None:
    cut = steps([[1, 1], [1, 1], [0, 0], [0, 0]], valid=2)
    assert row(learned_rows(cut, 0)) == [True, False, False]
    ended = steps([[1, 1], [1, 1], [0, 0], [0, 0]], [(1, 0), (1, 1)], valid=2)
    assert row(learned_rows(ended, 0)) == [True, True, False]
    truncated = steps([[1, 1], [1, 1], [0, 0], [0, 0]], (), [(1, 0), (1, 1)], valid=2)
    assert row(learned_rows(truncated, 0)) == [True, False, False]


def test_burn_in_is_not_learned_from() -> None:
    assert row(learned_rows(steps([[1, 1]] * 4), 2)) == [False, False, True]


def test_n_steps_end_at_the_end_of_an_episode_and_of_the_sequence() -> None:
    given = steps([[1], [1], [1], [0], [1], [1]], (), [(2, 0)])
    learned, value = learned_rows(given, 0), torch.tensor([[1.0], [2.0], [3.0], [4.0], [5.0]])
    assert row(learned) == [True, True, True, False, True]
    continues, reward = continuing_agents(given).any(-1), team_reward(given, "mean")
    two = joint_targets(reward, continues, value, learned, 0.5, 2)
    one = joint_targets(reward, continues, value, learned, 0.5, 1)
    # Rewards are 0, 10, 20, -, 40. Row 2 is truncated and bootstraps from row 3; row 4 from row 5, the last.
    expected = [0 + 0.5 * (10 + 0.5 * 2), 10 + 0.5 * (20 + 0.5 * 3), 20 + 0.5 * 3, 40 + 0.5 * 5]
    assert [row(two)[i] for i in (0, 1, 2, 4)] == pytest.approx(expected)
    assert row(one)[0] == pytest.approx(0.5)
