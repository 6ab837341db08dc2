"""Options of the actor-critic algorithms that learn from replay: SAC, TD3 and DDPG."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from srl.algorithms.actor_critic import check_device
from srl.algorithms.offpolicy.config import OffPolicyConfig
from srl.api.policy import Policy
from srl.api.spaces import Box, Discrete, MultiDiscrete, Space, array_spec, bounds_of
from srl.api.trainer import Trainer
from srl.base.tree import ArraySpec, TreeSpec
from srl.networks.options import MEMORY_OPTIONS
from srl.networks.spaces.actions import split_mask
from srl.networks.spaces.entities import check_parts

if TYPE_CHECKING:
    from srl.algorithms.sac.exploration import NoisyActions
    from srl.networks.distributions.distribution import Distribution
    from srl.networks.network import Network


@dataclass(frozen=True)
class ReplayActorCriticConfig(OffPolicyConfig):
    """Base class for configs with an actor and an ensemble of critics. Subclasses implement `build_trainer` and
    `distribution`."""

    UNUSED: ClassVar[tuple[str, ...]] = (*MEMORY_OPTIONS, "network", "towers", "box", "std")
    hidden_sizes: tuple[int, ...] = (256, 256)
    """Sizes of the dense layers of the actor and of each critic, after the observation or its encoder."""
    activation: Literal["tanh", "relu"] = "relu"
    """Activation between these layers."""
    tau: float = 0.005
    """Share by which target networks move towards their networks at each step (Lillicrap et al. 2015)."""
    num_critics: int = 2
    """Number of critics that learn the same targets from different initial weights."""
    target_critics: int | None = None
    """Number of critics, drawn at random at each step, whose lowest value is the target; the actor then maximizes the
    mean of all critics (REDQ, Chen et al. 2021). None: all critics, and the actor maximizes their lowest value."""
    critic_dropout: float = 0.0
    """Probability to drop a hidden unit of a critic; SAC's actor then maximizes the mean of all critics (DroQ, Hiraoka
    et al. 2022, algorithm 2)."""
    critic_layer_norm: bool = False
    """Normalize the hidden layers of the critics (Ba et al. 2016), for many updates per decision."""
    policy_delay: int = 1
    """Gradient steps of the critics per gradient step of the actor (Fujimoto et al. 2018)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_range("tau", "critic_dropout")
        self._check_counts("num_critics", "policy_delay")
        if self.critic_dropout == 1.0:
            raise ValueError("critic_dropout must be less than 1, found 1.0")
        if self.target_critics is not None and not 1 <= self.target_critics <= self.num_critics:
            found = self.target_critics
            raise ValueError(f"target_critics must be between 1 and num_critics, {self.num_critics}; found {found}")

    def check(self, observation: Space, action: Space) -> None:
        self.check_action(action)
        check_parts(split_mask(observation, action, self.mask_key)[0], self)
        if self.memory != "none":
            raise ValueError(f"{self.title} learns from single transitions and has no memory, found {self.memory!r}")
        if self.network:
            raise ValueError(f"{self.title} builds its own actor and critics; remove network={self.network!r}")
        check_device(self.device)

    def check_action(self, action: Space) -> None:
        """Raise ValueError unless actions are real numbers between finite bounds."""
        if not is_bounded(action):
            raise ValueError(unsupported(self.title, "a Box of real numbers with finite bounds, low < high", action))

    def decision_spec(self, observation: Space, action: Space) -> dict[str, TreeSpec]:
        return {"action": ArraySpec(action.shape, "float32") if isinstance(action, Box) else array_spec(action)}

    def global_observation_keys(self) -> tuple[str, ...]:
        return self.global_keys

    def distribution(self, action: Space) -> Distribution | NoisyActions:
        """Return the distribution of the policy's actions."""
        raise NotImplementedError

    def build_policy(self, observation: Space, action: Space, seed: int) -> Policy:
        from srl.algorithms.sac.policy import ReplayPolicy

        return ReplayPolicy(*self.build_network(observation, action, seed), seed, self.device)

    def build_network(
        self, observation: Space, action: Space, seed: int
    ) -> tuple[Network, Distribution | NoisyActions]:
        from srl.algorithms.sac.networks import build_actor

        distribution = self.distribution(action)
        return build_actor(observation, action, distribution, self, seed), distribution


