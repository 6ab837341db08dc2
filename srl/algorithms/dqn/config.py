"""Options of DQN (Mnih et al. 2015) and of its extensions, which Rainbow (Hessel et al. 2018) combines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

from srl.algorithms.actor_critic import check_device
from srl.algorithms.offpolicy.config import OffPolicyConfig
from srl.api.control import OptionValue
from srl.api.dataflow import Replay
from srl.api.policy import Policy
from srl.api.spaces import Box, Discrete, MultiDiscrete, Space, array_spec
from srl.api.trainer import Trainer
from srl.base.tree import ArraySpec, TreeSpec
from srl.networks.options import MEMORY_OPTIONS
from srl.networks.spaces.actions import split_mask
from srl.networks.spaces.entities import check_parts

if TYPE_CHECKING:
    from srl.algorithms.dqn.network import QNetwork
    from srl.networks.distributions.distribution import Distribution

Distributional: TypeAlias = Literal["none", "c51", "qr"]


@dataclass(frozen=True)
class QLearningConfig(OffPolicyConfig):
    """Base class for configs of Q-learning with Discrete and MultiDiscrete actions."""

    UNUSED: ClassVar[tuple[str, ...]] = ("box", "std", "initial_std", "towers", "global_keys")
    hidden_sizes: tuple[int, ...] = (256, 256)
    activation: Literal["tanh", "relu"] = "relu"
    double: bool = True
    """Choose the next action with the network that learns, and evaluate it with the target network (van Hasselt et al.
    2016). Otherwise the target network does both, which overestimates values."""
    dueling: bool = False
    """Separate the value of a state from the advantages of its actions, which sum to 0 (Wang et al. 2016). Each of the
    two has its own last hidden layer."""
    huber: bool = True
    """Errors above 1 count linearly, not squared (Mnih et al. 2015). With `qr`, the quantile loss is smooth near 0."""
    epsilon: float = 1.0
    """Probability of a random action after the warm-up, in which all actions are random."""
    epsilon_final: float = 0.05
    """Probability of a random action after `exploration_fraction` of the run."""
    exploration_fraction: float = 0.2
    """Share of the run in which the probability of a random action falls linearly."""
    epsilon_spread: float = 0.0
    """Explore less in some lanes than in others (Horgan et al. 2018): the probability of a random action is
    epsilon^(1 + epsilon_spread * u) in the lane at position u in [0, 1) among all lanes; outside of training, u is 1.
    Ape-X and R2D2 use a constant epsilon of 0.4 and a spread of 7. 0: all lanes explore equally."""
    target_update: int = 250
    """Gradient steps between updates of the target network."""
    tau: float = 1.0
    """Share by which an update moves the target network towards the network that learns; 1 copies it."""
    batch_size: int = 64
    replay_size: int = 100_000
    learning_starts: int = 1_000
    updates_per_decision: float = 0.5
    learning_rate: float = 1e-3
    max_grad_norm: float | None = 10.0
    update_threads: int = 1  # for 64 rows, two threads take longer than one: they meet three times per gradient step.
    # The recipe for Atari has 2.

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_range("epsilon", "epsilon_final", "exploration_fraction")
        self._check_counts("target_update")
        self._check_not_negative("epsilon_spread")
        if not 0.0 < self.tau <= 1.0:
            raise ValueError(f"tau must be above 0 and at most 1, found {self.tau}")
        if self.global_keys:
            raise ValueError(f"global_keys need a critic, which Q-learning does not have; found {self.global_keys}")

    def check(self, observation: Space, action: Space) -> None:
        if not (isinstance(action, (Discrete, MultiDiscrete)) and branch_sizes(action)):
            others = "sac, td3 or ppo" if isinstance(action, Box) else "ppo"
            raise ValueError(
                f"Q-learning needs Discrete or MultiDiscrete actions, found {action}; for this space use {others}"
            )
        check_parts(split_mask(observation, action, self.mask_key)[0], self)
        check_device(self.device)
        if self.network:  # importing torch in the controller is worth it: the user's code may have mistakes
            self.build_network(observation, action, seed=0)

    def decision_spec(self, observation: Space, action: Space) -> dict[str, TreeSpec]:
        return {"action": array_spec(action)}

    def explores_by_lane(self) -> bool:
        return self.epsilon_spread > 0.0

    def epsilon_at(self, progress: float) -> float:
        """Return the probability of a random action after the warm-up, at `progress` in [0, 1]."""
        passed = min(1.0, progress / self.exploration_fraction) if self.exploration_fraction else 1.0
        return self.epsilon + (self.epsilon_final - self.epsilon) * passed

    def changeable(self) -> tuple[str, ...]:
        return (*super().changeable(), "epsilon", "epsilon_final", "target_update", "tau")

    def with_option(self, name: str, value: OptionValue) -> Self:
        """Return the config with another value of an option. A changed epsilon is constant from then on."""
        changed = super().with_option(name, value)
        return replace(changed, epsilon_final=changed.epsilon) if name == "epsilon" else changed


@dataclass(frozen=True)
class DQNConfig(QLearningConfig):
    """Deep Q-learning for Discrete and MultiDiscrete actions. A MultiDiscrete has one branch of values per choice, with
    a common target: the mean over the branches (Tavakoli et al. 2018)."""

    UNUSED: ClassVar[tuple[str, ...]] = (*QLearningConfig.UNUSED, *MEMORY_OPTIONS)
    distributional: Distributional = "none"
    """Learn the distribution of the return: `c51`, probabilities of fixed returns (Bellemare et al. 2017), or `qr`, its
    quantiles (Dabney et al. 2018)."""
    num_atoms: int = 51
    """Number of returns of `c51`, or of quantiles of `qr` (which uses 200 in its paper)."""
    value_min: float = -10.0
    """Lowest return of `c51`."""
    value_max: float = 10.0
    """Highest return of `c51`."""
    noisy: bool = False
    """Explore with noisy dense layers, whose noise is learned (Fortunato et al. 2018)."""
    noise: float = 0.5
    """Initial scale of the noise of noisy layers."""
    actor_priorities: bool = False
    """With `prioritized`, new transitions get the error that their actor's decisions tell (Horgan et al. 2018), instead
    of the highest priority so far."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of the products in gradient steps. `bfloat16` is faster with images, on CPUs that support it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_counts("num_atoms")
        self._check_positive("noise")
        for name, known in (("distributional", ("none", "c51", "qr")), ("precision", ("float32", "bfloat16"))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}; found {getattr(self, name)!r}")
        if self.distributional == "c51" and not (self.value_min < self.value_max and self.num_atoms >= 2):
            found = f"found {self.num_atoms} from {self.value_min} to {self.value_max}"
            raise ValueError(f"c51 needs at least 2 atoms and value_min < value_max; {found}")
        if self.memory != "none":
            raise ValueError(f"memory must be 'none' for Q-learning from transitions, found {self.memory!r}; use r2d2")
        if self.network and (self.dueling or self.noisy or self.distributional != "none"):
            raise ValueError(
                "a custom network returns Q values [B, n]: dueling and noisy must be off, distributional 'none'"
            )

    def build_network(self, observation: Space, action: Space, seed: int) -> tuple[QNetwork, Distribution]:
        """Build the network, which outputs Q values [B, n] and the value of the best action [B], and the distribution
        whose mode is that action."""
        from srl.algorithms.dqn.build import build_q_network
        from srl.networks.build import distribution_for

        return build_q_network(observation, action, self, seed), distribution_for(action, self)

    def build_policy(self, observation: Space, action: Space, seed: int) -> Policy:
        from srl.algorithms.dqn.policy import QPolicy

        network = self.build_network(observation, action, seed)[0]
        discrete = isinstance(action, Discrete)
        return QPolicy(network, discrete, self.epsilon_spread, seed, self.device, self._tells_values)

    @property
    def _tells_values(self) -> bool:
        return self.prioritized and self.actor_priorities

    def decision_spec(self, observation: Space, action: Space) -> dict[str, TreeSpec]:
        told = {"value": ArraySpec((), "float32"), "action_value": ArraySpec((), "float32")}
        return {**super().decision_spec(observation, action), **(told if self._tells_values else {})}

    def dataflow(self) -> Replay:
        flow = super().dataflow()
        if flow.priorities is None or not self._tells_values:
            return flow
        return replace(flow, priorities=replace(flow.priorities, from_decisions=True))

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        from srl.algorithms.dqn.trainer import DQNTrainer

        return DQNTrainer(self, self.build_network(observation, action, seed)[0], seed)


