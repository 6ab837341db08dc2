"""Options of BC, DAgger, IQL, TD3+BC and CQL."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from srl.algorithms.actor_critic import check_device
from srl.algorithms.offpolicy.config import OffPolicyConfig
from srl.algorithms.sac.config import ReplayActorCriticConfig, SACConfig, TD3Config, is_bounded, unsupported
from srl.api.dataflow import Replay
from srl.api.policy import Expert, ExpertConfig, Policy
from srl.api.spaces import Box, Dict, Discrete, Space, array_spec
from srl.api.trainer import Trainer
from srl.base.errors import raised
from srl.base.object_names import load_object
from srl.base.tree import ArraySpec, Tree, TreeSpec, map_tree
from srl.networks.options import MEMORY_OPTIONS, NetworkOptions
from srl.networks.spaces.actions import check_action_space, split_mask
from srl.networks.spaces.entities import check_parts

if TYPE_CHECKING:
    from srl.networks.distributions.distribution import Distribution
    from srl.networks.network import Network

NO_EXPERT = "needs an expert: --expert RUN, or --expert path/file.py:function"


@dataclass(frozen=True)
class BCConfig(OffPolicyConfig):
    """Behavior cloning: the policy maximizes the likelihood of the recorded actions (Pomerleau 1991)."""

    UNUSED: ClassVar[tuple[str, ...]] = (
        *(*MEMORY_OPTIONS, "network", "towers", "std", "n_step", "gamma", "update_threads"),
    )
    hidden_sizes: tuple[int, ...] = (256, 256)
    """Sizes of the dense layers after the observation or its encoder."""
    activation: Literal["tanh", "relu"] = "relu"
    """Activation between these layers."""
    learning_rate: float = 1e-3
    """Adam's learning rate at the start of the run."""
    learning_starts: int = 0
    """Decisions collected before the first gradient step; recorded data counts as collected."""
    normalize_observation: bool = True
    """Normalize numeric observations by the mean and standard deviation of the data set."""

    def dataflow(self) -> Replay:
        return replace(super().dataflow(), only_recorded=True)

    def discount(self) -> None:
        """Return None: it does not learn from rewards."""

    def check(self, observation: Space, action: Space) -> None:
        check_action_space(action, self)
        if isinstance(action, Dict):
            raise ValueError(f"{self.title} needs Discrete, MultiDiscrete or Box actions; found {action}")
        check_parts(split_mask(observation, action, self.mask_key)[0], self)
        if self.memory != "none":
            raise ValueError(f"{self.title} learns from single decisions and has no memory, found {self.memory!r}")
        if self.network:
            raise ValueError(f"{self.title} builds its own network; remove network={self.network!r}")
        check_device(self.device)

    def decision_spec(self, observation: Space, action: Space) -> dict[str, TreeSpec]:
        return {"action": action_spec(action)}

    def build_policy(self, observation: Space, action: Space, seed: int) -> Policy:
        from srl.algorithms.sac.policy import ReplayPolicy

        return ReplayPolicy(*self.build_network(observation, action, seed), seed, self.device)

    def build_network(self, observation: Space, action: Space, seed: int) -> tuple[Network, Distribution]:
        from srl.algorithms.sac.networks import build_actor

        distribution = recorded_distribution(action, self)
        return build_actor(observation, action, distribution, self, seed), distribution

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        from srl.algorithms.offline.bc import BCTrainer

        return BCTrainer(self, observation, action, seed)


