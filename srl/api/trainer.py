"""The trainer contract. A trainer learns from batches; it does not depend on workers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from srl.base.state import State
from srl.base.tree import Array, Tree


@dataclass
class Trajectory:
    """A batch: T steps of B lanes, time-major, plus row T, whose observation and decision only bootstrap.

    `acting` marks the rows in which a lane acted: only those may be learned from. Rewards and episode ends are
    stored in the row of the action that caused them.
    """

    observation: Tree  # [T+1, B, ...]
    decision: Mapping[str, Tree]  # [T+1, B, ...]: action, log_prob, value, ...
    reward: Array  # [T+1, B] float32
    terminated: Array  # [T+1, B] bool
    truncated: Array  # [T+1, B] bool
    acting: Array  # [T+1, B] bool
    first: Array  # [T+1, B] bool
    version: Array  # [T+1, B] int32: the policy version that decided
    state: Tree | None = None  # [T+1, B, ...]: memory of a recurrent policy before it decided; invalid where `first`

    @property
    def num_decisions(self) -> int:
        """Number of decisions to learn from."""
        return int(self.acting[:-1].sum())


@dataclass(frozen=True)
class TrainResult:
    """Result of one update."""

    num_decisions: int
    """Decisions learned from, over all ranks."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    skipped: bool = False
    """Whether the update was skipped because a loss or gradient was not finite; parameters are then unchanged."""


class Rendezvous(Protocol):
    """A small key-value store that all ranks see, for ranks on several hosts."""

    def set(self, key: str, value: bytes) -> None:
        """Set a key for all ranks."""

    def get(self, key: str) -> bytes:
        """Wait until the key is set and return its value. Raises TimeoutError."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class TrainerGroup:
    """Rank, world size and rendezvous of this trainer."""

    rank: int
    size: int
    rendezvous: str | Rendezvous
    """A torch.distributed init method, for ranks of one host, or a key-value store."""
    timeout: float = 30.0
    interface: str = ""
    """Network interface between the ranks; empty: chosen by torch."""


class Trainer(ABC):
    """Base class of trainers."""

    @abstractmethod
    def step(self, batch: Trajectory, progress: float) -> TrainResult:
        """Learn from one batch. `progress` in [0, 1] drives schedules."""

    @abstractmethod
    def parameters(self) -> Array:
        """The vector that policies load, float32 [P]; valid until the next `step`."""

    @abstractmethod
    def state(self) -> Mapping[str, Array]:
        """Everything that an exact restart needs, as arrays whose shapes never change; valid until the next `step`. It
        includes the vector of `parameters` under that name: a checkpoint holds this state and nothing else."""

    @abstractmethod
    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a state that a trainer with the same config returned."""

    @abstractmethod
    def join(self, group: TrainerGroup) -> None:
        """Train with other ranks from now on: all ranks call `step` equally often and end with the same parameters."""

    def uncommitted_state(self) -> State:
        """Arrays beyond `state`, such as batches kept for later. They are saved only by
        `--scheduler inline`; otherwise lost when the trainer dies. Default: none."""
        return {}

    def restore_uncommitted(self, state: State) -> None:
        """Restore what `uncommitted_state` returned; called after `restore`. Default: does nothing."""
        return
