"""IMPALA (Espeholt et al. 2018): an actor-critic whose data may be old."""

from __future__ import annotations

from dataclasses import dataclass, fields

from srl.algorithms.ppo.config import PPOConfig
from srl.algorithms.ppo.learning import LearningConfig
from srl.api.algorithm import UpdateCost
from srl.api.spaces import Space
from srl.api.trainer import Trainer


@dataclass(frozen=True)
class ImpalaConfig(LearningConfig):
    """One pass over each batch with V-trace, which corrects for the policy that decided being older than the one that
    learns. Meant for a larger `--max-lag`."""

    gae_lambda: float = 1.0
    """Below 1, targets trust the critic more: V-trace's c is multiplied by it."""
    num_minibatches: int = 4
    """Gradient steps per batch; V-trace's targets are computed once, before them."""
    rho_clip: float = 1.0
    """The largest weight of a sample: decides between the policies that the value belongs to."""
    c_clip: float = 1.0
    """The largest factor by which a later surprise is passed on to the step before: decides how fast values spread."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_counts("num_minibatches")
        self._check_positive("rho_clip", "c_clip")

    def update_cost(self) -> UpdateCost:
        return UpdateCost(1, self.num_minibatches)

    def as_ppo(self) -> PPOConfig:
        shared = {field.name: getattr(self, field.name) for field in fields(self)}
        return PPOConfig(**shared, epochs=1, surrogate="plain", correction="vtrace", normalize_advantage="none")

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        return self.as_ppo().build_trainer(observation, action, seed)
