"""Options of PPO (Schulman et al. 2017). A2C, IMPALA, IPPO and MAPPO are presets of these; PPG extends them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from srl.algorithms.actor_critic import ActorCriticConfig, Schedule
from srl.api.algorithm import UpdateCost
from srl.api.spaces import Space
from srl.api.trainer import Trainer


@dataclass(frozen=True)
class PPOConfig(ActorCriticConfig):
    """Proximal policy optimization with generalized advantage estimation."""

    gamma: float = 0.99
    """Discount factor per step."""
    gae_lambda: float = 0.95
    """Lambda of the advantage estimate: 0 trusts the critic (TD), 1 trusts the rewards (Monte Carlo). It also
    multiplies V-trace's c."""
    epochs: int = 4
    """Passes over each batch."""
    num_minibatches: int = 16
    """Gradient steps per pass, each on its own part of the batch."""
    normalize_advantage: Literal["batch", "minibatch", "none"] = "batch"
    """Normalize advantages to mean 0 and standard deviation 1 over each batch or minibatch, across all trainers."""
    surrogate: Literal["clip", "plain"] = "clip"
    """Policy objective: PPO's clipped probability ratio times advantage, or the plain policy gradient."""
    clip: float = 0.2
    """Clip range of the probability ratio around 1, at the start of the run."""
    clip_schedule: Schedule = "constant"
    """How the clip range changes to `clip_final` over the run."""
    clip_final: float = 0.0
    """Clip range at the end of the run, unless the schedule is constant."""
    dual_clip: float | None = None
    """Upper bound, above 1, on the ratio where the advantage is negative (Ye et al. 2020; usually 3), for old data."""
    value_clip: float | None = None
    """Clip range of values around those before the update, in standard deviations if returns are normalized."""
    value_coefficient: float = 0.5
    """Weight of the critic's loss, half the squared error."""
    entropy_coefficient: float = 0.01
    """Weight of the entropy bonus at the start of the run; 0 for most continuous tasks."""
    entropy_schedule: Schedule = "constant"
    """How the entropy weight changes to `entropy_final` over the run."""
    entropy_final: float = 0.0
    """Weight of the entropy bonus at the end of the run, unless the schedule is constant."""
    kl_coefficient: float = 0.0
    """Weight of a penalty on the KL divergence from the policy that acted."""
    adapt_kl: float | None = None
    """Target divergence of the KL penalty. The penalty's weight doubles after an update that ends above 1.5 times this
    divergence, and halves after one that ends below two thirds of it."""
    target_kl: float | None = None
    """Target KL divergence: the rest of an update is skipped once a minibatch exceeds 1.5 times this value."""
    correction: Literal["none", "clip", "vtrace"] = "none"
    """Correction for data from an older policy (`--max-lag`). `none`: probability ratios are relative to that policy.
    `clip`: they are relative to the policy before the update, values are recomputed, and samples are weighted by the
    ratio between the two policies, at most `rho_clip`. `vtrace` also corrects the returns (Espeholt et al. 2018)."""
    rho_clip: float = 1.0
    """Maximum weight of a corrected sample. With V-trace it determines which policy's values are learned."""
    c_clip: float = 1.0
    """Maximum factor by which V-trace propagates a temporal difference to the previous step. It determines how fast
    values converge."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_range("gamma", "gae_lambda")
        self._check_counts("epochs", "num_minibatches")
        self._check_positive("clip", "value_clip", "adapt_kl", "target_kl", "rho_clip", "c_clip")
        self._check_not_negative("clip_final", "kl_coefficient")
        self._check_not_negative("value_coefficient", "entropy_coefficient", "entropy_final")
        if self.dual_clip is not None and not self.dual_clip > 1.0:
            raise ValueError(f"dual_clip must be more than 1, found {self.dual_clip}")
        if self.adapt_kl is not None and self.kl_coefficient == 0.0:
            raise ValueError("adapt_kl changes kl_coefficient, which must start above 0; found 0")

    def changeable(self) -> tuple[str, ...]:
        return (*super().changeable(), "clip", "entropy_coefficient", "value_coefficient", "target_kl", "epochs")

    def discount(self) -> float:
        return self.gamma

    def update_cost(self) -> UpdateCost:
        return UpdateCost(self.epochs, self.num_minibatches)

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        from srl.algorithms.ppo.trainer import PPOTrainer

        return PPOTrainer(self, *self.build_network(observation, action, seed), seed)
