"""The trainer contract: learns, knows no worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from srl.base.state import State
from srl.base.tree import Array, Tree


@dataclass
class Trajectory:
    """A batch: T steps of B lanes, time-major, plus row T, whose observation and decision only bootstrap.

    `acting` marks the rows in which a lane really decided: only those may be learned from. Rewards and ends stand in
    the row of the action that earned them.
    """

    observation: Tree  # [T+1, B, ...]
    decision: Mapping[str, Tree]  # [T+1, B, ...]: action, log_prob, value, ...
    reward: Array  # [T+1, B] float32
    terminated: Array  # [T+1, B] bool
    truncated: Array  # [T+1, B] bool
    acting: Array  # [T+1, B] bool
    first: Array  # [T+1, B] bool
    version: Array  # [T+1, B] int32: the policy version that decided
    state: Tree | None = None  # [T+1, B, ...]: what a recurrent policy remembered when it decided; void where `first`

    @property
    def num_decisions(self) -> int:
        return int(self.acting[:-1].sum())


@dataclass(frozen=True)
class TrainResult:
    num_decisions: int
    """Decisions learned from, over all ranks."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    skipped: bool = False
    """The update was refused (a loss or gradient that is not finite); parameters are as before."""


class Rendezvous(Protocol):
    """A few values that all ranks see, for those who are on several hosts."""

    def set(self, key: str, value: bytes) -> None: ...

    def get(self, key: str) -> bytes:
        """Waits until somebody set it. Raises TimeoutError."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class TrainerGroup:
    """Data-parallel company: who am I, how many are we, where do we meet."""

    rank: int
    size: int
    rendezvous: str | Rendezvous
    """A torch.distributed init method, for ranks of one host, or a meeting."""
    timeout: float = 30.0
    interface: str = ""
    """The network interface on which ranks reach each other; empty: whatever is found."""


@runtime_checkable
class Trainer(Protocol):
    def step(self, batch: Trajectory, progress: float) -> TrainResult:
        """Learn from one batch. `progress` in [0, 1] drives schedules."""

    def parameters(self) -> Array:
        """What policies load: one flat float32 vector [P], valid until the next `step`."""

    def state(self) -> Mapping[str, Array]:
        """All that an exact restart needs, as arrays whose shapes never change; valid until the next `step`. What
        `parameters` returns is among them under that name: a checkpoint holds this and nothing else."""

    def restore(self, state: Mapping[str, Array]) -> None: ...

    def join(self, group: TrainerGroup) -> None:
        """Train with others from now on: every rank calls `step` equally often and ends with the same parameters."""


@runtime_checkable
class HoldingTrainer(Protocol):
    """Optional: a trainer that holds more than it commits, such as batches for later. That is saved where all that is
    under way is saved, in runs of one thread, and lost with the trainer elsewhere."""

    def held(self) -> State: ...

    def take_back(self, state: State) -> None:
        """What `held` gave, after `restore`."""
