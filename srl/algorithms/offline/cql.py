"""Conservative Q-learning."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from srl.algorithms.offline.config import CQLConfig
from srl.algorithms.offline.losses import choice_gap, sampled_gap
from srl.algorithms.offpolicy.trainer import Minibatch
from srl.algorithms.sac.discrete import DiscreteSACTrainer
from srl.algorithms.sac.trainer import SACTrainer
from srl.base.tree import map_tree

FORBIDDEN = -1e8
"""Logits below this are those of choices that a mask forbids."""


class CQLTrainer(SACTrainer):
    """CQL(H) (Kumar et al. 2020, eq. 4) for Box actions: SAC whose critics also learn that actions which are not in the
    data have low values."""

    config: CQLConfig

    def critic_regularizer(self, batch: Minibatch, values: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss that lowers the values of `num_samples` actions of the policy and as many random ones."""
        count, (size, dims) = self.config.num_samples, batch.action.shape
        repeated = map_tree(lambda part: part.repeat_interleave(2 * count, 0), batch.observation)
        with torch.no_grad():
            own = self.sample(map_tree(lambda part: part.repeat_interleave(count, 0), batch.observation))
            random = torch.empty_like(own.action).uniform_(-1.0, 1.0, generator=self.generator)
            density = torch.full_like(own.log_prob, dims * -0.6931471805599453)  # of actions in [-1, 1]
            action = torch.cat((own.action.view(size, count, -1), random.view(size, count, -1)), 1)
            log_density = torch.cat((own.log_prob.view(size, count), density.view(size, count)), 1)
        sampled = self.values(self.critics, repeated, action.flatten(0, 1))
        gap = sampled_gap(sampled.view(len(sampled), size, -1), log_density, values)
        return _weighted(gap, batch, self.config)


class DiscreteCQLTrainer(DiscreteSACTrainer):
    """CQL(H) for Discrete actions, whose values are all known."""

    config: CQLConfig

    def critic_regularizer(self, batch: Minibatch, values: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            allowed: Any = self.network(batch.observation)[0] > FORBIDDEN
        every = self.values(self.critics, batch.observation, None).masked_fill(~allowed, -torch.inf)
        return _weighted(choice_gap(every, values), batch, self.config)


def _weighted(gap: Tensor, batch: Minibatch, config: CQLConfig) -> tuple[Tensor, dict[str, Tensor]]:
    loss = config.conservative_weight * (gap * batch.weight).mean(1).sum()
    return loss, {"conservative_gap": gap.detach().mean()}
