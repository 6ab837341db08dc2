"""Random actions, for stepping environments without a policy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from srl.api.lanes import LaneSpec, TeamSpec, TimeStep
from srl.api.spaces import Dict, Discrete, MultiDiscrete, Space, bounds_of, choice_sizes
from srl.base.tree import Array, Tree
from srl.environments.adapters.masks import allowed_choices


def some_actions(spec: LaneSpec, generator: np.random.Generator, time_steps: tuple[TimeStep, ...]) -> tuple[Tree, ...]:
    """Draw a random action, among those that the masks allow, for each lane of each team."""
    return tuple(
        random_actions(team.action, spec.num_lanes(index), generator, _allowed(team, time_steps[index]))
        for index, team in enumerate(spec.teams)
    )


def has_masks(spec: LaneSpec, time_steps: tuple[TimeStep, ...]) -> bool:
    return any(_allowed(team, time_step) is not None for team, time_step in zip(spec.teams, time_steps, strict=True))


def _allowed(team: TeamSpec, time_step: TimeStep) -> Array | None:
    return allowed_choices(time_step.observation, len(time_step.acting), team.mask_key)


def random_actions(space: Space, num_lanes: int, generator: np.random.Generator, allowed: Array | None = None) -> Tree:
    """Draw actions [L, ...] uniformly from the choices that are `allowed` [L, choices]."""
    sizes = choice_sizes(space)
    if allowed is None or allowed.shape[1] != sum(sizes):
        allowed = np.ones((num_lanes, sum(sizes)), bool)
    if isinstance(space, Discrete):
        chosen: Array = np.argmax(generator.random(allowed.shape) * allowed, axis=1)
        return chosen
    if isinstance(space, MultiDiscrete):
        draws, ends = generator.random(allowed.shape) * allowed, np.cumsum([0, *sizes])
        return np.stack([np.argmax(draws[:, a:b], axis=1) for a, b in pairwise(ends)], axis=1)
    if isinstance(space, Dict):
        parts: dict[str, Tree] = {}
        start = 0
        for name, item in sorted(space.items.items()):
            end = start + sum(choice_sizes(item))
            parts[name] = random_actions(item, num_lanes, generator, allowed[:, start:end])
            start = end
        return parts
    low, high = bounds_of(space)
    low, high = np.where(np.isfinite(low), low, -1.0), np.where(np.isfinite(high), high, 1.0)
    return generator.uniform(low, high, (num_lanes, *space.shape)).astype(space.dtype)
