"""The trainer contract. A trainer learns from batches; it does not depend on workers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

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
    version: Array  # [T+1, B] int32: the policy version that chose the action
    state: Tree | None = None  # [T+1, B, ...]: memory of a recurrent policy before it acted; invalid where `first`
    position: Array | None = None  # [T+1, B] float32: positions of the lanes, if the algorithm `explores_by_lane`

    @property
    def num_decisions(self) -> int:
        """Number of decisions to learn from."""
        return int(self.acting[:-1].sum())


@dataclass(frozen=True)
class TrainResult:
    """Result of one update."""

    num_decisions: int  # decisions learned from, over all ranks
    metrics: Mapping[str, float] = field(default_factory=dict)
    skipped: bool = False  # a loss or gradient was not finite; the parameters are unchanged
    priorities: Array | None = None  # of the units of a replay batch, [K, B]: feedback to the memory they came from


class Rendezvous(Protocol):
    """A small key-value store that all ranks see, for ranks on several hosts."""

    def set(self, key: str, value: bytes) -> None: ...

    def get(self, key: str) -> bytes:
        """Wait until the key is set and return its value. Raises TimeoutError."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class TrainerGroup:
    """Rank, world size and rendezvous of this trainer."""

    rank: int
    size: int
    rendezvous: str | Rendezvous  # A torch.distributed init method, for ranks of one host, or a key-value store
    timeout: float = 30.0
    interface: str = ""  # network interface between the ranks; empty: chosen by torch


class Trainer(ABC):
    """Base class of trainers."""

    @abstractmethod
    def step(self, batch: Any, progress: float) -> TrainResult:
        """Learn from one batch: a `Trajectory`, or what the algorithm's dataflow draws from replay, such as a
        `TransitionBatch`. `progress` in [0, 1] drives schedules."""

    @abstractmethod
    def parameters(self) -> Array:
        """Return the vector that policies load, float32 [P]; valid until the next `step`."""

    @abstractmethod
    def state(self) -> Mapping[str, Array]:
        """Return everything that an exact restart needs, as arrays whose shapes never change; valid until the next
        `step`. It includes the vector of `parameters` under that name: a checkpoint holds only this state."""

    @abstractmethod
    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a state that a trainer with the same config returned."""

    def join(self, group: TrainerGroup) -> None:
        """Train with other ranks from now on: all call `step` equally often and have the same parameters after it.
        Default: raises ValueError; the algorithm then trains with one trainer only."""
        raise ValueError(f"{type(self).__name__} does not implement `join`, so it needs --trainers 1")

    def reconfigure(self, config: Any) -> None:
        """Use another config from the next `step`. It differs only in options that the algorithm declares as
        `changeable`; an algorithm that declares none need not implement this."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `reconfigure`")

    def lowest(self, number: int) -> int:
        """Return the lowest number that any rank passes; all ranks call this equally often. Required for `join`."""
        return number

    def value(self, observation: Tree, state: Tree | None, first: Array) -> Array | None:
        """Return the critics' estimates of the policy's discounted return [B], for checks; arguments are as for
        :meth:`srl.api.policy.Policy.value`. Default: None, the policy has them."""
        return None

    def uncommitted_state(self) -> State:
        """Return arrays beyond `state`, such as batches for later updates. Only an inline run saves them."""
        return {}

    def restore_uncommitted(self, state: State) -> None:
        """Restore what `uncommitted_state` returned; called after `restore`."""
        return
