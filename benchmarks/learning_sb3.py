"""One run of Stable-Baselines3 for benchmarks/learning.py (PPO) and learning_replay.py (DQN, SAC, TD3), which start it:
runs without srl.

    python learning_sb3.py ENVIRONMENT SETTINGS_AS_JSON SEED DIRECTORY

Leaves config.json and metrics.jsonl in DIRECTORY, as SRL does, so that `srl plot` can draw both. After DQN, SAC and
TD3, greedy.json has the mean return of greedy episodes.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecNormalize

BEGAN = time.time()


class Record(BaseCallback):  # type: ignore[misc]
    """Records the mean return of the last 100 episodes, before updates that are at least `apart` steps after the one
    recorded before, and at the end."""

    def __init__(self, path: Path, apart: float = 0.0) -> None:
        super().__init__()
        self._file = path.open("w", buffering=1)
        self._returns: deque[float] = deque(maxlen=100)
        self._apart, self._due = apart, 0.0

    def _on_step(self) -> bool:
        self._returns.extend(float(info["episode"]["r"]) for info in self.locals["infos"] if "episode" in info)
        return True

    def _on_rollout_end(self) -> None:
        if self.num_timesteps >= self._due:
            self._record()

    def _record(self) -> None:
        if self._returns:
            self._due = self.num_timesteps + self._apart
            record = {
                "step": self.num_timesteps,
                "elapsed": time.time() - BEGAN,
                "return": sum(self._returns) / len(self._returns),
            }
            self._file.write(json.dumps(record) + "\n")

    def _on_training_end(self) -> None:
        self._record()
        self._file.close()


def scheduled(start: float, schedule: str) -> Any:
    """Return a constant, or a function of the remaining share of the run."""
    return (lambda left: start * left) if schedule == "linear" else start


def main(environment: str, settings: dict[str, Any], seed: int, path: Path) -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)  # more are slower with networks this small
    if "algo" in settings:
        replay(environment, settings, seed, path)
        return
    lanes = make_vec_env(environment, n_envs=settings["lanes"], seed=seed)
    if settings["normalize"]:
        lanes = VecNormalize(lanes, gamma=settings["gamma"])
    model = PPO(
        "MlpPolicy",
        lanes,
        n_steps=settings["horizon"],
        batch_size=settings["minibatch"],
        n_epochs=settings["epochs"],
        learning_rate=scheduled(settings["learning_rate"], settings["learning_rate_schedule"]),
        clip_range=scheduled(settings["clip"], settings["clip_schedule"]),
        gamma=settings["gamma"],
        gae_lambda=settings["gae_lambda"],
        ent_coef=settings["entropy"],
        seed=seed,
        device="cpu",
    )
    config = {"environment": environment, "options": {"algo": "sb3-ppo", "seed": seed, **settings}}
    (path / "config.json").write_text(json.dumps(config))
    model.learn(settings["steps"], callback=Record(path / "metrics.jsonl"))
    lanes.close()


def replay(environment: str, settings: dict[str, Any], seed: int, path: Path) -> None:
    """Train DQN, SAC or TD3, and evaluate the last policy."""
    options = dict(settings["options"])
    options["learning_rate"] = scheduled(options["learning_rate"], settings["schedule"])
    lanes = make_vec_env(environment, seed=seed)
    if settings["algo"] == "td3":
        size = lanes.action_space.shape[0]
        options["action_noise"] = NormalActionNoise(np.zeros(size), np.full(size, 0.1))
    kind = {"dqn": DQN, "sac": SAC, "td3": TD3}[settings["algo"]]
    model = kind("MlpPolicy", lanes, seed=seed, device="cpu", **options)
    config = {
        "environment": environment,
        "options": {"algo": f"sb3-{settings['algo']}", "seed": seed, **settings["options"]},
    }
    (path / "config.json").write_text(json.dumps(config))
    model.learn(settings["steps"], callback=Record(path / "metrics.jsonl", settings["steps"] / settings["points"]))
    mean, _ = evaluate_policy(model, make_vec_env(environment, seed=0), settings["episodes"])
    (path / "greedy.json").write_text(json.dumps(float(mean)))
    lanes.close()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
