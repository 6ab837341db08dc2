"""SAC for Discrete actions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from srl.algorithms.offpolicy.trainer import Minibatch
from srl.algorithms.sac.losses import choice_policy_loss, soft_choice_value, td_target
from srl.algorithms.sac.trainer import SoftTrainer


class DiscreteSACTrainer(SoftTrainer):
    """SAC with expectations over all choices in place of samples (Christodoulou 2019). Choices that a mask forbids have
    probability 0."""

    def log_probs(self, observation: Any) -> Tensor:
        return torch.log_softmax(self.network(observation)[0], dim=1)  # [B, n]

    def critic_target(self, batch: Minibatch) -> Tensor:
        log_probs = self.log_probs(batch.next_observation)
        values = self.values(self.target_critics, batch.next_observation, None, self.target_members())
        value = soft_choice_value(values, log_probs, self.current_temperature())
        return td_target(batch.reward, batch.discount, value)

    def state_values(self, observation: Any) -> Tensor:
        values = self.values(self.critics, observation, None)
        return soft_choice_value(values, self.log_probs(observation), self.current_temperature())

    def taken_values(self, batch: Minibatch) -> Tensor:
        values = self.values(self.critics, batch.observation, None)  # [E, B, n]
        index = batch.action.expand(len(values), -1)[:, :, None]
        return values.gather(2, index)[:, :, 0]

    def actor_loss(self, batch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        log_probs = self.log_probs(batch.observation)
        with torch.no_grad():
            value = self.for_actor(self.values(self.critics, batch.observation, None))
        loss = choice_policy_loss(value, log_probs, self.current_temperature())
        entropy = -(log_probs.exp() * log_probs).detach().sum(1).mean()
        return loss, {"entropy": entropy}
