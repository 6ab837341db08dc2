"""Implicit Q-learning."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from srl.algorithms.offline.config import IQLConfig
from srl.algorithms.offline.losses import advantage_weights, cloning_loss, expectile_loss
from srl.algorithms.offpolicy.trainer import Minibatch
from srl.algorithms.sac.exploration import NoisyActions
from srl.algorithms.sac.losses import td_target
from srl.algorithms.sac.networks import Critics, build_value, inner_actor
from srl.algorithms.sac.trainer import ReplayActorCriticTrainer
from srl.api.spaces import Discrete, Space
from srl.base.seeding import derive

VALUE = "value"


class IQLTrainer(ReplayActorCriticTrainer):
    """IQL (Kostrikov et al. 2021, algorithm 1), for Box and Discrete actions. It never evaluates an action that is not
    in the data."""

    config: IQLConfig

    def __init__(self, config: IQLConfig, observation: Space, action: Space, seed: int) -> None:
        self.value_network = build_value(observation, action, config, derive(seed, VALUE))
        self.has_choices = isinstance(action, Discrete)
        super().__init__(config, observation, action, seed)
        self._recorded: Any = None  # actions of the minibatch as the distribution knows them
        self._advantage = torch.empty(0)

    def other_modules(self) -> dict[str, nn.Module]:
        return {VALUE: self.value_network}

    def explore(self, progress: float, learning: bool) -> None:
        inner_actor(self.network).explore(0.0, 0.0)

    def prepare(self, batch: Minibatch) -> Minibatch:
        self._recorded = batch.action
        return super().prepare(batch)

    def state_values(self, observation: Any) -> Tensor:
        """Return V(s) [B]."""
        return self.values(self.value_network, observation, None)[0, :, 0]

    def taken(self, critics: Critics, batch: Minibatch) -> Tensor:
        """Return the values [E, B] of the actions in the batch."""
        if not self.has_choices:
            return self.values(critics, batch.observation, batch.action)
        values = self.values(critics, batch.observation, None)  # [E, B, n]
        return values.gather(2, batch.action.expand(len(values), -1)[:, :, None])[:, :, 0]

    def taken_values(self, batch: Minibatch) -> Tensor:
        return self.taken(self.critics, batch)

    def critic_target(self, batch: Minibatch) -> Tensor:
        return td_target(batch.reward, batch.discount, self.state_values(batch.next_observation))

    def critic_step(self, batch: Minibatch, learning_rate: float) -> tuple[dict[str, Tensor], Tensor]:
        """Take a step of V (eq. 5), then one of the critics (eq. 6)."""
        with torch.no_grad():
            quality = self.taken(self.target_critics, batch).amin(0)
        value = self.state_values(batch.observation)
        loss = (expectile_loss(quality - value, self.config.expectile) * batch.weight).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        self.learner.descend(VALUE, learning_rate, self.config.max_grad_norm)
        self._advantage = quality - value.detach()
        metrics, errors = super().critic_step(batch, learning_rate)
        return {**metrics, "value_loss": loss.detach(), "advantage": self._advantage.mean()}, errors

    def actor_loss(self, batch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of advantage-weighted cloning (eq. 7)."""
        config = self.config
        parameters = self.network(batch.observation)[0]
        assert not isinstance(self.distribution, NoisyActions)
        log_prob = self.distribution.log_prob(parameters, self._recorded)
        weights = advantage_weights(self._advantage, config.beta, config.max_weight, config.normalize_advantage)
        return cloning_loss(log_prob, weights * batch.weight), {"action_weight": weights.mean()}
