"""Run directories for tests, as written by training, but without training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from srl.api.spaces import Space
from srl.base.config import to_data
from srl.base.tree import Array
from srl.environments.registry import lanes_config
from srl.experiments.options.keywords import make_options
from srl.experiments.options.train_options import TrainOptions
from srl.storage import checkpoints
from srl.storage.run_directory import RunDirectory, create


def latest_checkpoint(run: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays and the metadata of the newest checkpoint of a run."""
    newest = checkpoints.latest(run / "checkpoints")
    assert newest is not None, f"{run} has no checkpoint"
    arrays, metadata = checkpoints.read(newest)
    return dict(arrays), metadata


def untrained(root: Path, env: str, env_args: dict[str, Any] | None = None, **options: Any) -> RunDirectory:
    """Return a run whose policy has its initial parameters with some noise, so that its actions differ."""
    made = make_options(**options)
    environment = lanes_config(env, **(env_args or {}))
    if made.algorithm.wants_simulator():
        environment = environment.with_states()
        made = made.replace(algorithm=made.algorithm.for_simulator(environment.simulator()))
    lanes = environment.build(1)
    team = lanes.spec.teams[0]
    lanes.close()
    run = create(root, "run")
    run.write_config(
        {
            "environment": env,
            "lanes": to_data(environment),
            "options": to_data(made),
            "policies": (described := {"policy": describe(made, team.observation, team.action)}),
        }
    )
    trainer = made.algorithm.on_cpu().build_trainer(team.observation, team.action, 0)
    parameters = trainer.parameters() + np.random.default_rng(0).normal(0, 0.1, trainer.parameters().shape)
    metadata = {"policies": {"policy": {"version": 1, "steps": 64}}, "description": described}
    checkpoints.write(run.checkpoints, 64, {"policy/parameters": parameters.astype(np.float32)}, metadata)
    return run


def describe(options: TrainOptions, observation: Space, action: Space) -> dict[str, Any]:
    algorithm = options.algorithm.on_cpu()
    return {"algorithm": to_data(algorithm), "observation": to_data(observation), "action": to_data(action)}
