"""TD3+BC."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from srl.algorithms.offline.config import TD3BCConfig
from srl.algorithms.offline.losses import constrained_loss
from srl.algorithms.offline.normalization import applied, normalizer_of, set_statistics
from srl.algorithms.offpolicy.trainer import Minibatch
from srl.algorithms.sac.networks import Critics
from srl.algorithms.sac.td3 import TD3Trainer, unit_action
from srl.algorithms.sac.trainer import ACTOR
from srl.api.dataflow import TransitionBatch
from srl.api.spaces import Space
from srl.api.trainer import TrainResult


class TD3BCTrainer(TD3Trainer):
    """TD3+BC (Fujimoto and Gu 2021): TD3 with another loss of the actor, on normalized observations."""

    config: TD3BCConfig

    def __init__(self, config: TD3BCConfig, observation: Space, action: Space, seed: int) -> None:
        super().__init__(config, observation, action, seed)
        self.normalizer = normalizer_of(self.network)

    def step(self, batch: TransitionBatch, progress: float) -> TrainResult:
        if self.normalizer is not None and batch.new is not None and self.num_steps == 0:
            set_statistics(self.normalizer, batch.new)
            self.learner.follow(ACTOR, 1.0)  # the target network has the same statistics
        return super().step(batch, progress)

    def values(
        self, critics: Critics, observation: Any, action: Tensor | None, members: Tensor | None = None
    ) -> Tensor:
        return super().values(critics, applied(self.normalizer, observation), action, members)

    def actor_loss(self, batch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        action = unit_action(self.network, batch.observation)
        value = self.for_actor(self.values(self.critics, batch.observation, action))
        distance = (action - batch.action).square().mean(1)
        return constrained_loss(value, distance, self.config.alpha), {"distance": distance.detach().mean()}
