"""Joint steps of a team, and the targets and errors of their values. All functions are pure."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class JointSteps(NamedTuple):
    """Steps of a team of A agents in B copies of a game: R rows and one more, from which the last one bootstraps."""

    reward: Tensor  # [R+1, B, A]
    terminated: Tensor  # [R+1, B, A] bool
    truncated: Tensor  # [R+1, B, A] bool
    acting: Tensor  # [R+1, B, A] bool
    valid: Tensor  # [R+1, B, A] bool


def present_agents(steps: JointSteps) -> Tensor:
    """Return where an agent has a current observation, [R+1, B, A]: it acts, or its episode has just ended."""
    before = torch.zeros_like(steps.acting)
    before[1:] = steps.acting[:-1]
    return steps.acting | before


def continuing_agents(steps: JointSteps) -> Tensor:
    """Return which agents' values are part of the target of each row, [R, B, A]: those that act in the next row, and
    those whose episode was truncated, not those whose episode terminated."""
    return steps.acting[1:] | (steps.truncated[:-1] & ~steps.terminated[:-1] & steps.acting[:-1])


def learned_rows(steps: JointSteps, burn_in: int) -> Tensor:
    """Return the rows that are learned from, [R, B]: after the burn-in, at least one agent acts, and the next row,
    which holds the value of the next step, is remembered. Rows between episodes and padding have no agent that acts. If
    the last of the agents terminated, the next row is not needed."""
    continues = continuing_agents(steps).any(-1)
    ended = (steps.terminated | steps.truncated | ~steps.acting)[:-1].all(-1) & ~continues
    learned = steps.acting[:-1].any(-1) & (steps.valid[1:].all(-1) | ended)
    learned[:burn_in] = False
    return learned


def team_reward(steps: JointSteps, kind: str) -> Tensor:
    """Return the rewards of the joint steps [R, B]: the mean over the agents that act, or their sum."""
    acting = steps.acting[:-1]
    total = torch.where(acting, steps.reward[:-1], 0.0).sum(-1)
    return total / acting.sum(-1).clamp(min=1) if kind == "mean" else total


def joint_targets(
    reward: Tensor, continues: Tensor, value: Tensor, learned: Tensor, gamma: float, n_step: int
) -> Tensor:
    """Return the targets [R, B] of the values of joint actions (Rashid et al. 2018, eq. 6, for n = 1).

    y_t = r_t + gamma * max_u Q_tot(t+1, u), and r_t if no agent `continues` [R, B] after row t.

    `value` [R, B] is that of the next row. With `n_step` steps, the target of the next row takes its place if that row
    is learned from; it is not where an episode was truncated.

    y_t(n) = r_t + gamma * y_t+1(n - 1)
    """
    discount = gamma * continues
    target = reward + discount * value
    inside = torch.zeros_like(learned)
    inside[:-1] = learned[1:]
    for _ in range(n_step - 1):
        after = torch.zeros_like(target)
        after[:-1] = target[1:]
        target = reward + discount * torch.where(inside, after, value)
    return target
