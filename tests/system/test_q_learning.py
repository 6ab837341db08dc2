"""Runs of Ape-X and R2D2: lanes that explore differently, sequences with a memory, exact resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.trained_runs import latest_checkpoint

import srl

TINY: dict[str, Any] = {"hidden_sizes": (8,), "learning_starts": 32, "batch_size": 8, "updates_per_decision": 0.25}
TINY |= {"priority_beta": 1.0}  # so that nothing depends on the length of the run
R2D2: dict[str, Any] = {**TINY, "memory_size": 8, "chunk": 6, "burn_in": 2, "period": 3, "target_update": 7}


@pytest.mark.parametrize(
    ("algo", "settings", "options"),
    [("apex", TINY, {"inference": "host", "actors": 2}), ("r2d2", R2D2, {"ring": 2})],
)
def test_a_resumed_run_ends_where_an_uninterrupted_one_does(
    tmp_path: Path, algo: str, settings: dict[str, Any], options: dict[str, Any]
) -> None:
    options = {**options, "algo": algo, algo: settings, "scheduler": "inline", "recipe": "none", "seed": 3}
    options |= {"lanes": 2, "horizon": 4, "root": tmp_path, "sinks": ()}
    whole = srl.train("CartPole-v1", name="whole", steps=480, **options)
    halved = srl.train("CartPole-v1", name="halved", steps=240, **options)
    resumed = srl.resume(halved.path, steps=480)
    one, other = (latest_checkpoint(run.path)[0] for run in (whole, resumed))
    assert set(one) == set(other)
    for key in one:
        assert one[key].tobytes() == other[key].tobytes(), key
    policy = srl.load(whole.path)
    assert policy.act(np.zeros(4, np.float32)) in (0, 1)


@pytest.mark.slow
def test_r2d2_trains_in_processes_with_policy_workers(tmp_path: Path) -> None:
    run = srl.train(
        "CartPole-v1", algo="r2d2", r2d2=R2D2, recipe="none", lanes=2, horizon=4, steps=400, inference="host",
        root=tmp_path, sinks=(),
    )  # fmt: skip
    assert run.status.steps >= 400
    state = latest_checkpoint(run.path)[0]
    assert any(key.endswith("exp_avg") and state[key].any() for key in state)  # it made gradient steps
