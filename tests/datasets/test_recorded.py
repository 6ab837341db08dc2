"""Recorded episodes as transitions: returns, bootstraps and seams of blocks, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from srl.api.block import BlockSpec
from srl.api.dataflow import Replay, TransitionBatch, Transitions
from srl.base.tree import ArraySpec
from srl.datasets.reader import Episode
from srl.datasets.recorded import blocks_of, fill
from srl.replay.memory import ReplayMemory

NUMBER = ArraySpec((), "float32")


def numbered(start: int, count: int, end: str) -> Episode:
    """Return an episode whose observations are numbers from `start` on; rewards and actions are those of their step."""
    ends = {name: np.arange(count) == (count - 1 if name == end else -1) for name in ("terminated", "truncated")}
    steps = np.arange(start, start + count + 1, dtype=np.float32)
    return Episode(steps, steps[:-1].astype(np.int64), steps[:-1], **ends)


@pytest.mark.parametrize("horizon", [2, 3, 4, 64])
def test_transitions_stop_at_ends_and_cross_the_seams_of_blocks(horizon: int) -> None:
    spec = BlockSpec(horizon, 1, NUMBER, {"action": ArraySpec((), "int64")})
    episodes = [numbered(0, 3, "terminated"), numbered(10, 4, "truncated"), numbered(20, 1, "nothing")]
    memory = ReplayMemory(Replay(Transitions(n_step=2, gamma=0.5), 32, 64), spec, seed=0)
    fill(memory.insert, blocks_of(episodes, spec), horizon)
    assert memory.size == memory.collected == 8
    found: dict[float, list[float]] = {}
    for _ in range(20):
        batch: Any = memory.draw(1, 0.0).batch
        rows = zip(*(array[0].tolist() for array in (batch.observation, batch.decision["action"])), strict=True)
        assert all(seen == action for seen, action in rows)
        parts = (batch.observation, batch.reward, batch.discount, batch.next_observation)
        found |= {seen: rest for seen, *rest in zip(*(part[0].tolist() for part in parts), strict=True)}
    assert {seen: rest if rest[1] else rest[:2] for seen, rest in found.items()} == {
        0.0: [0.5, 0.25, 2.0],
        1.0: [2.0, 0.0],  # terminated: nothing follows
        2.0: [2.0, 0.0],
        10.0: [15.5, 0.25, 12.0],
        11.0: [17.0, 0.25, 13.0],
        12.0: [18.5, 0.25, 14.0],  # truncated: bootstraps from the last observation
        13.0: [13.0, 0.5, 14.0],
        20.0: [20.0, 0.5, 21.0],  # the recording stopped: bootstraps as well
    }


def test_a_seed_determines_the_draws() -> None:
    spec = BlockSpec(4, 1, NUMBER, {"action": ArraySpec((), "int64")})
    memory = ReplayMemory(Replay(Transitions(), 16, 64), spec, seed=0)
    fill(memory.insert, blocks_of([numbered(0, 30, "terminated")], spec), 4)
    memory.reseed(5)
    once, other = (np.array(memory.draw(2, 0.0).batch.observation) for _ in range(2))
    memory.reseed(5)
    assert np.array_equal(np.array(memory.draw(2, 0.0).batch.observation), once)
    assert not np.array_equal(once, other)


def test_an_end_inside_of_an_episode_counts() -> None:
    spec = BlockSpec(8, 1, NUMBER, {"action": ArraySpec((), "int64")})
    episode = numbered(1, 2, "truncated")
    memory = ReplayMemory(Replay(Transitions(n_step=3, gamma=0.5), 8, 8), spec, seed=0)
    fill(memory.insert, blocks_of([replace(episode, terminated=np.array([True, False]))], spec), 8)
    batch = memory.draw(4, 0.0).batch
    assert isinstance(batch, TransitionBatch)
    assert set(batch.discount[batch.observation == 1.0].tolist()) == {0.0}
