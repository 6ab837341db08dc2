"""Trajectories for the tests of trainers: random observations with the decisions of a policy."""

from __future__ import annotations

import numpy as np

from srl.algorithms.actor_critic import ActorCriticConfig
from srl.api.spaces import Space, array_spec, choice_sizes
from srl.api.trainer import Trainer, Trajectory
from srl.base.tree import Array, ArraySpec, map_tree
from srl.testing.algorithm_checks import record_trajectory


def random_trajectory(
    config: ActorCriticConfig, observation: Space, action: Space, trainer: Trainer, rows: int, lanes: int, seed: int
) -> Trajectory:
    """A batch of random observations, with the decisions of the trainer's parameters. A mask leaves at least the first
    choice."""
    rng = np.random.default_rng(seed)
    policy = config.build_policy(observation, action, seed)
    policy.load(trainer.parameters(), 0)

    def draw(spec: ArraySpec) -> Array:
        shape = (rows, lanes, *spec.shape)
        if spec.dtype == "uint8":
            return rng.integers(0, 256, shape, np.uint8)
        return rng.integers(0, 2, shape) if spec.dtype == "int64" else rng.standard_normal(shape).astype(spec.dtype)

    tree = map_tree(draw, array_spec(observation))
    if isinstance(tree, dict) and config.mask_key in tree:
        starts = np.cumsum((0, *choice_sizes(action)))[:-1]
        np.asarray(tree[config.mask_key])[..., starts] = 1
    remembered = config.decision_spec(observation, action).get("state")
    return record_trajectory(policy, tree, rng, remembered if isinstance(remembered, ArraySpec) else None)


def lanes_of(batch: Trajectory, lanes: slice) -> Trajectory:
    """The same batch with some of its lanes only."""

    def select(array: Array) -> Array:
        return np.ascontiguousarray(array[:, lanes])

    return Trajectory(
        map_tree(select, batch.observation),
        {key: map_tree(select, tree) for key, tree in batch.decision.items()},
        *(
            select(a)
            for a in (batch.reward, batch.terminated, batch.truncated, batch.acting, batch.first, batch.version)
        ),
    )
