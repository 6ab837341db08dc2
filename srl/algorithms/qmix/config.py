"""Options of VDN (Sunehag et al. 2018) and QMIX (Rashid et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self, TypeAlias

from srl.algorithms.actor_critic import check_device
from srl.algorithms.dqn.config import branch_sizes
from srl.algorithms.offpolicy.config import OffPolicyConfig
from srl.api.control import OptionValue
from srl.api.dataflow import Replay, Sequences
from srl.api.policy import Policy
from srl.api.spaces import Dict, Discrete, MultiDiscrete, Space, array_spec
from srl.api.trainer import Trainer
from srl.base.tree import ArraySpec, TreeSpec
from srl.networks.spaces.actions import split_mask
from srl.networks.spaces.entities import check_parts

if TYPE_CHECKING:
    from srl.algorithms.qmix.mixing import Mixer
    from srl.algorithms.qmix.network import AgentNetwork
    from srl.networks.distributions.distribution import Distribution

JointReward: TypeAlias = Literal["mean", "sum"]
STATE = "state"


@dataclass(frozen=True)
class VDNConfig(OffPolicyConfig):
    """Value decomposition (Sunehag et al. 2018): the value of a joint action is the sum of the agents' values, which
    one network computes from each agent's observations. It learns from joint steps of all agents in the role."""

    UNUSED: ClassVar[tuple[str, ...]] = ("box", "std", "initial_std", "towers", "update_threads")
    hidden_sizes: tuple[int, ...] = (64,)
    activation: Literal["tanh", "relu"] = "relu"
    memory: Literal["none", "gru", "lstm"] = "gru"
    memory_size: int = 64
    chunk: int = 16
    """Steps of a sequence in a batch, through which gradients flow back. A sequence starts from the memory that the
    agents had there."""
    agent_id: bool = True
    """Add each agent's number to its observation, as a one-hot vector, so that agents with the same network can act
    differently. PettingZoo environments and functions that return lanes support this; others give their agents
    observations that differ."""
    joint_reward: JointReward = "mean"
    """Reward of a joint step: the mean of the rewards of the agents that act (if all receive the reward of the team,
    this is that reward), or their sum."""
    double: bool = True
    """Choose the next actions with the network that learns, and evaluate them with the target network (van Hasselt et
    al. 2016)."""
    epsilon: float = 1.0
    """Probability of a random action after the warm-up, in which all actions are random."""
    epsilon_final: float = 0.05
    """Probability of a random action after `exploration_fraction` of the run."""
    exploration_fraction: float = 0.2
    """Share of the run in which the probability of a random action falls linearly."""
    target_update: int = 200
    """Gradient steps between updates of the target networks."""
    tau: float = 1.0
    """Share by which an update moves the target networks towards the networks that learn; 1 copies them."""
    num_agents: int | None = None
    """Number of agents whose steps are joined. None: all agents of the role, which is the only possible number."""
    batch_size: int = 32
    """Sequences of joint steps per gradient step, over all trainers."""
    replay_size: int = 200_000
    learning_starts: int = 2_000
    updates_per_decision: float = 0.02
    learning_rate: float = 5e-4
    max_grad_norm: float | None = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_range("epsilon", "epsilon_final", "exploration_fraction")
        self._check_counts("target_update")
        if self.num_agents is not None:
            self._check_counts("num_agents")
        if not 0.0 < self.tau <= 1.0:
            raise ValueError(f"tau must be above 0 and at most 1, found {self.tau}")
        if self.joint_reward not in ("mean", "sum"):
            raise ValueError(f"joint_reward must be 'mean' or 'sum', found {self.joint_reward!r}")
        if self.n_step > self.chunk:
            raise ValueError(f"n_step must be at most chunk, {self.chunk}; found {self.n_step}")

    def dataflow(self) -> Replay:
        length, period = self.chunk, max(1, self.chunk // 2)
        return replace(super().dataflow(), unit=Sequences(length, self.burn_in, period, self.num_agents or 1))

    def for_agents(self, num_agents: int, aligned: bool) -> Self:
        if num_agents > 1 and not aligned:
            raise ValueError(
                "vdn and qmix learn from joint steps, so all agents must act at every step; these take turns. Use ippo "
                "or mappo"
            )
        if self.num_agents not in (None, num_agents):
            raise ValueError(f"num_agents must be {num_agents}, the number of agents; found {self.num_agents}")
        return replace(self, num_agents=num_agents)

    def check(self, observation: Space, action: Space) -> None:
        if not (isinstance(action, (Discrete, MultiDiscrete)) and branch_sizes(action)):
            raise ValueError(
                f"vdn and qmix need Discrete or MultiDiscrete actions, found {action}; for this space use mappo or ippo"
            )
        options = self if self.state_keys(observation) else self.agent_options()
        check_parts(split_mask(observation, action, self.mask_key)[0], options)
        check_device(self.device)
        if self.network:  # importing torch in the controller is worth it: the user's code may have mistakes
            self.build_network(observation, action, seed=0)

    def state_keys(self, observation: Space) -> tuple[str, ...]:
        """Return the keys of the observation that agents do not see."""
        return self.global_keys

    def agent_options(self) -> Self:
        """Return the options of the agents' network: without an own tower for a critic, and without global keys."""
        return replace(self, towers="shared", global_keys=())

    def decision_spec(self, observation: Space, action: Space) -> dict[str, TreeSpec]:
        size = self.agent_options().state_size
        if self.network:
            size = self.build_network(observation, action, seed=0)[0].state_size
        spec: dict[str, TreeSpec] = {"action": array_spec(action)}
        return {**spec, "state": ArraySpec((size,), "float32")} if size else spec

    def suggested_horizon(self) -> int:
        return self.chunk

    def changeable(self) -> tuple[str, ...]:
        return (*super().changeable(), "epsilon", "epsilon_final", "target_update", "tau")

    def with_option(self, name: str, value: OptionValue) -> Self:
        """Return the config with another value of an option. A changed epsilon is constant from then on."""
        changed = super().with_option(name, value)
        return replace(changed, epsilon_final=changed.epsilon) if name == "epsilon" else changed

    def memory_kind(self) -> str:
        return self.memory

    def global_observation_keys(self) -> tuple[str, ...]:
        return self.global_keys

    def wants_agent_ids(self) -> bool:
        return self.agent_id

    def build_network(self, observation: Space, action: Space, seed: int) -> tuple[AgentNetwork, Distribution]:
        """Build the agents' network, which outputs Q values [B, n] and the value of the best action [B], and the
        distribution whose mode is that action."""
        from srl.algorithms.qmix.network import build_agent_network
        from srl.networks.build import distribution_for

        return build_agent_network(observation, action, self, seed), distribution_for(action, self)

    def build_mixer(self, observation: Space, action: Space, seed: int) -> Mixer:
        """Build the function from the agents' values to the value of the joint action."""
        from srl.algorithms.qmix.mixing import Sum

        return Sum()

    def build_policy(self, observation: Space, action: Space, seed: int) -> Policy:
        from srl.algorithms.dqn.policy import QPolicy

        network = self.build_network(observation, action, seed)[0]
        return QPolicy(network, isinstance(action, Discrete), 0.0, seed, self.device)

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        from srl.algorithms.qmix.trainer import JointTrainer

        network = self.build_network(observation, action, seed)[0]
        return JointTrainer(self, network, self.build_mixer(observation, action, seed), seed)


@dataclass(frozen=True)
class QMIXConfig(VDNConfig):
    """QMIX (Rashid et al. 2018): a network mixes the agents' values, monotonically in each of them, with weights that
    depend on the state of the whole game. Agents act without it."""

    global_keys: tuple[str, ...] = (STATE,)
    """Parts of a Dict observation that only the mixing network sees, as the state of the whole game. If the observation
    has no part `state`, the default, the mixing network sees the observations of all agents."""
    mixing_size: int = 32
    """Number of hidden units of the mixing network."""
    hypernet_size: int = 64
    """Number of hidden units of the networks that compute its weights from the state; 0: they are one linear layer, as
    in the paper of 2018."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_counts("mixing_size")
        self._check_not_negative("hypernet_size")

    def wants_global_state(self) -> bool:
        return True

    def state_keys(self, observation: Space) -> tuple[str, ...]:
        """Return the keys of the state, or none if it is composed of the agents' observations. Raises ValueError if
        keys are missing."""
        parts = sorted(observation.items) if isinstance(observation, Dict) else []
        missing = [key for key in self.global_keys if key not in parts]
        if not missing:
            return self.global_keys
        if self.global_keys == (STATE,):
            return ()
        shown = f"has the parts {parts}" if parts else f"is {observation}"
        raise ValueError(
            f"the mixing network sees {', '.join(map(repr, missing))}, a part of a Dict observation; this one {shown}. "
            "Name the global parts with --algo.global-keys, or leave it out to use the observations of all agents"
        )

    def build_mixer(self, observation: Space, action: Space, seed: int) -> Mixer:
        from srl.algorithms.qmix.mixing import build_mixing_network

        return build_mixing_network(observation, action, self, seed)