@dataclass(frozen=True)
class RainbowConfig(DQNConfig):
    """Rainbow (Hessel et al. 2018): double, dueling, 3-step, distributional and prioritized Q-learning with noisy
    layers instead of random actions."""

    dueling: bool = True
    distributional: Distributional = "c51"
    noisy: bool = True
    epsilon: float = 0.0
    epsilon_final: float = 0.0
    n_step: int = 3
    prioritized: bool = True
    priority_alpha: float = 0.5


@dataclass(frozen=True)
class ApeXConfig(DQNConfig):
    """Ape-X (Horgan et al. 2018): double, dueling, 3-step and prioritized Q-learning with large batches, for many
    actors whose lanes explore more or less."""

    dueling: bool = True
    n_step: int = 3
    prioritized: bool = True
    actor_priorities: bool = True
    epsilon: float = 0.4
    epsilon_final: float = 0.4
    epsilon_spread: float = 7.0
    batch_size: int = 512
    updates_per_decision: float = 0.0625
    target_update: int = 100
    replay_size: int = 200_000


def branch_sizes(action: Any) -> tuple[int, ...]:
    """Return the number of alternatives of each choice; empty if there are none to choose from."""
    sizes = (action.n,) if isinstance(action, Discrete) else tuple(action.nvec)
    return sizes if sizes and min(sizes) >= 1 else ()
