"""A2C (Mnih et al. 2016): what PPO is if every batch makes one step."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from srl.algorithms.ppo.config import PPOConfig
from srl.algorithms.ppo.learning import LearningConfig
from srl.api.spaces import Space
from srl.api.trainer import Trainer


@dataclass(frozen=True)
class A2CConfig(LearningConfig):
    """Advantage actor-critic: one gradient step per batch. With `--max-lag 0` its gradient is exactly the policy's;
    older data counts by its probability ratio, which PPO's clip bounds. Wants small batches: its `--lanes` are few
    and its `--horizon` is short unless you give them."""

    learning_rate: float = 3e-3
    """Adam's step size at the start of the run."""
    gae_lambda: float = 1.0
    """0 trusts the critic (TD), 1 trusts the rewards (Monte Carlo)."""
    normalize_advantage: Literal["batch", "none"] = "none"
    """Scale the advantages of a batch (over all trainers) to mean 0 and deviation 1."""

    def suggested_lanes(self) -> int:
        """Few: a batch is one gradient step, and there must be many."""
        return 16

    def suggested_horizon(self) -> int:
        return 8

    def as_ppo(self) -> PPOConfig:
        shared = {field.name: getattr(self, field.name) for field in fields(self)}
        return PPOConfig(**shared, epochs=1, num_minibatches=1)

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        return self.as_ppo().build_trainer(observation, action, seed)
