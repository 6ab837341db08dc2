"""TD3+BC."""

from __future__ import annotations

from torch import Tensor

from srl.algorithms.offline.config import TD3BCConfig
from srl.algorithms.offline.losses import constrained_loss
from srl.algorithms.offpolicy.trainer import Minibatch
from srl.algorithms.sac.td3 import TD3Trainer, unit_action


class TD3BCTrainer(TD3Trainer):
    """TD3+BC (Fujimoto and Gu 2021): TD3 with another loss of the actor, on normalized observations."""

    config: TD3BCConfig

    def actor_loss(self, batch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        action = unit_action(self.network, batch.observation)
        value = self.for_actor(self.values(self.critics, batch.observation, action))
        distance = (action - batch.action).square().mean(1)
        return constrained_loss(value, distance, self.config.alpha), {"distance": distance.detach().mean()}
