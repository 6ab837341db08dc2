"""Trajectories for the tests of trainers: random data with true decisions, and the pieces of it."""

from __future__ import annotations

import numpy as np

from srl.algorithms.actor_critic import ActorCriticConfig
from srl.api.policy import Policy
from srl.api.spaces import Space, array_spec, choice_sizes
from srl.api.trainer import Trainer, Trajectory
from srl.base.tree import Array, ArraySpec, Tree, map_tree


def random_trajectory(
    config: ActorCriticConfig, observation: Space, action: Space, trainer: Trainer, rows: int, lanes: int, seed: int
) -> Trajectory:
    """As an actor with the trainer's parameters makes it: an episode's last observation has a row in which nobody
    acts, and the next one begins after it. A memory starts with anything; a mask leaves at least the first choice."""
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
    terminated, truncated = rng.random((2, rows, lanes)) < 0.05
    ended = terminated | truncated
    acting, first = np.ones((rows, lanes), bool), np.zeros((rows, lanes), bool)
    acting[1:] = ~ended[:-1]
    first[2:] = ended[:-2]
    remembered = config.decision_spec(observation, action).get("state")
    memory = rng.standard_normal((lanes, *remembered.shape)) if isinstance(remembered, ArraySpec) else None
    decision, state = _decide(policy, tree, first, memory)
    return Trajectory(
        tree,
        decision,
        rng.standard_normal((rows, lanes)).astype(np.float32),
        terminated,
        truncated,
        acting,
        first,
        np.zeros((rows, lanes), np.int32),
        state,
    )


def _decide(
    policy: Policy, observation: Tree, first: Array, memory: Array | None
) -> tuple[dict[str, Tree], Tree | None]:
    """Decisions row by row, and the memory [T+1, B, S] before each; it starts as `memory`."""
    decisions: list[dict[str, Tree]] = []
    states: list[Tree | None] = [None if memory is None else memory.astype(np.float32)]
    for t in range(len(first)):
        decisions.append(dict(policy.act(map_tree(lambda a, t=t: a[t], observation), states[-1], first[t])))
        states.append(decisions[-1].get("state"))
    stacked = map_tree(lambda *rows: np.stack(rows), decisions[0], *decisions[1:])
    return stacked, None if memory is None else np.stack([np.asarray(state) for state in states[:-1]])


def lanes_of(batch: Trajectory, lanes: slice) -> Trajectory:
    """The same batch for some of its lanes only."""

    def cut(array: Array) -> Array:
        return np.ascontiguousarray(array[:, lanes])

    return Trajectory(
        map_tree(cut, batch.observation),
        {key: map_tree(cut, tree) for key, tree in batch.decision.items()},
        *(cut(a) for a in (batch.reward, batch.terminated, batch.truncated, batch.acting, batch.first, batch.version)),
    )
