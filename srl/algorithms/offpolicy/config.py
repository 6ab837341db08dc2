"""Options that off-policy algorithms share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from srl.algorithms.actor_critic import Schedule
from srl.api.algorithm import AlgorithmConfig
from srl.api.control import OptionValue
from srl.api.dataflow import Priorities, Replay, Transitions
from srl.networks.options import NetworkOptions


@dataclass(frozen=True)
class OffPolicyConfig(NetworkOptions, AlgorithmConfig):
    """Base class for configs of algorithms that learn from replay."""

    gamma: float = 0.99
    """Discount factor per step."""
    n_step: int = 1
    """Steps of rewards in a target before it bootstraps."""
    batch_size: int = 256
    """Transitions per gradient step, over all trainers."""
    replay_size: int = 1_000_000
    """Decisions that the replay memory keeps, over all trainers."""
    learning_starts: int = 10_000
    """Decisions collected before the first gradient step."""
    updates_per_decision: float = 1.0
    """Gradient steps per collected decision (the update-to-data ratio)."""
    prioritized: bool = False
    """Draw transitions in proportion to their last error (Schaul et al. 2016), corrected by importance weights."""
    priority_alpha: float = 0.6
    """Exponent of the priorities: 0 draws uniformly."""
    priority_beta: float = 0.4
    """Exponent of the importance weights at the start of the run; it grows to 1."""
    normalize_observation: bool = False
    """Normalize numeric observations to mean 0 and standard deviation 1, using running statistics of all decisions, as
    the on-policy algorithms do. Replay stores raw observations, so that old ones are normalized by the same numbers."""
    observation_clip: float = 10.0
    """Limit on normalized observations, in standard deviations from the mean."""
    learning_rate: float = 3e-4
    """Adam's learning rate at the start of the run."""
    learning_rate_schedule: Schedule = "constant"
    """How the learning rate changes to `learning_rate_final` over the run."""
    learning_rate_final: float = 0.0
    """Learning rate at the end of the run, unless the schedule is constant."""
    max_grad_norm: float | None = None
    """Maximum gradient norm; larger gradients are scaled down to it. None: no limit."""
    adam_eps: float = 1e-8
    """Constant added to Adam's denominator."""
    device: str = "auto"
    """Device of trainers and policy workers: `auto` (cuda if available, else mps, else cpu), or a torch device
    such as `cpu`, `cuda`, `cuda:1`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_range("gamma", "priority_alpha", "priority_beta")
        self._check_counts("n_step", "batch_size", "replay_size")
        self._check_positive("updates_per_decision", "learning_rate", "max_grad_norm", "adam_eps")
        self._check_positive("observation_clip")
        self._check_not_negative("learning_starts", "learning_rate_final")
        if self.replay_size < self.batch_size:
            raise ValueError(f"replay_size must be at least batch_size, {self.batch_size}; found {self.replay_size}")

    def dataflow(self) -> Replay:
        priorities = Priorities(self.priority_alpha, self.priority_beta) if self.prioritized else None
        return Replay(
            Transitions(self.n_step, self.gamma),
            self.batch_size,
            self.replay_size,
            self.learning_starts,
            self.updates_per_decision,
            priorities,
            keeps_new=self.normalize_observation,
        )

    @property
    def title(self) -> str:
        return type(self).__name__.removesuffix("Config").lower()

    def suggested_lanes(self) -> int:
        """Return few copies: parameters are published once per block of each, and should not become old."""
        return 4

    def suggested_horizon(self) -> int:
        return 4

    def changeable(self) -> tuple[str, ...]:
        return ("learning_rate", "max_grad_norm")

    def with_option(self, name: str, value: OptionValue) -> Self:
        """Return the config with another value of an option. A changed learning rate is constant from then on."""
        changed = super().with_option(name, value)
        return replace(changed, learning_rate_schedule="constant") if name == "learning_rate" else changed

    def discount(self) -> float | None:
        return self.gamma

    def compute_device(self) -> str:
        return self.device

    def on_cpu(self) -> Self:
        return replace(self, device="cpu")

    def action_mask_key(self) -> str:
        return self.mask_key
