"""The algorithm contract: one config that builds matching policies and trainers for a pair of spaces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from srl.api.policy import Policy
from srl.api.spaces import Space
from srl.api.trainer import Trainer
from srl.base.tree import TreeSpec


class UpdateCost(NamedTuple):
    """How often an update goes through its batch."""

    epochs: int = 1
    """Passes over the batch."""
    minibatches: int = 1
    """Gradient steps per pass."""


class AlgorithmConfig(ABC):
    """Base class of an algorithm's config.

    Subclasses are frozen dataclasses whose fields are the algorithm's options: plain data that is stored with the run
    and sent to the workers. The four abstract methods make the algorithm. The others describe it to the rest of the
    system, and their defaults are safe for every algorithm.
    """

    @abstractmethod
    def check(self, observation: Space, action: Space) -> None:
        """Raise ValueError naming what is not supported, before anything is launched."""

    @abstractmethod
    def decision_spec(self, observation: Space, action: Space) -> dict[str, TreeSpec]:
        """The arrays of one lane's decision, as `Policy.act` returns them: always `action`."""

    @abstractmethod
    def build_policy(self, observation: Space, action: Space, seed: int) -> Policy:
        """A new policy, whose parameters `load` sets. `seed` is the seed of its random actions."""

    @abstractmethod
    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        """A trainer with initial parameters drawn from `seed`."""

    def build_network(self, observation: Space, action: Space, seed: int) -> tuple[Any, Any]:
        """The policy's torch network and its action distribution, for `srl export`. Default: ValueError."""
        raise ValueError(
            f"policies of {type(self).__name__} cannot be exported: it has no method build_network(observation, "
            "action, seed) that returns a torch network and its action distribution"
        )

    def compute_device(self) -> str:
        """Device of trainers and policy workers: `auto`, `cpu`, `cuda` or `cuda:1`. Default: `cpu`."""
        return "cpu"

    def on_cpu(self) -> AlgorithmConfig:
        """The same algorithm on the CPU, for policies inside actors and for policies loaded from a run. Default: as it
        is."""
        return self

    def suggested_lanes(self) -> int | None:
        """Environment copies per actor unless the user gives a number. Default: None, which leaves the choice to the
        kind of observation."""
        return None

    def suggested_horizon(self) -> int | None:
        """Steps per block unless the user gives a number. Default: None, as for `suggested_lanes`."""
        return None

    def update_cost(self) -> UpdateCost:
        """Passes over a batch and gradient steps per pass. Default: one of each."""
        return UpdateCost()

    def discount(self) -> float | None:
        """Discount factor per step. Default: None, for an algorithm without one."""
        return None

    def memory_kind(self) -> str:
        """Kind of the policy's memory, for reports (`lstm`). Default: empty."""
        return ""

    def action_mask_key(self) -> str:
        """Part of a Dict observation that says which actions are allowed. Default: empty, masks are not read."""
        return ""

    def global_observation_keys(self) -> tuple[str, ...]:
        """Parts of a Dict observation that only the critic sees, so that they are not needed to act. Default: none."""
        return ()