@dataclass(frozen=True)
class SACConfig(ReplayActorCriticConfig):
    """Soft actor-critic with automatic temperature (Haarnoja et al. 2018, arXiv 1812.05905), and its form for Discrete
    actions (Christodoulou 2019). With `num_critics` 10, `target_critics` 2 and `updates_per_decision` 20 it is REDQ;
    with `critic_dropout` 0.01, `critic_layer_norm` and `updates_per_decision` 20 it is DroQ. In both papers the actor
    learns once per decision: `policy_delay` 20."""

    initial_temperature: float = 1.0
    """Weight of the entropy in the objective at the start of the run."""
    learn_temperature: bool = True
    """Adapt the temperature so that the policy's entropy approaches `target_entropy`."""
    target_entropy: float | None = None
    """Entropy of the policy that the temperature aims at, in the units where bounds are -1 and 1. None: minus the
    number of elements of a Box, or half of the highest entropy of a Discrete."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("initial_temperature")

    def check_action(self, action: Space) -> None:
        if not (is_bounded(action) or (isinstance(action, Discrete) and action.n >= 1)):
            expected = "a Box of real numbers with finite bounds, low < high, or Discrete"
            raise ValueError(unsupported(self.title, expected, action))

    def entropy_target(self, action: Space) -> float:
        if self.target_entropy is not None:
            return self.target_entropy
        return 0.5 * math.log(action.n) if isinstance(action, Discrete) else -float(math.prod(_box(action).shape))

    def distribution(self, action: Space) -> Distribution:
        from srl.networks.distributions.action_scaling import finite_scaling
        from srl.networks.distributions.categorical import Categorical
        from srl.networks.distributions.squashed_gaussian import SquashedGaussian

        if isinstance(action, Discrete):
            return Categorical(action.n)
        box = _box(action)
        return SquashedGaussian(tuple(box.shape), False, self.initial_std, scaling=finite_scaling(box))

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        from srl.algorithms.sac.discrete import DiscreteSACTrainer
        from srl.algorithms.sac.trainer import SACTrainer

        kind = DiscreteSACTrainer if isinstance(action, Discrete) else SACTrainer
        return kind(self, observation, action, seed)


@dataclass(frozen=True)
class TD3Config(ReplayActorCriticConfig):
    """Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018)."""

    UNUSED: ClassVar[tuple[str, ...]] = (*ReplayActorCriticConfig.UNUSED, "initial_std")
    policy_delay: int = 2
    """Gradient steps of the critics per gradient step of the actor and of the target networks."""
    exploration_noise: float = 0.1
    """Standard deviation of the noise added to the policy's actions, in units of half the range of each element."""
    target_noise: float = 0.2
    """Standard deviation of the noise added to the target policy's actions, which smooths the targets."""
    target_noise_clip: float = 0.5
    """Limit of that noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_not_negative("exploration_noise", "target_noise", "target_noise_clip")

    def changeable(self) -> tuple[str, ...]:
        return (*super().changeable(), "exploration_noise")

    def distribution(self, action: Space) -> NoisyActions:
        from srl.algorithms.sac.exploration import NoisyActions
        from srl.networks.distributions.action_scaling import finite_scaling

        box = _box(action)
        return NoisyActions(tuple(box.shape), finite_scaling(box))

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        from srl.algorithms.sac.td3 import TD3Trainer

        return TD3Trainer(self, observation, action, seed)


@dataclass(frozen=True)
class DDPGConfig(TD3Config):
    """Deep deterministic policy gradient (Lillicrap et al. 2015): TD3 with one critic, without delay and smoothing."""

    num_critics: int = 1
    policy_delay: int = 1
    target_noise: float = 0.0


def is_bounded(action: Space) -> bool:
    """Return whether a space is a Box of real numbers with finite bounds."""
    if not (isinstance(action, Box) and action.dtype in ("float32", "float64") and math.prod(action.shape) >= 1):
        return False
    low, high = bounds_of(action)
    return bool(np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all())


def unsupported(title: str, expected: str, action: Space) -> str:
    """Return the message for an action space that an algorithm does not support, with the algorithms that do."""
    others = ["ppo"]
    if isinstance(action, (Discrete, MultiDiscrete)):
        others = ["dqn", "sac", "ppo"] if isinstance(action, Discrete) else ["dqn", "ppo"]
    elif is_bounded(action):
        others = ["sac", "td3", "ddpg", "ppo"]
    served = " or ".join(name for name in others if name != title)
    return f"{title} needs the action space to be {expected}; found {action}. For that space, use {served}"


def _box(action: Space) -> Box:
    assert isinstance(action, Box), "checked by `check`"
    return action
