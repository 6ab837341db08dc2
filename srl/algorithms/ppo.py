"""PPO (Schulman et al. 2017): its options. torch is imported only when something is built, so that naming an algorithm
on a command line or in a controller costs nothing."""

from __future__ import annotations

from dataclasses import dataclass

from srl.algorithms.actor_critic import ActorCriticConfig
from srl.api.spaces import Space
from srl.api.trainer import Trainer


@dataclass(frozen=True)
class PPOConfig(ActorCriticConfig):
    """Proximal policy optimisation with generalised advantages, for discrete, multi-discrete and box actions."""

    gamma: float = 0.99
    """Discount of the reward one step later."""
    gae_lambda: float = 0.95
    """0 trusts the critic (TD), 1 trusts the rewards (Monte Carlo)."""
    clip: float = 0.2
    """How far the probability ratio of an action may profit from moving away from 1."""
    learning_rate: float = 5e-4
    """Adam's step size at the start of the run."""
    anneal: bool = True
    """Let the learning rate fall linearly to 0 over the run."""
    epochs: int = 4
    """Passes over each batch."""
    num_minibatches: int = 16
    """Gradient steps per pass; the batch is cut into so many parts."""
    value_coefficient: float = 0.5
    """Weight of the critic's loss, half the squared error."""
    entropy_coefficient: float = 0.01
    """Weight of the entropy bonus; 0 for most continuous tasks."""
    max_grad_norm: float = 0.5
    """The gradient is scaled down to this norm."""
    normalize_advantage: bool = True
    """Scale the advantages of a batch (over all trainers) to mean 0 and deviation 1."""
    adam_eps: float = 1e-5
    """Added to the denominator of Adam."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("epochs", "num_minibatches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, found {getattr(self, name)}")
        for name in ("gamma", "gae_lambda"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be in [0, 1], found {getattr(self, name)}")
        for name in ("clip", "learning_rate", "max_grad_norm", "adam_eps"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{name} must be positive, found {getattr(self, name)}")

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        from srl.algorithms.ppo_trainer import PPOTrainer

        return PPOTrainer(self, *self.build_network(observation, action, seed), seed)
