"""Options that PPO and its relatives share: returns, the loss's weights, the optimizer and its schedules."""

from __future__ import annotations

from dataclasses import dataclass

from srl.algorithms.actor_critic import ActorCriticConfig
from srl.algorithms.training.schedules import Schedule


@dataclass(frozen=True)
class LearningConfig(ActorCriticConfig):
    gamma: float = 0.99
    """Discount of the reward one step later."""
    gae_lambda: float = 0.95
    """0 trusts the critic (TD), 1 trusts the rewards (Monte Carlo)."""
    learning_rate: float = 5e-4
    """Adam's step size at the start of the run."""
    learning_rate_schedule: Schedule = "linear"
    """How the learning rate goes from there to `learning_rate_final` over the run."""
    learning_rate_final: float = 0.0
    """The learning rate at the end of the run, unless it is constant."""
    value_coefficient: float = 0.5
    """Weight of the critic's loss, half the squared error."""
    entropy_coefficient: float = 0.01
    """Weight of the entropy bonus at the start of the run; 0 for most continuous tasks."""
    entropy_schedule: Schedule = "constant"
    """How this weight goes to `entropy_final` over the run."""
    entropy_final: float = 0.0
    """Weight of the entropy bonus at the end of the run, unless it is constant."""
    max_grad_norm: float = 0.5
    """The gradient is scaled down to this norm."""
    adam_eps: float = 1e-5
    """Added to the denominator of Adam."""
    weight_decay: float = 0.0
    """So much of every weight is added to its gradient (L2)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_range(("gamma", "gae_lambda"), 0.0, 1.0)
        self._check_positive("learning_rate", "max_grad_norm", "adam_eps")
        self._check_not_negative("learning_rate_final", "value_coefficient", "entropy_coefficient", "entropy_final")
        self._check_not_negative("weight_decay")

    def discount(self) -> float:
        return self.gamma

    def _check_range(self, names: tuple[str, ...], low: float, high: float) -> None:
        for name in names:
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} must be in [{low:g}, {high:g}], found {getattr(self, name)}")

    def _check_positive(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) is not None and not getattr(self, name) > 0.0:
                raise ValueError(f"{name} must be positive, found {getattr(self, name)}")

    def _check_not_negative(self, *names: str) -> None:
        for name in names:
            if not getattr(self, name) >= 0.0:
                raise ValueError(f"{name} must be 0 or more, found {getattr(self, name)}")

    def _check_counts(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, found {getattr(self, name)}")
