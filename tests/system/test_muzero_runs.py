"""Runs of MuZero: exact resume, the commands that take a number of simulations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.trained_runs import latest_checkpoint

import srl
from srl.cli.main import main

TINY: dict[str, Any] = {"hidden_sizes": (16,), "latent_size": 8, "num_bins": 11, "simulations": 4, "unroll": 2}
TINY |= {"n_step": 3, "learning_starts": 32, "batch_size": 8, "updates_per_decision": 0.25}


def run_of(root: Path, steps: int, environment: str = "CartPole-v1", **options: Any) -> srl.Run:
    settings = {**TINY, **options.pop("muzero", {})}
    options = {"lanes": 2, "horizon": 4, "seed": 3, "scheduler": "inline", **options}
    return srl.train(
        environment, algo="muzero", muzero=settings, steps=steps, recipe="none", root=root, sinks=(), **options
    )


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        (
            {"search": "puct", "prioritized": True, "priority_beta": 1.0, "temperature_final": 1.0}
            | {"bootstrap": "search", "max_target_age": 2},
            {"ring": 2},
        ),
        ({"sampled_actions": 5, "max_target_age": 0}, {"environment": "Pendulum-v1"}),
        pytest.param({"consistency_weight": 1.0}, {"inference": "host"}, marks=pytest.mark.slow),
    ],
)
def test_a_resumed_run_ends_where_an_uninterrupted_one_does(
    tmp_path: Path, settings: dict[str, Any], options: dict[str, Any]
) -> None:
    options = {**options, "muzero": settings}
    whole = run_of(tmp_path, 320, name="whole", **options)
    resumed = srl.resume(run_of(tmp_path, 160, name="halved", **options).path, steps=320)
    one, other = (latest_checkpoint(run.path)[0] for run in (whole, resumed))
    if "max_target_age" in settings:
        assert 0 <= whole.status.replay[0].target_age <= settings["max_target_age"]
    assert set(one) == set(other)
    for key in one:
        assert one[key].tobytes() == other[key].tobytes(), key


def test_trained_policies_play_with_any_number_of_simulations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(tmp_path, 80)
    found = {}
    for simulations in (None, 0, 4):
        flags = [] if simulations is None else ["--simulations", str(simulations)]
        capsys.readouterr()
        assert main(["eval", str(run.path), "--episodes", "4", "--json", *flags]) == 0
        found[simulations] = json.loads(capsys.readouterr().out)["returns"]
    assert found[None] == found[4]
    assert srl.evaluate(run.path, episodes=4, simulations=0).returns == tuple(found[0])
    assert main(["eval", str(run.path), "--simulations", "-1"]) == 2
    assert "simulations must be 0 or more, found -1" in capsys.readouterr().err


def test_a_run_with_real_valued_actions_is_evaluated_without_a_search(tmp_path: Path) -> None:
    run = run_of(tmp_path, 80, "Pendulum-v1")
    policy = srl.load(run.path, simulations=0)
    seen = np.array([[1.0, 0.0, 0.5], [-0.5, 0.8, -3.0]], np.float32)
    assert srl.evaluate(run.path, episodes=2, simulations=0).episodes == 2
    assert policy.act(seen).shape == (2, 1)
    assert np.abs(srl.load(run.path).act(seen, greedy=False)).max() <= 2.0


def test_policies_that_do_not_search_have_no_simulations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = srl.train("CartPole-v1", steps=64, lanes=2, horizon=4, scheduler="inline", root=tmp_path, sinks=())
    assert main(["eval", str(run.path), "--simulations", "8"]) == 2
    assert "ppo do not search" in capsys.readouterr().err


def test_bad_options_are_refused_before_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--algo", "muzero", "--root", str(tmp_path), "--steps", "64"]
    wide = ("srl.testing.probe_environments:variant", "--env-arg", "probe=CreditedReward", "--env-arg", "real=true")
    assert main(["train", *wide, *common, "--algo.initial-std", "3"]) == 2
    assert "initial_std of sampled actions must be between 0.0067 and 1.6, found 3" in capsys.readouterr().err
    assert main(["train", "CartPole-v1", *common, "--algo.simulations", "0"]) == 2
    assert "simulations must be at least 1" in capsys.readouterr().err
    memory = ("--algo.search-memory-mb", "1", "--algo.simulations", "2000")
    assert main(["train", "CartPole-v1", *common, *memory]) == 2
    assert "MB, more than" in capsys.readouterr().err
    workers = ("--reanalyze-workers", "2")
    assert main(["train", "CartPole-v1", *common, *workers, "--max-target-age", "5"]) == 2
    assert "use --replay host or remote with them" in capsys.readouterr().err
    assert main(["train", "CartPole-v1", *common, *workers, "--replay", "host"]) == 2
    assert "use muzero with --algo.max-target-age" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("environment", ["CartPole-v1", "Pendulum-v1"])
def test_muzero_trains_in_processes_with_policy_replay_and_reanalyze_workers(tmp_path: Path, environment: str) -> None:
    workers = {"inference": "host", "replay": "host", "reanalyze_workers": 2}
    run = run_of(tmp_path, 400, environment, scheduler="processes", muzero={"max_target_age": 4}, **workers)
    assert run.status.steps >= 400
    assert run.status.reanalyzed > 0
    assert run.status.replay[0].target_age <= 4
    state = latest_checkpoint(run.path)[0]
    assert any(key.endswith("exp_avg") and state[key].any() for key in state)  # it made gradient steps
