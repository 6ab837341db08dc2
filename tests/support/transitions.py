"""Batches of transitions for trainers that learn from replay."""

from __future__ import annotations

import numpy as np

from srl.api.dataflow import TransitionBatch
from srl.api.spaces import Space
from srl.base.tree import Tree, map_tree
from srl.environments.random_actions import random_actions

GAMMA = 0.9


def random_transitions(
    observation: Space, action: Space, num_steps: int = 3, num_rows: int = 8, seed: int = 0
) -> TransitionBatch:
    """Return minibatches of random rows. Every fourth one ends its episode."""
    generator = np.random.default_rng(seed)

    def draw(space: Space) -> Tree:
        flat = random_actions(space, num_steps * num_rows, generator)
        tree: Tree = map_tree(lambda array: array.reshape(num_steps, num_rows, *array.shape[1:]), flat)
        return tree

    shape = num_steps, num_rows
    return TransitionBatch(
        observation=draw(observation),
        decision={"action": draw(action)},
        reward=generator.normal(size=shape).astype(np.float32),
        discount=np.where(generator.random(shape) < 0.25, 0.0, GAMMA).astype(np.float32),
        next_observation=draw(observation),
        weight=generator.uniform(0.5, 1.0, shape).astype(np.float32),
        num_decisions=num_steps * num_rows,
    )


CHAIN_LENGTH = 5


def chain_transitions(num_steps: int, num_rows: int, seed: int) -> TransitionBatch:
    """Return random steps in a chain of 5 states (one-hot). Action 1 goes right, action 0 left; leaving the chain at
    its right end gives the reward 1 and ends the episode."""
    generator = np.random.default_rng(seed)
    shape = num_steps, num_rows
    place = generator.integers(CHAIN_LENGTH, size=shape)
    action = generator.integers(2, size=shape)
    after = np.clip(place + 2 * action - 1, 0, CHAIN_LENGTH)
    ended = after == CHAIN_LENGTH
    one_hot = np.eye(CHAIN_LENGTH, dtype=np.float32)
    return TransitionBatch(
        observation=one_hot[place],
        decision={"action": action},
        reward=ended.astype(np.float32),
        discount=np.where(ended, 0.0, GAMMA).astype(np.float32),
        next_observation=one_hot[np.minimum(after, CHAIN_LENGTH - 1)],
        weight=np.ones(shape, np.float32),
        num_decisions=num_steps * num_rows,
    )


def chain_values() -> np.ndarray:
    """Return the best Q values [state, action] of the chain."""
    best = GAMMA ** np.arange(CHAIN_LENGTH)[::-1]  # 0.9^4 at the left end, 1 at the right one
    return np.stack([GAMMA * best[[0, 0, 1, 2, 3]], best], axis=1)
