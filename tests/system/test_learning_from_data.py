"""Recorded data and experts, through the command line and Python: collect, train, resume, evaluate, refuse."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srl
from srl.algorithms.offline.config import BCConfig
from srl.api.dataflow import BatchFunction, BatchTransform, Replay, TransitionBatch
from srl.api.spaces import Space
from srl.cli.main import main
from srl.datasets.reader import Dataset, locate
from srl.experiments.session.run import Run
from srl.storage.saved_policies import find_checkpoint, read_policy

pytest.importorskip("h5py")

PLAIN: dict[str, Any] = {"recipe": "none", "scheduler": "inline", "sinks": (), "verbose": False}
SMALL: dict[str, Any] = {"hidden_sizes": (16,), "batch_size": 32}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a run `player`, which can hardly play, and a data set of it, `cart-v0`."""
    root = tmp_path_factory.mktemp("offline")
    srl.train("CartPole-v1", steps=256, lanes=4, horizon=32, name="player", root=root, **PLAIN)
    written = ["--steps", "600", "--sample", "--out", str(root / "cart-v0")]
    assert main(["collect", "player", "--root", str(root), *written]) == 0
    return root


def learned(root: Path, algo: str, **options: Any) -> Run:
    env = options.pop("env", "CartPole-v1")
    data = (str(root / "cart-v0"),)
    return srl.train(env, algo=algo, root=root, **{"data": data, "batch": 10, **SMALL, **PLAIN, **options})


def rows_of(run: Run) -> list[dict]:
    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row.get("kind") == "update"]


def test_a_data_set_holds_what_the_policy_did(places: Path) -> None:
    dataset = Dataset(locate(places / "cart-v0"))
    assert dataset.num_steps == 600
    policy = srl.load(places / "player")
    episodes = list(dataset.episodes(policy.observation, policy.action))
    assert sum(episode.num_steps for episode in episodes) == 600
    for episode in episodes[:-1]:
        assert episode.terminated[-1]
        assert np.all(episode.reward == 1.0)
    assert episodes[-1].terminated[-1] or episodes[-1].truncated[-1]
    metadata = json.loads((places / "cart-v0" / "data" / "metadata.json").read_text())
    assert json.loads(metadata["env_spec"])["id"] == "CartPole-v1"


def test_whole_episodes_are_collected(places: Path) -> None:
    done = srl.collect(places / "player", places / "whole-v0", episodes=5, seed=3)
    assert len(done.returns) == 5
    dataset = Dataset(locate(places / "whole-v0"))
    assert dataset.num_episodes == 5
    assert dataset.num_steps == sum(done.returns)
    expected = srl.evaluate(places / "player", episodes=5, seed=3)
    assert sorted(done.returns) == sorted(expected.returns)


def test_a_run_counts_gradient_steps_and_resumes_exactly(places: Path) -> None:
    whole = learned(places, "bc", steps=35, name="whole", eval_every=10, eval_episodes=1)
    assert [row["step"] for row in rows_of(whole)] == [10, 20, 30, 35]
    assert [row["gradient_steps"] for row in rows_of(whole)] == [10, 20, 30, 35]
    evaluation = whole.status.policies["policy"].evaluation
    assert evaluation is not None
    assert (evaluation.step, evaluation.version) == (35, 4)  # the last policy is always evaluated
    assert whole.status.replay[0].size == 600
    run = learned(places, "bc", steps=20, name="twice")
    assert main(["resume", "twice", "--root", str(places), "--steps", "35"]) == 0
    assert [row["step"] for row in rows_of(run)] == [10, 20, 30, 35]
    one, other = (read_policy(find_checkpoint(path, "latest")).parameters for path in (whole.path, run.path))
    assert np.array_equal(one, other)
    assert srl.load(run.path).act([0.0, 0.0, 0.0, 0.0]) in (0, 1)
    assert srl.evaluate(run.path, episodes=1).returns
    with pytest.raises(ValueError, match="data cannot change in a resumed run"):
        srl.resume(run.path, steps=60, data=(str(places / "cart-v0"),), verbose=False)


