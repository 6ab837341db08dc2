"""Which units are drawn: whole episodes, and only the newest decisions, also through an algorithm of a user."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replay.reference import Source, empty_block, spec_of

import srl
from srl.algorithms.dqn.config import DQNConfig
from srl.algorithms.r2d2.config import R2D2Config
from srl.api.dataflow import Episodes, Priorities, Replay, Sequences, Transitions
from srl.base.shared_memory import KeptFile
from srl.replay.memory import ReplayMemory
from srl.replay.storage import Arena


def fill(memory: ReplayMemory, spec: Any, num_blocks: int, tracks: int = 1, end_rate: float = 0.3) -> list[dict]:
    rng = np.random.default_rng(0)
    sources = [Source(spec, rng, 10_000_000 * track, end_rate) for track in range(tracks)]
    blocks = []
    for number in range(num_blocks):
        arrays, first_step = sources[number % tracks].block()
        memory.insert(arrays, number % tracks, first_step)
        blocks.append(arrays)
    return blocks


def first_rows(blocks: list[dict], num_lanes: int) -> list[float]:
    """Return the observations of all rows that begin an episode."""
    found = []
    for arrays in blocks:
        begins = (arrays["first"] & arrays["acting"])[:-1, :num_lanes]
        found += arrays["observation"][:-1, :num_lanes, 0][begins].tolist()
    return found


@pytest.mark.parametrize("num_agents", [1, 2])
def test_whole_episodes_are_drawn_with_equal_probability(num_agents: int) -> None:
    spec, unit = spec_of(6, 4), Episodes(12, num_agents=num_agents)
    memory = ReplayMemory(Replay(unit, 100, 10 * 6 * 4), spec, 0)
    blocks = fill(memory, spec, 25, tracks=2)
    expected = first_rows(blocks[-10:], 4 // num_agents)  # of copies: the lanes of their first agents
    assert memory.num_drawable == len(expected) > 20
    batch: Any = memory.draw(100, 0.0).batch
    assert batch.first[:, 0, ::num_agents].all()
    drawn = batch.observation[:, 0, ::num_agents, 0].ravel()
    counts = np.array([(drawn == start).sum() for start in expected])
    assert counts.sum() == 10_000
    mean = 10_000 / len(expected)
    assert ((counts - mean) ** 2 / mean).sum() < len(expected) + 5 * np.sqrt(2 * len(expected)), "chi-square"


def test_an_episode_is_followed_by_the_next_one_of_its_lane() -> None:
    spec = spec_of(4, 1)
    memory = ReplayMemory(Replay(Episodes(7), 2, 100), spec, 0)
    arrays = empty_block(spec)
    arrays["observation"][:, 0, 0] = np.arange(5)
    arrays["acting"][:, 0], arrays["acting"][2, 0] = True, False  # row 2 is the last observation of the first episode
    arrays["first"][0, 0] = arrays["first"][3, 0] = arrays["terminated"][1, 0] = True
    memory.insert(arrays, "a", 0)
    assert memory.num_drawable == 2
    starts = {}
    for _ in range(20):
        batch: Any = memory.draw(1, 0.0).batch
        for i in range(2):
            starts[int(batch.observation[0, 0, i, 0])] = (batch.acting[0, :, i].tolist(), batch.first[0, :, i].tolist())
    assert set(starts) == {0, 3}
    assert starts[0][0][:4] == [True, True, False, True]
    assert starts[0][1][:4] == [True, False, False, True]


def test_episodes_with_priorities_survive_a_kill_and_a_restart() -> None:
    spec, flow = spec_of(6, 2), Replay(Episodes(12), 8, 10 * 12, priorities=Priorities(beta=1.0))
    with closing(KeptFile.create("test")) as kept:
        memory = ReplayMemory(flow, spec, 0, arena=Arena(kept.window(0)))
        blocks = fill(memory, spec, 14)
        expected = sorted(first_rows(blocks[-10:], 2))
        again = ReplayMemory(flow, spec, 0, arena=Arena(kept.window(0)))
        assert again.recovered
        loaded = ReplayMemory(flow, spec, 1)
        loaded.restore(memory.state())
        for one in (memory, again, loaded):
            assert one.num_drawable == len(expected)
            batch: Any = one.draw(100, 0.0).batch
            assert batch.first[:, 0].all()
            assert sorted(set(batch.observation[:, 0, :, 0].ravel().tolist())) == expected


@pytest.mark.parametrize("unit", [Transitions(), Sequences(3), Episodes(3)])
def test_only_the_newest_decisions_are_drawn(unit: Any) -> None:
    spec = spec_of(4, 2)
    memory = ReplayMemory(Replay(unit, 50, 10 * 8, newest=3 * 8), spec, 0)
    for number in (1, 2, 5, 10, 13, 23):
        fresh = ReplayMemory(Replay(unit, 50, 10 * 8, newest=3 * 8), spec, 0)
        blocks = fill(fresh, spec, number, end_rate=0.4)
        batch: Any = fresh.draw(40, 0.0).batch
        seen = batch.observation[..., 0] if isinstance(unit, Transitions) else batch.observation[:, 0, :, 0]
        rows = [block["observation"][:-1, :, 0][block["acting"][:-1]] for block in blocks[-3:]]
        starts = {"Transitions": rows, "Sequences": [block["observation"][:-1, :, 0].ravel() for block in blocks[-3:]]}
        allowed = starts.get(type(unit).__name__, [np.array(first_rows(blocks[-3:], 2))])
        assert set(seen.ravel().tolist()) == set(np.concatenate(allowed).tolist()), f"after {number} blocks"
    assert memory.num_drawable == 0


def test_all_decisions_are_drawn_if_the_newest_ones_have_nothing_to_draw() -> None:
    spec = spec_of(4, 1)
    memory = ReplayMemory(Replay(Transitions(), 4, 100, newest=4), spec, 0)
    fill(memory, spec, 1)
    memory.insert(empty_block(spec), 0, 4)  # no lane acts
    assert memory.draw(1, 0.0).batch.num_steps == 1


def test_selectors_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="draws from the `newest` decisions are uniform; leave out `priorities`"):
        Replay(Transitions(), 8, 100, priorities=Priorities(), newest=10)
    with pytest.raises(ValueError, match="`newest` must be the number of decisions to draw from, at least 1; found 0"):
        Replay(Transitions(), 8, 100, newest=0)
    with pytest.raises(ValueError, match="whole episodes have no burn-in"):
        Episodes(10, period=2)


@dataclass(frozen=True)
class RecentDQNConfig(DQNConfig):
    """DQN that draws only from the newest decisions."""

    def dataflow(self) -> Replay:
        return replace(super().dataflow(), newest=64)


@dataclass(frozen=True)
class EpisodicConfig(R2D2Config):
    """R2D2 that learns from whole episodes."""

    def dataflow(self) -> Replay:
        return replace(super().dataflow(), unit=Episodes(self.chunk))


@pytest.mark.parametrize(
    "algo",
    [
        RecentDQNConfig(hidden_sizes=(8,), learning_starts=32, batch_size=8),
        EpisodicConfig(hidden_sizes=(8,), memory_size=8, learning_starts=64, batch_size=4, chunk=24, burn_in=0),
    ],
)
def test_an_algorithm_of_a_user_chooses_what_is_drawn(tmp_path: Path, algo: Any) -> None:
    run = srl.train("CartPole-v1", algo=algo, steps=256, scheduler="inline", recipe="none", root=tmp_path, sinks=())
    assert run.status.metrics["gradient_steps"] > 0
