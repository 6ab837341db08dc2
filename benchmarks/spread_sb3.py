"""Stable-Baselines3's PPO on MPE's simple_spread, one network for all agents: see docs/howto/multi-agent.md.

    python benchmarks/spread_sb3.py --steps 1000000 --seed 0

In an environment of its own: pip install "stable-baselines3" "supersuit" "mpe2" "pettingzoo". Steps are decisions, one
for each agent, as SRL counts them. Prints decisions, seconds and the mean return of an agent in the last 900 episodes.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from typing import Any

import numpy as np
import supersuit
import torch
from mpe2 import simple_spread_v3
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

WORLDS = 16
EVERY = 100_000


class Progress(BaseCallback):  # type: ignore[misc]
    """Prints the progress from time to time."""

    def __init__(self, num_lanes: int) -> None:
        super().__init__()
        self._running = np.zeros(num_lanes)
        self._returns: deque[float] = deque(maxlen=900)
        self._began, self._next = time.time(), EVERY

    def _on_step(self) -> bool:
        self._running += self.locals["rewards"]
        for lane in np.flatnonzero(self.locals["dones"]):
            self._returns.append(float(self._running[lane]))
            self._running[lane] = 0.0
        if self.num_timesteps >= self._next:
            self._next += EVERY
            print(
                self.num_timesteps,
                round(time.time() - self._began),
                round(float(np.mean(self._returns)), 2),
                flush=True,
            )
        return True


def main(steps: int, seed: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    np.random.seed(seed)  # SuperSuit's vector environment has no seed
    lanes: Any = supersuit.pettingzoo_env_to_vec_env_v1(simple_spread_v3.parallel_env(max_cycles=25))
    worlds = supersuit.concat_vec_envs_v1(lanes, WORLDS, num_cpus=0, base_class="stable_baselines3")
    model = PPO("MlpPolicy", worlds, n_steps=100, batch_size=256, n_epochs=10, learning_rate=3e-4, device="cpu")
    model.learn(steps, callback=Progress(worlds.num_envs))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    main(arguments.steps, arguments.seed)
