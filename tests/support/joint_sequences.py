"""Batches of sequences of joint steps, as replay draws them for the agents of a team."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from srl.api.dataflow import SequenceBatch
from srl.api.spaces import Space
from srl.base.tree import Array, Tree, map_tree
from srl.environments.random_actions import random_actions


def sequences(
    observation: Callable[[tuple[int, ...]], Tree],
    action: Callable[[tuple[int, ...]], Tree],
    shape: tuple[int, int, int, int],
    state_size: int = 0,
    burn_in: int = 0,
    seed: int = 0,
) -> SequenceBatch:
    """Return K minibatches of R + 1 rows of B teams of A agents, `shape` [K, R+1, B, A], with random rewards. Each team
    has episodes of random length: after the row of the last action, a row without an action holds the last observation.
    Sequences may begin within an episode, and every third one ends before its last rows, which are not valid."""
    rng = np.random.default_rng(seed)
    steps, rows, teams, agents = shape
    flags = np.zeros((5, steps, rows, teams), bool)
    terminated, truncated, acting, first, valid = flags
    for k, team in np.ndindex(steps, teams):
        begins = bool(rng.integers(2))
        end = rows - 2 if (k + team) % 3 == 2 else rows
        for t in range(end):
            valid[k, t, team] = True
            ended = t > 0 and (terminated | truncated)[k, t - 1, team]
            acting[k, t, team] = not ended
            first[k, t, team] = begins
            begins = ended
            if not ended:
                terminated[k, t, team], truncated[k, t, team] = ((kind := rng.random()) < 0.15, 0.15 <= kind < 0.3)
    wide = [np.repeat(flag, agents, axis=2) for flag in flags]  # the agents of a team are next to each other
    lanes = (steps, rows, teams * agents)
    state = rng.standard_normal((steps, teams * agents, state_size)).astype(np.float32) if state_size else None
    reward = rng.standard_normal(lanes).astype(np.float32)
    rest: Any = (*wide, state, np.ones((steps, teams), np.float32), int(acting[:, :-1].sum()) * agents, burn_in)
    return SequenceBatch(observation(lanes), {"action": action(lanes)}, reward, *rest)


def drawn(space: Space, seed: int) -> Callable[[tuple[int, ...]], Tree]:
    """Return a function that draws random elements of a space."""
    rng = np.random.default_rng(seed)

    def draw(shape: tuple[int, ...]) -> Tree:
        flat = random_actions(space, int(np.prod(shape)), rng)
        tree: Tree = map_tree(lambda array: array.reshape(*shape, *array.shape[1:]), flat)
        return tree

    return draw


def random_sequences(
    observation: Space,
    action: Space,
    num_agents: int = 2,
    state_size: int = 0,
    num_steps: int = 2,
    num_teams: int = 6,
    num_rows: int = 8,
    burn_in: int = 0,
    seed: int = 0,
) -> SequenceBatch:
    shape = num_steps, num_rows + 1, num_teams, num_agents
    return sequences(drawn(observation, seed), drawn(action, seed + 1), shape, state_size, burn_in, seed)


def two_step_sequences(num_steps: int, num_teams: int, state_size: int, seed: int) -> SequenceBatch:
    """Return whole episodes of the two-step game, played at random: two steps and the row of the last observation."""
    rng = np.random.default_rng(seed)
    action = rng.integers(2, size=(num_steps, 3, num_teams, 2))
    place = np.zeros((num_steps, 3, num_teams), int)
    place[:, 1:] = 1 + action[:, :1, :, 0]
    payoff: Array = np.array([[[7.0, 7.0], [7.0, 7.0]], [[0.0, 1.0], [1.0, 8.0]]])
    reward = np.zeros((num_steps, 3, num_teams), np.float32)
    reward[:, 1] = payoff[place[:, 1] - 1, action[:, 1, :, 0], action[:, 1, :, 1]]
    flags = np.zeros((5, num_steps, 3, num_teams), bool)
    terminated, _, acting, first, valid = flags
    terminated[:, 1] = acting[:, :2] = first[:, 0] = valid[:] = True
    lanes = num_steps, 3, num_teams * 2
    seen = np.repeat(np.eye(3, dtype=np.float32)[place], 2, axis=2)
    ids = np.tile(np.arange(2), (num_steps, 3, num_teams))
    observation: dict[str, Any] = {"observation": seen, "state": seen, "agent_id": ids}
    state = np.zeros((num_steps, num_teams * 2, state_size), np.float32) if state_size else None
    wide = (np.repeat(flag, 2, axis=2) for flag in flags)
    rest: Any = (*wide, state, np.ones((num_steps, num_teams), np.float32), num_steps * num_teams * 4)
    return SequenceBatch(observation, {"action": action.reshape(lanes)}, np.repeat(reward, 2, axis=2), *rest)
