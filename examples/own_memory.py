"""A custom network with a memory, on a task that needs one."""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

import srl
from srl.api.spaces import Box, Discrete, Space
from srl.networks.network import Network


class Recall(gymnasium.Env[Any, int]):  # type: ignore[misc]
    """The first observation shows which action is right at the end; the observations in between show nothing."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, delay: int = 4) -> None:
        self.delay = delay

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.cue, self.t = int(self.np_random.integers(2)), 0
        return np.array([2 * self.cue - 1, 0], np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        over = self.t > self.delay
        reward = float(over and action == self.cue)
        return np.array([0, self.t == self.delay], np.float32), reward, over, False, {}


class Leaky(Network):
    """Traces of past observations; each fades at its own learned speed."""

    def __init__(self, num_features: int, num_actions: int, num_traces: int = 32) -> None:
        super().__init__()
        self.state_size = num_traces  # with this, `forward` gets and returns a state
        self.write = nn.Linear(num_features, num_traces)
        self.fading = nn.Parameter(torch.linspace(-2.0, 4.0, num_traces))
        self.actor = nn.Linear(num_features + num_traces, num_actions)
        self.value = nn.Linear(num_features + num_traces, 1)

    def forward(self, observation: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One step of B lanes; the state is zero where an episode starts."""
        keep = self.fading.sigmoid()
        state = keep * state + (1 - keep) * self.write(observation)
        features = torch.cat((observation, state), dim=1)
        return self.actor(features), self.value(features)[:, 0], state


def build(observation: Space, action: Space) -> nn.Module:
    if not (isinstance(observation, Box) and isinstance(action, Discrete)):
        raise ValueError(f"expected a Box and a Discrete action; found {observation} and {action}")
    return Leaky(observation.shape[0], action.n)


if __name__ == "__main__":  # worker processes import this file to find `build` and `Recall`
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--root", default="runs")
    arguments = parser.parse_args()
    # The same from a command line: srl train examples/own_memory.py:Recall --algo.network examples/own_memory.py:build
    ppo = srl.PPOConfig(network=f"{__file__}:build", learning_rate=3e-3)
    run = srl.train(f"{__file__}:Recall", ppo=ppo, steps=arguments.steps, root=arguments.root, verbose=True)
    policy, environment = srl.load(run.path), Recall()
    total = 0.0
    for episode in range(20):
        observation, _ = environment.reset(seed=episode)
        policy.reset()  # a new episode: reset the memory
        over = False
        while not over:
            observation, reward, over, _, _ = environment.step(policy.act(observation))
            total += reward
    print(f"remembered in {total:.0f} of 20 episodes")
