"""DAgger: a policy that asks an expert, and a trainer that learns the expert's answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from srl.algorithms.offline.bc import BCTrainer
from srl.algorithms.offline.config import DAggerConfig
from srl.algorithms.sac.networks import inner_actor
from srl.algorithms.sac.policy import ReplayPolicy
from srl.algorithms.training.devices import fetch
from srl.api.policy import Decision, Expert
from srl.api.trainer import TrainResult
from srl.base.tree import Array, Tree


class DAggerPolicy(ReplayPolicy):
    """The learner's policy. When it samples, as actors do, the expert says what it would do for each observation and,
    with a probability that the trainer sets, does it. Greedy decisions are the learner's alone and need no expert."""

    def __init__(self, config: DAggerConfig, network: Any, distribution: Any, seed: int) -> None:
        super().__init__(network, distribution, seed, config.device)
        self._config = config
        self._expert: Expert | None = None

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        own: Any = super().act(observation, state, first, greedy=greedy)["action"]
        if greedy:
            return {"action": own, "expert": own.copy()}
        if self._expert is None:
            self._expert = self._config.build_expert()
        answers = answers_of(self._expert, observation, own, self._config.expert)
        with self._computing:
            drawn = torch.rand(len(own), generator=self._generator, device=self._device)
        asked = fetch(drawn).numpy() < self._uniform
        return {"action": np.where(asked.reshape(-1, *(1,) * (own.ndim - 1)), answers, own), "expert": answers}

    def _explore(self, parameters: Tensor) -> Tensor:
        sampled: Tensor = self._distribution.sample(parameters, self._generator)
        return sampled


def answers_of(expert: Expert, observation: Tree, like: Array, name: str) -> Array:
    """Return the expert's actions in the shape and dtype of `like`. Raises ValueError if they do not fit."""
    found = np.asarray(expert(observation))
    if found.shape != like.shape:
        raise ValueError(
            f"expert {name} must return actions of shape {like.shape} for {like.shape[0]} observations; found "
            f"{found.shape}"
        )
    if like.dtype.kind == "i" and found.dtype.kind not in "iub":
        raise ValueError(f"expert {name} must return integers, the numbers of choices; found dtype {found.dtype}")
    return np.array(found, like.dtype)


class DAggerTrainer(BCTrainer):
    """Trainer that clones the expert's answers, whoever acted."""

    config: DAggerConfig

    def explore(self, progress: float, learning: bool) -> None:
        """Set the probability that the expert acts."""
        config = self.config
        left = 1.0 - progress / config.expert_until if progress < config.expert_until else 0.0
        inner_actor(self.network).explore(config.expert_share * left, 0.0)

    def step(self, batch: Any, progress: float) -> TrainResult:
        return super().step(replace(batch, decision={"action": batch.decision["expert"]}), progress)
