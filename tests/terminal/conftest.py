"""The status of a run in progress, for tests of the views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from srl.api.status import RunStatus, StreamStatus, WorkerStatus

ACTOR = {"env": 0.4, "inference": 0.3, "other": 0.1, "waiting": 0.2}
TRAINER = {"update": 0.9, "publish": 0.04, "other": 0.02, "waiting": 0.04}


def make_snapshot(num_actors: int = 2, **changes: Any) -> RunStatus:
    workers = [
        WorkerStatus(f"actors/{i}", "actors", pid=100 + i, incarnation=i, state="running", busy=ACTOR, cpu_percent=80)
        for i in range(num_actors)
    ]
    workers.append(WorkerStatus("trainers/0", "trainers", pid=200, state="running", busy=TRAINER, rss_mb=380))
    values: dict[str, Any] = {
        "run": "CartPole-v1-ppo-1-20260131-235959",
        "environment": "CartPole-v1",
        "algorithm": "ppo",
        "path": "/runs/CartPole-v1-ppo-1-20260131-235959",
        "state": "running",
        "elapsed": 12.34,
        "steps": 524_288,
        "target_steps": 1_000_000,
        "updates": 128,
        "env_fps": 210_345.0,
        "train_fps": 205_001.0,
        "lag_mean": 0.97,
        "lag_max": 1,
        "max_lag": 1,
        "episodes": 4_211,
        "return_mean": 312.41,
        "length_mean": 312.41,
        "return_curve": [20.0 + 3 * i for i in range(100)],
        "workers": workers,
        "streams": [StreamStatus("samples", "push", filled=0.5)],
        "bottleneck": "trainer: 96 % busy, actors wait 20 %",
        "advice": "make each update cheaper: --algo.num-minibatches 2",
        "messages": ["actors/1 died: killed by SIGKILL; restarting it"],
        "seconds_to_first_update": 2.1,
    }
    return RunStatus(**{**values, **changes})


@pytest.fixture
def snapshot() -> Callable[..., RunStatus]:
    """Function that makes a status; keyword arguments replace fields."""
    return make_snapshot
