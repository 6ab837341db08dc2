"""Behavior cloning."""

from __future__ import annotations

import torch
from torch import Tensor

from srl.algorithms.offline.config import BCConfig
from srl.algorithms.offline.losses import cloning_loss
from srl.algorithms.offpolicy.learner import ModuleLearner
from srl.algorithms.offpolicy.normalization import NewObservations
from srl.algorithms.offpolicy.trainer import Minibatch, TransitionTrainer
from srl.api.spaces import Space

ACTOR = "actor"


class BCTrainer(TransitionTrainer):
    """Trainer that maximizes the likelihood of the actions in the data."""

    config: BCConfig

    def __init__(self, config: BCConfig, observation: Space, action: Space, seed: int) -> None:
        super().__init__(config, seed)
        self.network, self.distribution = config.build_network(observation, action, seed)
        self.explore(0.0, learning=False)
        self.observations = NewObservations([self.network])
        kept = {"counters": self.counters, **self.observations.state()}
        self.learner = ModuleLearner({ACTOR: self.network}, (), config.device, config.adam_eps, kept)

    def gradient_step(self, batch: Minibatch, learning_rate: float) -> tuple[dict[str, Tensor], Tensor]:
        parameters = self.network(batch.observation)[0]
        log_prob = self.distribution.log_prob(parameters, batch.action)
        loss = cloning_loss(log_prob, batch.weight)
        loss.backward()  # type: ignore[no-untyped-call]
        self.learner.descend(ACTOR, learning_rate, self.config.max_grad_norm)
        with torch.no_grad():
            chosen = self.distribution.mode(parameters)
            metrics = {"loss": loss.detach()}
            if not chosen.is_floating_point():
                same = (chosen == batch.action).reshape(len(chosen), -1).all(1)
                metrics["agreement"] = same.float().mean()
        return metrics, log_prob.detach().neg().abs()
