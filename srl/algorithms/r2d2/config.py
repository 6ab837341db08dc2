"""Options of R2D2, recurrent replay distributed DQN (Kapturowski et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from srl.algorithms.dqn.config import QLearningConfig
from srl.api.dataflow import Replay, Sequences
from srl.api.policy import Policy
from srl.api.spaces import Discrete, Space
from srl.api.trainer import Trainer
from srl.base.tree import ArraySpec, TreeSpec

if TYPE_CHECKING:
    from srl.algorithms.r2d2.network import RecurrentQNetwork
    from srl.networks.distributions.distribution import Distribution


@dataclass(frozen=True)
class R2D2Config(QLearningConfig):
    """Q-learning with a memory, from replayed sequences: double, dueling, n-step and prioritized. Discrete and
    MultiDiscrete actions."""

    UNUSED: ClassVar[tuple[str, ...]] = (*QLearningConfig.UNUSED, "network", "update_threads")
    hidden_sizes: tuple[int, ...] = (128,)
    memory: Literal["none", "gru", "lstm"] = "lstm"
    """Recurrent layer after the dense layers."""
    chunk: int = 80
    """Length of the sequences that are learned from, in steps."""
    burn_in: int = 40
    """Steps before each sequence that only refresh the memory, which starts from the one stored with the first of
    them."""
    period: int = 40
    """Steps between the starts of two sequences of a lane. Sequences overlap if it is less than `chunk`."""
    rescale: bool = True
    """Learn compressed values, h(x) = sign(x) (sqrt(|x| + 1) - 1) + 0.001 x (Pohlen et al. 2018), so that rewards need
    not be clipped."""
    priority_eta: float = 0.9
    """Weight of the largest error of a sequence in its priority; the mean error has the rest."""
    dueling: bool = True
    huber: bool = False
    n_step: int = 5
    gamma: float = 0.997
    prioritized: bool = True
    priority_alpha: float = 0.9
    priority_beta: float = 0.6
    epsilon: float = 0.4
    epsilon_final: float = 0.4
    epsilon_spread: float = 7.0
    batch_size: int = 32
    """Sequences per gradient step, over all trainers."""
    learning_starts: int = 2_000
    updates_per_decision: float = 0.02
    learning_rate: float = 5e-4
    target_update: int = 100
    max_grad_norm: float | None = 40.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_counts("period")
        self._check_range("priority_eta")
        if self.memory not in ("gru", "lstm"):
            raise ValueError(
                f"memory must be 'gru' or 'lstm' for r2d2, found {self.memory!r}; use dqn without a memory"
            )
        if self.network:
            raise ValueError(f"r2d2 has no custom networks, found network {self.network!r}; use dqn or ppo")
        if self.replay_size < self.burn_in + self.chunk:
            rows = self.burn_in + self.chunk
            raise ValueError(
                f"replay_size must be at least burn_in + chunk, {rows} steps, so that a sequence fits; found "
                f"{self.replay_size}"
            )

    def dataflow(self) -> Replay:
        return replace(super().dataflow(), unit=Sequences(self.chunk, self.burn_in, self.period))

    def decision_spec(self, observation: Space, action: Space) -> dict[str, TreeSpec]:
        size = self.memory_size * (2 if self.memory == "lstm" else 1)
        return {**super().decision_spec(observation, action), "state": ArraySpec((size,), "float32")}

    def suggested_horizon(self) -> int:
        return 16

    def memory_kind(self) -> str:
        return self.memory

    def build_network(self, observation: Space, action: Space, seed: int) -> tuple[RecurrentQNetwork, Distribution]:
        """Build the network, which outputs (compressed) Q values [B, n], the value of the best action [B] and the
        memory, and the distribution whose mode is that action."""
        from srl.algorithms.r2d2.network import build_recurrent_network
        from srl.networks.build import distribution_for

        return build_recurrent_network(observation, action, self, seed), distribution_for(action, self)

    def build_policy(self, observation: Space, action: Space, seed: int) -> Policy:
        from srl.algorithms.dqn.policy import QPolicy

        network = self.build_network(observation, action, seed)[0]
        return QPolicy(network, isinstance(action, Discrete), self.epsilon_spread, seed, self.device)

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        from srl.algorithms.r2d2.trainer import R2D2Trainer

        return R2D2Trainer(self, self.build_network(observation, action, seed)[0], seed)
