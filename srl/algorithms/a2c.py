"""A2C (Mnih et al. 2016): PPO with one gradient step per batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from srl.algorithms.ppo.config import PPOConfig


@dataclass(frozen=True)
class A2CConfig(PPOConfig):
    """Advantage actor-critic: one gradient step per batch. With `--max-lag 0` its gradient is exactly the policy
    gradient; older data is weighted by its probability ratio, clipped as in PPO. Small batches work best, so `--lanes`
    and `--horizon` default to smaller values than for other algorithms."""

    epochs: int = 1
    num_minibatches: int = 1
    learning_rate: float = 3e-3
    gae_lambda: float = 1.0
    normalize_advantage: Literal["batch", "minibatch", "none"] = "none"

    def suggested_lanes(self) -> int:
        return 16

    def suggested_horizon(self) -> int:
        return 8