@dataclass(frozen=True)
class DAggerConfig(BCConfig):
    """Data set aggregation (Ross et al. 2011): the learner plays, an expert says what it would have done, and behavior
    cloning learns from all observations so far."""

    expert: str = ""
    """Expert: a run (its path, name or `latest`; RUN@CHECKPOINT chooses a checkpoint), or a function as
    `path/file.py:function` that takes observations [B, ...] and returns actions [B, ...]."""
    expert_share: float = 1.0
    """Probability that the expert acts at the start of the run."""
    expert_until: float = 0.2
    """Fraction of the run over which this probability decreases to 0."""
    learning_starts: int = 1_000
    """Decisions collected before the first gradient step."""
    updates_per_decision: float = 0.25
    """Gradient steps per collected decision."""
    normalize_observation: bool = False
    """Normalize numeric observations by a running mean and standard deviation."""
    source: ExpertConfig | None = field(default=None, metadata={"hidden": True})
    """Expert as it is built; the run sets it from `expert`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_range("expert_share", "expert_until")
        if self.her != "none":
            raise ValueError(f"her must be 'none': the expert acts for the goal of the episode; found {self.her!r}")

    def named_code(self) -> tuple[str, ...]:
        return (*super().named_code(), *([self.expert] if ":" in self.expert else []))

    def dataflow(self) -> Replay:
        return replace(super().dataflow(), only_recorded=False)

    def build_expert(self) -> Expert:
        """Return the expert. Raises ValueError if there is none."""
        if self.source is not None:
            return self.source.build()
        if ":" in self.expert:
            found: Expert = load_object(self.expert)
            return found
        raise ValueError(f"{self.title} {NO_EXPERT}")

    def check(self, observation: Space, action: Space) -> None:
        super().check(observation, action)
        if not self.expert:
            return  # the run says that one is missing
        if self.source is not None:
            self.source.check(observation, action)
        from srl.algorithms.offline.dagger import answers_of

        expert, spec = self.build_expert(), action_spec(action)
        zeros: Tree = map_tree(lambda leaf: leaf.empty(2), array_spec(observation))
        try:
            answers_of(expert, zeros, map_tree(lambda leaf: leaf.empty(2), spec), self.expert)
        except Exception as error:
            raise ValueError(f"expert {self.expert} failed on two observations of zeros: {raised(error)}") from error

    def decision_spec(self, observation: Space, action: Space) -> dict[str, TreeSpec]:
        return {"action": action_spec(action), "expert": action_spec(action)}

    def build_policy(self, observation: Space, action: Space, seed: int) -> Policy:
        from srl.algorithms.offline.dagger import DAggerPolicy

        return DAggerPolicy(self, *self.build_network(observation, action, seed), seed)

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        from srl.algorithms.offline.dagger import DAggerTrainer

        return DAggerTrainer(self, observation, action, seed)


@dataclass(frozen=True)
class IQLConfig(ReplayActorCriticConfig):
    """Implicit Q-learning (Kostrikov et al. 2021): values of the best recorded actions by expectile regression, and a
    policy that clones recorded actions in proportion to their exponentiated advantage."""

    UNUSED: ClassVar[tuple[str, ...]] = (*MEMORY_OPTIONS, "network", "towers", "std", "update_threads")
    expectile: float = 0.7
    """Expectile of the value function: 0.5 is the mean of the recorded actions' values, 1 their maximum."""
    beta: float = 3.0
    """Inverse temperature: 0 clones the data, large numbers only its best actions."""
    max_weight: float = 100.0
    """Largest weight of an action, exp(beta * advantage)."""
    normalize_advantage: bool = True
    """Divide the advantages of a minibatch by their mean absolute value, so that `beta` does not depend on the scale of
    the rewards. Off: as in the paper, whose rewards are scaled per task."""
    normalize_observation: bool = False
    """Normalize numeric observations by the mean and standard deviation of the data set."""
    learning_starts: int = 0
    """Decisions collected before the first gradient step; recorded data counts as collected."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_not_negative("beta")
        self._check_positive("max_weight")
        if not 0.0 < self.expectile < 1.0:
            raise ValueError(f"expectile must be between 0 and 1, found {self.expectile}")

    def dataflow(self) -> Replay:
        return replace(super().dataflow(), only_recorded=True)

    def check_action(self, action: Space) -> None:
        if not (is_bounded(action) or (isinstance(action, Discrete) and action.n >= 1)):
            expected = "a Box of real numbers with finite bounds, low < high, or Discrete"
            raise ValueError(unsupported(self.title, expected, action))

    def distribution(self, action: Space) -> Distribution:
        return recorded_distribution(action, self)

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        from srl.algorithms.offline.iql import IQLTrainer

        return IQLTrainer(self, observation, action, seed)


@dataclass(frozen=True)
class TD3BCConfig(TD3Config):
    """TD3 with a term that keeps the policy at the recorded actions (Fujimoto and Gu 2021)."""

    UNUSED: ClassVar[tuple[str, ...]] = (*TD3Config.UNUSED, "update_threads")
    alpha: float = 2.5
    """Weight of the value against the distance to the recorded actions; large numbers imitate less."""
    normalize_observation: bool = True
    """Normalize numeric observations by the mean and standard deviation of the data set."""
    learning_starts: int = 0
    """Decisions collected before the first gradient step; recorded data counts as collected."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_not_negative("alpha")

    def dataflow(self) -> Replay:
        return replace(super().dataflow(), only_recorded=True)

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        from srl.algorithms.offline.td3bc import TD3BCTrainer

        return TD3BCTrainer(self, observation, action, seed)


@dataclass(frozen=True)
class CQLConfig(SACConfig):
    """Conservative Q-learning, CQL(H) (Kumar et al. 2020): SAC whose critics also learn that actions which are not in
    the data have low values."""

    conservative_weight: float = 5.0
    """Weight of that loss; 0: SAC on recorded data."""
    num_samples: int = 10
    """Actions of the policy, and as many random ones, whose values are lowered in each observation. Not used with
    Discrete actions, whose values are all known."""
    learning_starts: int = 0
    """Decisions collected before the first gradient step; recorded data counts as collected."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_not_negative("conservative_weight")
        self._check_counts("num_samples")

    def dataflow(self) -> Replay:
        return replace(super().dataflow(), only_recorded=True)

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        from srl.algorithms.offline.cql import CQLTrainer, DiscreteCQLTrainer

        kind = DiscreteCQLTrainer if isinstance(action, Discrete) else CQLTrainer
        return kind(self, observation, action, seed)


def action_spec(action: Space) -> TreeSpec:
    return ArraySpec(action.shape, "float32") if isinstance(action, Box) else array_spec(action)


def recorded_distribution(action: Space, options: NetworkOptions) -> Distribution:
    """Return the distribution of a policy that maximizes the likelihood of recorded actions. Its standard deviations
    depend on the observation."""
    from srl.networks.build import distribution_for

    return distribution_for(action, replace(options, std="state"))
