"""Batches of transitions and sequences for trainers that learn from replay."""

from __future__ import annotations

import numpy as np

from srl.api.dataflow import SequenceBatch, TransitionBatch
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


def random_sequences(
    observation: Space,
    action: Space,
    state_size: int,
    num_steps: int = 2,
    num_lanes: int = 6,
    burn_in: int = 3,
    length: int = 5,
    seed: int = 0,
) -> SequenceBatch:
    """Return minibatches of random rows. Every sixth step ends its episode. The last lane ends two rows early: those
    rows are not remembered."""
    generator = np.random.default_rng(seed)
    shape = num_steps, burn_in + length + 1, num_lanes

    def draw(space: Space) -> Tree:
        flat = random_actions(space, int(np.prod(shape)), generator)
        tree: Tree = map_tree(lambda array: array.reshape(*shape, *array.shape[1:]), flat)
        return tree

    terminated, truncated = generator.random((2, *shape)) < 1 / 12
    ended = terminated | truncated
    acting, first, valid = np.ones(shape, bool), np.zeros(shape, bool), np.ones(shape, bool)
    acting[:, 1:] = ~ended[:, :-1]
    terminated &= acting  # the last observation of an episode has a row of its own
    truncated &= acting
    ended = terminated | truncated
    acting[:, 1:] = ~ended[:, :-1]
    first[:, 2:] = ended[:, :-2]
    valid[:, -2:, -1] = acting[:, -2:, -1] = False
    return SequenceBatch(
        observation=draw(observation),
        decision={"action": draw(action)},
        reward=generator.normal(size=shape).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        acting=acting,
        first=first,
        valid=valid,
        state=generator.normal(size=(num_steps, num_lanes, state_size)).astype(np.float32),
        weight=generator.uniform(0.5, 1.0, (num_steps, num_lanes)).astype(np.float32),
        num_decisions=num_steps * length * num_lanes,
        burn_in=burn_in,
    )


def cue_sequences(num_steps: int, num_lanes: int, length: int, burn_in: int, seed: int) -> SequenceBatch:
    """Return random play of episodes of two steps and their last observation: the cue (1 or -1) is visible only in the
    first step, and the action of the second one earns 1 if it matches (action 1 for cue 1). The stored memory is
    noise, and the first row begins an episode."""
    generator = np.random.default_rng(seed)
    num_rows = burn_in + length + 1
    phase = np.arange(num_rows) % 3
    shape = num_steps, num_rows, num_lanes
    cue = generator.choice((-1.0, 1.0), size=(num_steps, -(-num_rows // 3), num_lanes)).repeat(3, axis=1)[:, :num_rows]
    action = generator.integers(2, size=shape)
    observation = np.zeros((*shape, 2), np.float32)
    observation[..., 0] = np.where(phase[:, None] == 0, cue, 0.0)
    observation[..., 1] = (phase == 1)[:, None]
    earns = (phase == 1)[:, None] & (action == (cue > 0))
    at = np.broadcast_to(phase[:, None], shape)
    return SequenceBatch(
        observation=observation,
        decision={"action": action},
        reward=earns.astype(np.float32),
        terminated=at == 1,
        truncated=np.zeros(shape, bool),
        acting=at != 2,
        first=at == 0,
        valid=np.ones(shape, bool),
        state=generator.normal(size=(num_steps, num_lanes, 32)).astype(np.float32),
        weight=np.ones((num_steps, num_lanes), np.float32),
        num_decisions=num_steps * num_lanes * length,
        burn_in=burn_in,
    )
