"""Trajectories for the tests of trainers: random data with true decisions, and the pieces of it."""

from __future__ import annotations

import numpy as np

from srl.algorithms.ppo import PPOConfig
from srl.api.spaces import Space, array_spec
from srl.api.trainer import Trainer, Trajectory
from srl.base.tree import Array, ArraySpec, map_tree


def random_trajectory(
    config: PPOConfig, observation: Space, action: Space, trainer: Trainer, rows: int, lanes: int, seed: int
) -> Trajectory:
    rng = np.random.default_rng(seed)
    policy = config.build_policy(observation, action, seed)
    policy.load(trainer.parameters(), 0)

    def draw(spec: ArraySpec) -> Array:
        shape = (rows, lanes, *spec.shape)
        if spec.dtype == "uint8":
            return rng.integers(0, 256, shape, np.uint8)
        return rng.integers(0, 2, shape) if spec.dtype == "int64" else rng.standard_normal(shape).astype(spec.dtype)

    tree = map_tree(draw, array_spec(observation))
    first = np.zeros((rows, lanes), bool)
    decisions = [policy.act(map_tree(lambda a, t=t: a[t], tree), None, first[t]) for t in range(rows)]
    terminated = rng.random((rows, lanes)) < 0.05
    truncated = rng.random((rows, lanes)) < 0.05
    acting = np.ones((rows, lanes), bool)
    acting[1:] = ~(terminated | truncated)[:-1]
    return Trajectory(
        tree,
        {key: np.stack([np.asarray(decision[key]) for decision in decisions]) for key in decisions[0]},
        rng.standard_normal((rows, lanes)).astype(np.float32),
        terminated,
        truncated,
        acting,
        first,
        np.zeros((rows, lanes), np.int32),
    )


def lanes_of(batch: Trajectory, lanes: slice) -> Trajectory:
    """The same batch for some of its lanes only."""

    def cut(array: Array) -> Array:
        return np.ascontiguousarray(array[:, lanes])

    return Trajectory(
        map_tree(cut, batch.observation),
        {key: map_tree(cut, tree) for key, tree in batch.decision.items()},
        *(cut(a) for a in (batch.reward, batch.terminated, batch.truncated, batch.acting, batch.first, batch.version)),
    )
