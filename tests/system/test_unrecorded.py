"""Errors that a run would not notice: samples that differ from what happened, NaN in weights, wrong statistics.

With `max_lag=0` training is synchronous, wherever workers run."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.counting import CountingConfig, CountingTrainer
from support.trained_runs import latest_checkpoint

import srl
from srl.algorithms.ppo.config import PPOConfig
from srl.algorithms.ppo.trainer import PPOTrainer
from srl.api.spaces import Space
from srl.api.trainer import Trainer, TrainResult, Trajectory
from srl.base.tree import Array

LENGTH = 5
QUICK: dict[str, Any] = {"epochs": 1, "num_minibatches": 2}


class LoggingTrainer(CountingTrainer):
    """Records all rows of its batches in order, for each lane: observation, reward, and ends of episodes."""

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
def test_every_decision_is_learned_from_once_and_in_order(tmp_path: Path, options: Mapping[str, Any]) -> None:
    log = tmp_path / "rows"
    srl.train(
        "srl.testing.environments:Tracer",
        algo=LoggingConfig(path=str(log)),
        steps=600,
        lanes=3,
        horizon=4,
        actors=1,
        root=tmp_path,
        sinks=(),
        **options,
    )
    rows_by_seed: dict[float, list[tuple[float, ...]]] = defaultdict(list)
    for batch in batches(log):
        for lane in np.moveaxis(batch, 1, 0):
            for seed, *row, acting in lane:
                if acting:
                    rows_by_seed[seed].append(tuple(row))
    assert sum(map(len, rows_by_seed.values())) >= 600
    for episode_rows in rows_by_seed.values():
        assert [row[:2] for row in episode_rows] == [(i // LENGTH, i % LENGTH) for i in range(len(episode_rows))]
        assert all(reward == t + 1 for _, t, reward, _, _ in episode_rows)
        assert all(ended == (t == LENGTH - 1) for _, t, _, ended, _ in episode_rows)
        assert all(first == (t == 0) for _, t, _, _, first in episode_rows)


def test_unaligned_lanes_record_their_decisions_once_and_in_order(tmp_path: Path) -> None:
    """Two agents decide in turns. A lane may have unrecorded steps between blocks, but not within one."""
    pytest.importorskip("pettingzoo")
    log = tmp_path / "rows"
    game = "pettingzoo:support.games:TurnGame"
    algo = LoggingConfig(path=str(log))
    srl.train(game, algo=algo, scheduler="inline", steps=600, lanes=3, horizon=4, root=tmp_path, sinks=())
    recorded = []
    for rows in batches(log):
        for block in np.moveaxis(rows, 1, 0):
            agent = int(block[0, 3])
            turns = list(range(agent, LENGTH, 2))
            decisions = [(seed, int(t), first) for seed, _, t, _, _, _, first, acting in block if acting]
            for (seed, t, _), (next_seed, next_t, next_first) in itertools.pairwise(decisions):
                assert next_t == turns[(turns.index(t) + 1) % len(turns)]
                assert (next_t == agent) == next_first == (next_seed != seed)  # each game has its own seed
            recorded += [(seed, agent, t) for seed, t, _ in decisions]
    assert len(recorded) >= 600
    assert len(set(recorded)) == len(recorded)
    assert {agent for _, agent, _ in recorded} == {0, 1}


def last_checkpoint(run: srl.Run) -> Mapping[str, Array]:
    assert run.state == "finished"
    return latest_checkpoint(run.path)[0]


@pytest.mark.parametrize("fault", ["nan", "nan_reward"])
def test_a_nan_during_a_run_never_reaches_the_weights(tmp_path: Path, fault: str) -> None:
    run = srl.train(
        "support.faulty_environments:Faulty",
        env_args={"fault": fault, "every": 4, "after": 3, "once": str(tmp_path / "broken")},
        scheduler="inline",
        lanes=4,
        horizon=8,
        steps=1500,
        root=tmp_path,
        sinks=(),
        ppo=QUICK,
    )
    assert (tmp_path / "broken").exists()
    for name, array in last_checkpoint(run).items():
        if name.startswith("policy/") and array.dtype.kind == "f":
            assert np.isfinite(array).all(), name


@pytest.mark.parametrize(
    "inference", ["host", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("inline", "remote"))]
)
def test_without_lag_processes_learn_the_same_as_one_thread(tmp_path: Path, inference: str) -> None:
    """Actor, policy worker and trainer in separate processes end with the same bits as workers that take turns in one
    thread, after the same number of updates. With a lag they do not."""
    sizes: dict[str, Any] = {"steps": 1500, "lanes": 8, "horizon": 16, "actors": 1, "ring": 1}
    here = {"scheduler": "inline", "inference": "inline" if inference == "inline" else "host"}
    variants: dict[str, dict[str, Any]] = {
        "synchronous": {**here, "max_lag": 0},
        "processes": {"inference": inference, "max_lag": 0},
        "lagging": {**here, "max_lag": 1},
    }
    ends = {}
    for name, options in variants.items():
        run = srl.train("CartPole-v1", name=name, root=tmp_path, sinks=(), ppo=QUICK, **sizes, **options)
        ends[name] = run.status.version, last_checkpoint(run)["policy/parameters"].tobytes()
    assert ends["processes"] == ends["synchronous"]
    assert ends["lagging"] != ends["synchronous"]


class RecordingTrainer(PPOTrainer):
    """Records the observations that it learned from."""

    path = Path()

    def step(self, batch: Trajectory, progress: float) -> TrainResult:
        rank = self._learner.ranks.rank
        with self.path.with_suffix(f".{rank}").open("ab") as file:
            np.save(file, np.asarray(batch.observation)[:-1][batch.acting[:-1]])
        return super().step(batch, progress)


@dataclass(frozen=True)
class RecordingConfig(PPOConfig):
    path: str = ""

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        trainer = RecordingTrainer(self, *self.build_network(observation, action, seed), seed)
        trainer.path = Path(self.path)
        return trainer


@pytest.mark.parametrize(
    "options",
    [
        {"scheduler": "inline"},
        {"scheduler": "inline", "actors": 3, "ring": 2, "inference": "host"},
        pytest.param({"actors": 4, "trainers": 2, "inference": "host", "policies": 2}, marks=pytest.mark.slow),
    ],
    ids=["one", "three actors", "two trainers"],
)
def test_observation_statistics_cover_all_samples_of_all_workers(tmp_path: Path, options: Mapping[str, Any]) -> None:
    seen = tmp_path / "seen"
    algo = RecordingConfig(path=str(seen), normalize_observation=True, **QUICK)
    sizes = {"lanes": 4, "horizon": 8, "steps": 800}
    run = srl.train("Pendulum-v1", algo=algo, root=tmp_path, sinks=(), **{"actors": 1, **sizes, **options})
    logs = sorted(tmp_path.glob("seen.*"))
    assert len(logs) == options.get("trainers", 1)
    rows = np.concatenate([part for log in logs for part in batches(log)]).astype(np.float64)
    count, mean, squares = last_checkpoint(run)["policy/observation_moments"]
    assert (count == len(rows)).all()
    assert len(rows) >= 800
    np.testing.assert_allclose(mean, rows.mean(0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(squares / count, rows.var(0), rtol=1e-9)
