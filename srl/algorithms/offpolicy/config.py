"""Options that off-policy algorithms share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self

from srl.algorithms.actor_critic import Schedule
from srl.api.algorithm import AlgorithmConfig
from srl.api.control import OptionValue
from srl.api.dataflow import BatchFunction, BatchTransform, HindsightGoals, Priorities, Replay, Transitions
from srl.api.spaces import Box, Space
from srl.networks.options import NetworkOptions
from srl.networks.spaces.boxes import is_image, layout_of, space_leaves


@dataclass(frozen=True)
class RandomShift(BatchTransform):
    """Shift of each image of a batch by up to `pixels` in both directions (Kostrikov et al. 2021, DrQ): the image is
    padded by repeating its border, and cut to its size at a random place. The frames of a stack shift together, and so
    do the images of a sequence; an observation and the next one shift independently."""

    pixels: int

    def build(self, observation: Space, action: Space) -> BatchFunction:
        images = [
            (path, layout_of(box)) for path, box in space_leaves(observation) if isinstance(box, Box) and is_image(box)
        ]
        if not images:
            raise ValueError(
                f"random_shift needs image observations, found {observation}; an image is a Box of bytes [C, H, W] or "
                "[H, W, C]"
            )
        for path, layout in images:
            if self.pixels >= min(layout.sides):
                place = f"observation {path!r}" if path else "the observation"
                raise ValueError(
                    f"random_shift must be less than the sides of images, found {self.pixels} for {place} with "
                    f"{layout.sides[0]} x {layout.sides[1]} pixels"
                )
        from srl.algorithms.offpolicy.random_shift import shifting  # imports numba

        return shifting({path: layout.order for path, layout in images}, self.pixels)


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
    random_shift: int = 0
    """Pixels by which image observations are shifted at random, at most, when they are drawn from the replay
    (Kostrikov et al. 2021, who use 4). 0: they are not."""
    her: Literal["none", "future", "final"] = "none"
    """Hindsight experience replay (Andrychowicz et al. 2017), for environments with `achieved_goal`, `desired_goal` and
    `compute_reward`: replace the desired goals of drawn transitions by goals that their episode achieved later, at any
    step (`future`) or at its end (`final`)."""
    her_ratio: float = 4.0
    """Transitions with a replaced goal for each one with its own goal."""
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
    update_threads: int = 2
    """Threads of each trainer, between which the rows of a minibatch are divided on the CPU: for networks of dense
    layers, and with images for DQN. Results depend on their number only by rounding, and not on the number of cores."""
    device: str = "auto"
    """Device of trainers and policy workers: `auto` (cuda if available, else mps, else cpu), or a torch device
    such as `cpu`, `cuda`, `cuda:1`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_range("gamma", "priority_alpha", "priority_beta")
        self._check_counts("n_step", "batch_size", "replay_size", "update_threads")
        self._check_positive("updates_per_decision", "learning_rate", "max_grad_norm", "adam_eps")
        self._check_positive("observation_clip", "her_ratio")
        if self.her not in ("none", "future", "final"):
            raise ValueError(f"her must be one of none, future, final; found {self.her!r}")
        self._check_not_negative("learning_starts", "learning_rate_final", "random_shift")
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
            RandomShift(self.random_shift) if self.random_shift else None,
            keeps_new=self.normalize_observation,
            relabel=None if self.her == "none" else HindsightGoals(self.her, self.her_ratio),
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
