"""The algorithm contract: one config that makes matching policies and trainers for a team's spaces."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from srl.api.policy import Policy
from srl.api.spaces import Space
from srl.api.trainer import Trainer
from srl.base.tree import TreeSpec


@runtime_checkable
class AlgorithmConfig(Protocol):
    def check(self, observation: Space, action: Space) -> None:
        """Raise ValueError naming what is not supported, before anything is launched."""

    def decision_spec(self, observation: Space, action: Space) -> dict[str, TreeSpec]:
        """The arrays of one lane's decision, as `Policy.act` returns them: always `action`."""

    def build_policy(self, observation: Space, action: Space, seed: int) -> Policy: ...

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer: ...
