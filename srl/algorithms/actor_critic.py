"""Base of actor-critic algorithms: the policy, and options for network, normalization and optimizer.

torch is imported only when something is built, so that naming an algorithm on the command line or in a controller stays
fast.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from srl.api.algorithm import AlgorithmConfig
from srl.api.control import OptionValue
from srl.api.policy import Policy
from srl.api.spaces import Box, Dict, Space, array_spec
from srl.base.tree import ArraySpec, TreeSpec
from srl.networks.options import NetworkOptions
from srl.networks.spaces.actions import check_action_space, split_mask
from srl.networks.spaces.entities import check_parts, shared_rows

if TYPE_CHECKING:
    from srl.networks.distributions.distribution import Distribution
    from srl.networks.network import Network

Schedule: TypeAlias = Literal["constant", "linear", "cosine"]


SCHEDULES = {
    "learning_rate": "learning_rate_schedule",
    "clip": "clip_schedule",
    "entropy_coefficient": "entropy_schedule",
}
"""Option -> option with its schedule."""


def scheduled(schedule: Schedule, start: float, final: float, progress: float) -> float:
    """Return a coefficient at `progress` in [0, 1]: `start` at 0, `final` at 1, unless the schedule is constant."""
    if schedule == "constant":
        return start
    passed = progress if schedule == "linear" else 0.5 * (1.0 - math.cos(math.pi * progress))
    return start + (final - start) * passed


@dataclass(frozen=True)
class ActorCriticConfig(NetworkOptions, AlgorithmConfig):
    """Base class for configs of actor-critic algorithms. Subclasses implement `build_trainer`."""

    normalize_observation: bool = False
    """Normalize numeric observations to mean 0 and standard deviation 1, using running statistics. Images, choices, and
    integers between -1 and 1 are unchanged. The statistics are part of the policy's parameters, and only training
    changes them. Each column of entities and scans is one feature. A custom network receives integers unchanged."""
    observation_clip: float = 10.0
    """Limit on normalized observations, in standard deviations from the mean."""
    normalize_return: Literal["none", "running", "popart"] = "none"
    """Normalize value targets to mean 0 and standard deviation 1, whatever the scale of the rewards. `running`: by
    statistics of all returns so far. `popart`: by statistics of about the last million, rescaling the critic's last
    layer so that its outputs are preserved."""
    learning_rate: float = 5e-4
    """Adam's learning rate at the start of the run."""
    learning_rate_schedule: Schedule = "linear"
    """How the learning rate changes to `learning_rate_final` over the run."""
    learning_rate_final: float = 0.0
    """Learning rate at the end of the run, unless the schedule is constant."""
    max_grad_norm: float = 0.5
    """Maximum gradient norm; larger gradients are scaled down to it."""
    adam_eps: float = 1e-5
    """Constant added to Adam's denominator."""
    weight_decay: float = 0.0
    """L2 penalty: multiple of each weight added to its gradient."""
    device: str = "auto"
    """Device of trainers and policy workers: `auto` (cuda if available, else mps, else cpu), or a torch device
    such as `cpu`, `cuda`, `cuda:1`. With `auto` and `cuda`, policy workers use the first GPU, and each trainer uses its
    own GPU if there are enough. Inline inference in actors always runs on the CPU."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("learning_rate", "max_grad_norm", "adam_eps")
        self._check_not_negative("learning_rate_final", "weight_decay")

    def check(self, observation: Space, action: Space) -> None:
        check_action_space(action, self)
        check_parts(split_mask(observation, action, self.mask_key)[0], self)
        check_device(self.device)
        if self.network:  # importing torch in the controller is worth it: the user's code may have mistakes
            from srl.networks.parameters import FlatParameters

            network, _ = self.build_network(observation, action, seed=0)
            FlatParameters(network, gradients=False)

    def decision_spec(self, observation: Space, action: Space) -> dict[str, TreeSpec]:
        decision: dict[str, TreeSpec] = {
            "action": _action_spec(action),
            "log_prob": ArraySpec((), "float32"),
            "value": ArraySpec((), "float32"),
        }
        size = self.build_network(observation, action, seed=0)[0].state_size if self.network else self.state_size
        return {**decision, "state": ArraySpec((size,), "float32")} if size else decision

    def changeable(self) -> tuple[str, ...]:
        return ("learning_rate", "max_grad_norm")

    def with_option(self, name: str, value: OptionValue) -> Self:
        """Return the config with another value of an option, which from then on is constant: its schedule ends."""
        changed = super().with_option(name, value)
        constant: dict[str, Any] = {SCHEDULES[name]: "constant"} if name in SCHEDULES else {}
        return replace(changed, **constant)

    def compute_device(self) -> str:
        return self.device

    def on_cpu(self) -> ActorCriticConfig:
        return replace(self, device="cpu")

    def memory_kind(self) -> str:
        return self.memory

    def action_mask_key(self) -> str:
        return self.mask_key

    def global_observation_keys(self) -> tuple[str, ...]:
        return self.global_keys

    def build_policy(self, observation: Space, action: Space, seed: int) -> Policy:
        from srl.algorithms.torch_policy import TorchPolicy

        return TorchPolicy(*self.build_network(observation, action, seed), seed, self.device)

    def build_network(self, observation: Space, action: Space, seed: int) -> tuple[Network, Distribution]:
        """Build the network and the action distribution whose parameters it outputs."""
        from srl.networks.build import build_network, distribution_for

        distribution = distribution_for(action, self)
        seen, masked = split_mask(observation, action, self.mask_key)
        network = build_network(seen, action, distribution, self, seed)
        if self.normalize_observation or self.normalize_return != "none":
            from srl.networks.wrappers import NormalizedActorCritic, ObservationNormalizer, ValueNormalizer

            if self.normalize_return == "popart":
                network.value_head()  # ValueError if there is none
            shared = () if self.network else shared_rows(self)
            integers = not self.network  # a custom network may treat integers as categories
            normalizer = ObservationNormalizer(seen, self.observation_clip, shared, integers)
            values = ValueNormalizer() if self.normalize_return != "none" else None
            network = NormalizedActorCritic(network, normalizer if self.normalize_observation else None, values)
        if masked:
            from srl.networks.wrappers import MaskedActorCritic

            network = MaskedActorCritic(network, self.mask_key, distribution)
        return network, distribution


def _action_spec(action: Space) -> TreeSpec:
    """Return the spec of stored actions. Box actions are stored as sampled: unclipped, and float32 for any dtype."""
    if isinstance(action, Dict):
        return {name: _action_spec(item) for name, item in sorted(action.items.items())}
    return ArraySpec(action.shape, "float32") if isinstance(action, Box) else array_spec(action)


def check_device(device: str) -> None:
    """Raise ValueError if the device does not exist here. Only devices other than the CPU need torch to be imported."""
    if device not in ("auto", "cpu"):
        from srl.algorithms.training.devices import resolve_device

        resolve_device(device)
