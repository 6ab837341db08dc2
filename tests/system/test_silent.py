"""Silent mistakes, looked for in whole runs: what the trainer gets is what happened, and a NaN stays outside."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srl
from srl.api.spaces import Space
from srl.api.trainer import Trainer, TrainResult, Trajectory
from srl.base.tree import Array
from srl.runs import checkpoints
from srl.testing.algorithms import CountingConfig, CountingTrainer

LENGTH = 5


class LoggingTrainer(CountingTrainer):
    """Writes down all rows it is given: observation, reward and ends, for each lane in their order."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = Path(path)

    def step(self, batch: Trajectory, progress: float) -> TrainResult:
        observation = np.asarray(batch.observation)[:-1]  # [T, B, 3 or 4]
        marks = (batch.reward, batch.terminated, batch.first, batch.acting)
        rows = np.concatenate((observation, *(mark[:-1, :, None] for mark in marks)), axis=2, dtype=np.float64)
        with self._path.open("ab") as file:
            np.save(file, rows)
        return super().step(batch, progress)


@dataclass(frozen=True)
class LoggingConfig(CountingConfig):
    path: str = ""

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        return LoggingTrainer(self.path)


def batches(path: Path) -> list[Array]:
    found = []
    with path.open("rb") as file:
        while file.tell() < path.stat().st_size:
            found.append(np.load(file))
    return found


@pytest.mark.parametrize(
    "options",
    [{"scheduler": "inline"}, {"scheduler": "inline", "inference": "host", "ring": 2}, {"inference": "remote"}],
    ids=["inline", "host", "remote"],
)
def test_every_decision_is_learnt_from_once_and_in_its_order(tmp_path: Path, options: Mapping[str, Any]) -> None:
    log = tmp_path / "rows"
    srl.train(
        "srl.testing.environments:tracer",
        algo=LoggingConfig(path=str(log)),
        steps=600,
        lanes=3,
        horizon=4,
        actors=1,
        root=tmp_path,
        sinks=(),
        **options,
    )
    stories: dict[float, list[tuple[float, ...]]] = defaultdict(list)
    for rows in batches(log):
        for lane in np.moveaxis(rows, 1, 0):
            for seed, *row, acting in lane:
                if acting:
                    stories[seed].append(tuple(row))
    assert sum(map(len, stories.values())) >= 600
    for story in stories.values():
        assert [row[:2] for row in story] == [(i // LENGTH, i % LENGTH) for i in range(len(story))]
        assert all(reward == t + 1 for _, t, reward, _, _ in story)
        assert all(ended == (t == LENGTH - 1) for _, t, _, ended, _ in story)
        assert all(first == (t == 0) for _, t, _, _, first in story)


def test_lanes_with_a_time_of_their_own_tell_whole_stories_too(tmp_path: Path) -> None:
    """In a game of two the agents decide in turns. A lane may play unrecorded between blocks, but never within one."""
    pytest.importorskip("pettingzoo")
    log = tmp_path / "rows"
    game = "pettingzoo:srl.testing.environments:turn_game"
    algo = LoggingConfig(path=str(log))
    srl.train(game, algo=algo, scheduler="inline", steps=600, lanes=3, horizon=4, root=tmp_path, sinks=())
    told = []
    for rows in batches(log):
        for block in np.moveaxis(rows, 1, 0):
            agent = int(block[0, 3])
            turns = list(range(agent, LENGTH, 2))
            decisions = [(seed, int(t), first) for seed, _, t, _, _, _, first, acting in block if acting]
            for (seed, t, _), (next_seed, next_t, next_first) in itertools.pairwise(decisions):
                assert next_t == turns[(turns.index(t) + 1) % len(turns)]
                assert (next_t == agent) == next_first == (next_seed != seed)  # each game has a seed of its own
            told += [(seed, agent, t) for seed, t, _ in decisions]
    assert len(told) >= 600
    assert len(set(told)) == len(told)
    assert {agent for _, agent, _ in told} == {0, 1}


@pytest.mark.parametrize("fault", ["nan", "nan_reward"])
def test_a_nan_in_the_middle_of_a_run_never_reaches_the_weights(tmp_path: Path, fault: str) -> None:
    run = srl.train(
        "srl.testing.environments:faulty",
        env_args={"fault": fault, "every": 4, "after": 3, "once": str(tmp_path / "broken")},
        scheduler="inline",
        lanes=4,
        horizon=8,
        steps=1500,
        root=tmp_path,
        sinks=(),
    )
    assert (tmp_path / "broken").exists()
    assert run.state == "finished"
    newest = checkpoints.latest(run.path / "checkpoints")
    assert newest is not None
    arrays, _ = checkpoints.read(newest)
    for name, array in arrays.items():
        if name.startswith("policy/") and array.dtype.kind == "f":
            assert np.isfinite(array).all(), name