@pytest.mark.parametrize("algo", ["iql", "dqn"])
def test_other_algorithms_learn_from_the_same_data(places: Path, algo: str) -> None:
    run = learned(places, algo, steps=20)
    assert rows_of(run)[-1]["gradient_steps"] == 20
    assert run.status.steps == 20


def test_real_valued_actions_are_recorded_and_learned(places: Path) -> None:
    srl.train("Pendulum-v1", steps=256, lanes=4, horizon=32, name="swinger", root=places, **PLAIN)
    srl.collect(places / "swinger", places / "swing-v0", steps=250, greedy=False)
    data = (str(places / "swing-v0"),)
    for algo in ("td3bc", "sac"):
        run = learned(places, algo, env="Pendulum-v1", data=data, steps=20)
        assert rows_of(run)[-1]["gradient_steps"] == 20
        action = srl.load(run.path).act([1.0, 0.0, 0.0])
        assert -2.0 <= float(action[0]) <= 2.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algo": "bc", "data": ()}, "bc learns from recorded data; add --data"),
        ({"algo": "dagger", "data": ()}, "dagger needs an expert"),
        ({"algo": "ppo"}, "with --data, use one of dqn"),
        ({"algo": "bc", "env": "Acrobot-v1"}, "belongs to another environment: its observation space"),
        ({"algo": "bc", "data": ("missing-v0",)}, "no data set 'missing-v0'"),
    ],
)
def test_what_cannot_work_is_refused_before_the_start(places: Path, options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"env": "CartPole-v1", "data": (str(places / "cart-v0"),), "root": places, **options}
    with pytest.raises(ValueError, match=message):
        srl.train(**{**PLAIN, **given})


@pytest.mark.parametrize("expert", ["function", "run"])
def test_dagger_learns_from_an_expert(places: Path, expert: str) -> None:
    name = "support.experts:balances" if expert == "function" else str(places / "player")
    own: dict[str, Any] = {**SMALL, "learning_starts": 32, "expert": name}
    run = srl.train("CartPole-v1", algo="dagger", steps=200, root=places, **own, **PLAIN)
    last = rows_of(run)[-1]
    assert last["step"] >= 200
    assert "agreement" in last
    assert srl.load(run.path).act([0.0, 0.0, 0.0, 0.0]) in (0, 1)
    config = json.loads((run.path / "config.json").read_text())
    saved = config["options"]["fields"]["algorithm"]["fields"]["expert"]
    assert saved == name if expert == "function" else Path(saved).is_dir()


@dataclass(frozen=True)
class Answers(BatchTransform):
    """Replaces actions by those of an expert."""

    def build(self, observation: Space, action: Space) -> BatchFunction:
        def answer(batch: TransitionBatch, random: np.random.Generator) -> TransitionBatch:
            assert isinstance(batch.decision, dict)
            batch.decision["action"][...] = batch.observation @ np.array([0.1, 0.5, 1.0, 1.0]) > 0.0
            return batch

        return answer


@dataclass(frozen=True)
class AnsweredConfig(BCConfig):
    normalize_observation: bool = False
    learning_starts: int = 200

    def dataflow(self) -> Replay:
        return replace(super().dataflow(), only_recorded=False, transform=Answers())


def test_an_expert_can_answer_what_is_drawn_from_the_replay(tmp_path: Path) -> None:
    run = srl.train("CartPole-v1", algo=AnsweredConfig(**SMALL), steps=800, root=tmp_path, **PLAIN)
    assert run.status.metrics["agreement"] > 0.8, "its own actions would agree half of the time"


def test_an_expert_of_another_environment_is_refused(places: Path) -> None:
    with pytest.raises(ValueError, match="has another observation space"):
        srl.train("Acrobot-v1", algo="dagger", expert=str(places / "player"), root=places, **PLAIN)
