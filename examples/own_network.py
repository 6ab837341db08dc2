"""A custom network for PPO: a torch.nn.Module, named by the function that builds it."""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

import srl
from srl.api.spaces import Box, Discrete, Space


class Fourier(nn.Module):
    """Sines and cosines of learned linear features, with a linear actor and a small critic on top."""

    def __init__(self, num_features: int, num_actions: int, num_waves: int = 64) -> None:
        super().__init__()
        self.waves = nn.Linear(num_features, num_waves)
        self.actor = nn.Linear(2 * num_waves, num_actions)
        self.critic = nn.Sequential(nn.Linear(2 * num_waves, 64), nn.Tanh(), nn.Linear(64, 1))
        nn.init.orthogonal_(self.actor.weight, 0.01)  # start with nearly equal probabilities of all actions

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        phase = self.waves(observation)  # [B, waves]
        features = torch.cat((phase.sin(), phase.cos()), dim=1)
        return self.actor(features), self.critic(features)[:, 0]  # logits [B, n], value [B]


def build(observation: Space, action: Space) -> nn.Module:
    """Build the network. Every worker that decides or learns calls it, after seeding torch's generator."""
    if not (isinstance(observation, Box) and isinstance(action, Discrete)):
        raise ValueError(f"expected a Box and a Discrete action; found {observation} and {action}")
    return Fourier(observation.shape[0], action.n)


if __name__ == "__main__":  # worker processes import this file to find `build`
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--root", default="runs")
    arguments = parser.parse_args()
    # The same from a command line: srl train CartPole-v1 --algo.network examples/own_network.py:build
    ppo = srl.PPOConfig(network=f"{__file__}:build", learning_rate=1e-3)
    run = srl.train("CartPole-v1", ppo=ppo, steps=arguments.steps, root=arguments.root, verbose=True)
    print(f"one greedy episode in each of 16 copies: {srl.evaluate(run.path, episodes=16).mean:.1f}")
