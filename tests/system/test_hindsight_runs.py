"""Hindsight through its doors: what is refused before a run starts, where replay runs, faults, and what it learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srl
from srl.experiments.graph.preparation import PreparedRun, prepare
from srl.experiments.options.keywords import make_options
from srl.replay.goals import GoalRewardsConfig
from srl.workers.trainer.worker import TrainerWorkerConfig

PROBES = "srl.testing.goal_environments"
SMALL = {"hidden_sizes": (16,), "learning_starts": 64, "batch_size": 16, "updates_per_decision": 0.25}


def prepared(env: str, algo: str = "sac", **options: Any) -> PreparedRun:
    own = {"her": "future", **options.pop("algorithm", {})}
    return prepare(env, make_options(algo=algo, **{algo: own}, steps=100_000, recipe="none", **options), None)


def goals_of(run: PreparedRun) -> GoalRewardsConfig:
    config = next(group.config for group in run.experiment.groups if group.name == "trainers")
    assert isinstance(config, TrainerWorkerConfig)
    assert config.goals is not None
    return config.goals


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        ("Pendulum-v1", {}, r"a Dict with 'observation', 'achieved_goal' and 'desired_goal'.*; Pendulum-v1 has Box"),
        ("srl.testing.probe_environments:Masked", {"algo": "dqn"}, r"has a Dict with '\w+', '\w+'"),
        ("support.goals:NoFunction", {}, r"has no method compute_reward\(achieved_goal, desired_goal, info\)"),
        ("support.goals:NeedsInfo", {}, r"calls `compute_reward\(.*an empty info, expected a number; found KeyError"),
        ("support.goals:Costly", {}, r"`compute_reward` to return what a step returns.* expected -1.25, found -1.0"),
        ("support.goals:OtherGoals", {}, r"must have the same shape and dtype; .*Box\(\(3,\).*Box\(\(2,\)"),
        ("support.goals:UnendingBits", {"algo": "dqn"}, r"`compute_terminated` to return what a step returns"),
        (f"{PROBES}:PointReach", {"action_repeat": 2}, r"--action-repeat"),
        (f"{PROBES}:PointReach", {"algorithm": {"her_ratio": 0.0}}, r"her_ratio must be positive, found 0"),
        (
            f"{PROBES}:PointReach",
            {"algorithm": {"her": "past"}},
            r"her must be one of none, future, final.* found 'past'",
        ),
        (f"{PROBES}:BitFlip", {"algo": "r2d2"}, r"this algorithm learns from sequences; use sac, td3, ddpg or dqn"),
        (f"{PROBES}:BitFlip", {"algo": "dagger"}, r"her must be 'none': the expert acts for the goal of the episode"),
        (f"{PROBES}:BitFlip", {"algo": "ppo"}, r"'her'"),
    ],
)
def test_what_hindsight_cannot_use_is_refused_before_anything_starts(env: str, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prepared(env, **options)


def test_an_option_of_on_policy_algorithms_is_refused_with_algorithms_that_have_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from srl.cli.main import main

    assert main(["train", "CartPole-v1", "--algo.her", "future"]) == 2
    assert "hindsight is for algorithms that learn from replay: set --algo to sac, td3, ddpg" in capsys.readouterr().err


def test_functions_are_called_with_arrays_where_they_can_be() -> None:
    assert goals_of(prepared(f"{PROBES}:PointReach")).terminated is None, "it never terminates"
    bits = goals_of(prepared(f"{PROBES}:BitFlip", "dqn", env_args={"size": 3}))
    assert (bits.reward, bits.terminated) == ("batch", "batch")
    single = prepared("support.goals:SingleGoals")
    assert goals_of(single).reward == "single"
    assert "compute_reward takes one goal at a time" in single.summary


@pytest.mark.parametrize("options", [{"replay": "inline"}, {"replay": "host"}, {"replay": "remote"}])
@pytest.mark.parametrize(("env", "algo"), [("PointReach", "td3"), ("BitFlip", "dqn")])
def test_every_place_of_replay_relabels(tmp_path: Path, env: str, algo: str, options: Any) -> None:
    own: dict[str, Any] = {algo: {**SMALL, "her": "final", "n_step": 2, "prioritized": True}, **options}
    run = srl.train(f"{PROBES}:{env}", algo=algo, steps=400, recipe="none", root=tmp_path, sinks=(), **own)
    assert run.status.steps >= 400


def test_an_interrupted_run_resumes_exactly(tmp_path: Path) -> None:
    options: dict[str, Any] = {"scheduler": "inline", "recipe": "none", "seed": 1, "root": tmp_path, "sinks": ()}
    own = {**SMALL, "her": "future"}
    whole = srl.train(f"{PROBES}:PointReach", algo="ddpg", ddpg=own, steps=480, name="whole", **options)
    half = srl.train(f"{PROBES}:PointReach", algo="ddpg", ddpg=own, steps=240, name="half", **options)
    srl.resume(half.path, steps=480)
    place, goal = np.array([[0.1, 0.2]], np.float32), np.array([[0.5, -0.5]], np.float32)
    seen = {"observation": place, "achieved_goal": place, "desired_goal": goal}
    one, other = (
        np.asarray(srl.load(run.path).policy.act(seen, None, np.ones(1, bool), greedy=True)["action"])
        for run in (whole, half)
    )
    assert np.array_equal(one, other)


BITS = {
    "hidden_sizes": (128,),
    "learning_starts": 200,
    "batch_size": 64,
    "updates_per_decision": 0.25,
    "gamma": 0.98,
    "tau": 0.05,
    "target_update": 1,
    "exploration_fraction": 0.5,
}


@pytest.mark.slow
@pytest.mark.parametrize(("her", "lowest", "highest"), [("future", -4.6, -3.6), ("none", -10.0, -9.0)])
def test_bits_are_flipped_to_a_goal_with_hindsight_and_not_without(
    tmp_path: Path, her: str, lowest: float, highest: float
) -> None:
    options: dict[str, Any] = {"scheduler": "inline", "recipe": "none", "sinks": (), "lanes": 8, "horizon": 8}
    run = srl.train(f"{PROBES}:BitFlip", algo="dqn", dqn={**BITS, "her": her}, steps=8000, root=tmp_path, **options)
    found = srl.evaluate(run.path, episodes=100, seed=1).mean
    assert lowest <= found <= highest, "five bits differ on average, and the last flip costs nothing"
