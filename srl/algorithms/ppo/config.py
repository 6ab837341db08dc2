"""PPO (Schulman et al. 2017): its options. torch is imported only when something is built, so that naming an algorithm
on a command line or in a controller costs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from srl.algorithms.ppo.learning import LearningConfig
from srl.algorithms.training.schedules import Schedule
from srl.api.algorithm import UpdateCost
from srl.api.spaces import Space
from srl.api.trainer import Trainer


@dataclass(frozen=True)
class PPOConfig(LearningConfig):
    """Proximal policy optimization with generalized advantages."""

    epochs: int = 4
    """Passes over each batch."""
    num_minibatches: int = 16
    """Gradient steps per pass; the batch is cut into so many parts."""
    normalize_advantage: Literal["batch", "minibatch", "none"] = "batch"
    """Scale the advantages to mean 0 and deviation 1: of a whole batch, or of each minibatch; over all trainers."""
    surrogate: Literal["clip", "plain"] = "clip"
    """What the policy climbs: PPO's clipped ratio of probabilities times advantage, or the plain policy gradient."""
    clip: float = 0.2
    """How far the probability ratio of an action may profit from moving away from 1, at the start of the run."""
    clip_schedule: Schedule = "constant"
    """How the clip goes to `clip_final` over the run."""
    clip_final: float = 0.0
    """The clip at the end of the run, unless it is constant."""
    dual_clip: float | None = None
    """Ratios above this, more than 1, no longer count for bad actions (Ye et al. 2020; 3 is usual): for old data."""
    value_clip: float | None = None
    """How far a value may profit from moving away from what it was before the update. In units of the deviation of
    returns if these are normalized."""
    kl_coefficient: float = 0.0
    """Weight of a penalty on the divergence from the policy that decided."""
    adapt_kl: float | None = None
    """Double this weight after an update that ends with a divergence above 1.5 times this, halve it below 1 / 1.5."""
    target_kl: float | None = None
    """Leave the rest of an update out as soon as the divergence of a minibatch is above 1.5 times this."""
    correction: Literal["none", "clip", "vtrace"] = "none"
    """For data that an older policy decided (`--max-lag`). `none`: the ratio is counted from that policy. Otherwise
    from the one before the update, whose values are computed anew; samples are weighted by the ratio between the two,
    at most `rho_clip`; and `vtrace` also corrects the returns (Espeholt et al. 2018)."""
    rho_clip: float = 1.0
    """The largest weight of a sample that is corrected."""
    c_clip: float = 1.0
    """The largest factor by which V-trace passes a later surprise on to the step before."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_counts("epochs", "num_minibatches")
        self._check_positive("clip", "value_clip", "adapt_kl", "target_kl", "rho_clip", "c_clip")
        self._check_not_negative("clip_final", "kl_coefficient")
        if self.dual_clip is not None and not self.dual_clip > 1.0:
            raise ValueError(f"dual_clip must be more than 1, found {self.dual_clip}")
        if self.adapt_kl is not None and self.kl_coefficient == 0.0:
            raise ValueError("adapt_kl changes kl_coefficient, which must start above 0; found 0")

    def update_cost(self) -> UpdateCost:
        return UpdateCost(self.epochs, self.num_minibatches)

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        from srl.algorithms.ppo.trainer import PPOTrainer

        return PPOTrainer(self, *self.build_network(observation, action, seed), seed)
