"""Run directories for the dashboard, made without training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from srl.api.status import EdgeStatus, PolicyStatus, ReplayStatus, RunStatus, StreamStatus, WorkerStatus
from srl.storage.run_directory import RunDirectory

MakeRun = Callable[..., RunDirectory]


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "step": 100 * n, "time": 1e9 + n, "kind": "update", "policy": "policy", "elapsed": n / 2, "update": n,
            "return": float(n), "episodes": 100, "policy_loss": 1.0 / n,
        }
        for n in range(1, count + 1)
    ]  # fmt: skip


def status_of(path: Path, **changes: Any) -> RunStatus:
    workers = [
        WorkerStatus(f"{group}/{index}", group, 100 + index, 0, "running", {"env": 0.5, "waiting": 0.5}, 50.0, 100.0)
        for group, count in (("actors", 2), ("trainers", 1))
        for index in range(count)
    ]
    known: dict[str, Any] = {
        "environment": "CartPole-v1", "algorithm": "ppo",
        "state": "finished", "steps": 1000, "target_steps": 1000, "return_mean": 10.0, "return_curve": [1.0, 5.0, 10.0],
        "policies": {"policy": PolicyStatus(steps=1000, return_mean=10.0)}, "workers": workers, "version": 10,
        "streams": [StreamStatus("samples/0", "push", 0.5, 10, 9, 1)], "metrics": {"policy_loss": 0.1},
        "replay": [ReplayStatus("replay/0", 50, 100, 1000, 1.0, 0.9)],
        "edges": [EdgeStatus("actors", "trainers", "samples", "push", "host")],
        "messages": ["actors/0 died: killed by SIGKILL"], "refused": {"silent": 2},
    }  # fmt: skip
    return RunStatus(run=path.name, path=str(path), **{**known, **changes})


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Return a function that writes a run below `tmp_path/runs`."""

    def make(name: str, updates: int = 10, ended: bool = True, seed: int = 0, **status: Any) -> RunDirectory:
        run = RunDirectory(tmp_path / "runs" / name)
        for folder in (run.path, run.logs, run.checkpoints):
            folder.mkdir(parents=True, exist_ok=True)
        options = {"algo": "ppo", "run": {"seed": seed, "recipe": "classic-control"}, "algorithm": {"gamma": 0.5}}
        run.config.write_text(
            json.dumps({"environment": "CartPole-v1", "lanes": {}, "options": options, "policies": {"policy": {}}})
        )
        run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows(updates)))
        system = [
            {"step": 0, "time": 1.0, "elapsed": 0.5, "env_fps": 10.0},
            {"step": 500, "time": 2.0, "kind": "event", "elapsed": 2.0, "event": "message", "text": "actors/0 died"},
        ]
        run.system.write_text("".join(json.dumps(row) + "\n" for row in system))
        run.log("actors/0").write_text("hello from the actor\n")
        if ended:
            run.status.write_bytes(msgspec.json.encode(status_of(run.path, **status)))
        return run

    return make
