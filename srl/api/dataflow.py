"""Dataflows: what an algorithm's trainer learns from, as plain data from which the standard graph is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, Union

from srl.base.tree import Array, Tree


@dataclass(frozen=True)
class OnPolicy:
    """Trajectories of the newest policy, each used by one update; `max_lag` bounds their age."""


@dataclass(frozen=True)
class Transitions:
    """Unit of replay: a decision, the discounted rewards of the next `n_step` steps, and the observation after them.
    The sum ends early where the episode ends: a truncation bootstraps from the last observation, a termination does
    not."""

    n_step: int = 1
    gamma: float = 0.99


@dataclass(frozen=True)
class Sequences:
    """Unit of replay: `burn_in + length` consecutive steps of a lane within one episode or less, and one more row. The
    first `burn_in` steps only refresh a recurrent memory. Sequences start every `period` steps of a lane."""

    length: int
    burn_in: int = 0
    period: int = 1


@dataclass(frozen=True)
class Priorities:
    """Draws in proportion to priority^alpha (Schaul et al. 2016), corrected by importance weights with the exponent
    `beta`, which grows linearly to `beta_final` over the run. New units get the highest priority so far."""

    alpha: float = 0.6
    beta: float = 0.4
    beta_final: float = 1.0
    epsilon: float = 1e-6  # added to each priority, so that none is 0


@dataclass(frozen=True)
class Replay:
    """Batches drawn from a memory of past decisions."""

    unit: Transitions | Sequences
    batch: int  # units per gradient step, over all trainers
    capacity: int  # decisions that are kept, over all trainers; the oldest blocks are replaced
    warmup: int = 0  # decisions collected before the first gradient step
    updates_per_decision: float = 1.0  # gradient steps per collected decision
    priorities: Priorities | None = None  # None: uniform draws
    keeps_new: bool = False  # whether batches also carry the new trajectories, for statistics of observations


Dataflow: TypeAlias = Union[OnPolicy, Replay]


@dataclass
class TransitionBatch:
    """K minibatches of B transitions, one for each gradient step of an update. K is 0 before the warm-up ends.

    target = reward + discount * value(next_observation)
    """

    observation: Tree  # [K, B, ...]
    decision: Mapping[str, Tree]  # [K, B, ...]: action, and what else the policy returned
    reward: Array  # [K, B] float32: discounted sum over up to n steps
    discount: Array  # [K, B] float32: gamma^n after n steps; 0 if the episode terminated
    next_observation: Tree  # [K, B, ...]
    weight: Array  # [K, B] float32: importance weights, at most 1; all 1 for uniform draws
    num_decisions: int  # decisions collected since the last update
    new: Tree | None = None  # observations [N, ...] of these decisions, if the dataflow `keeps_new`

    @property
    def num_steps(self) -> int:
        """Number K of gradient steps."""
        return len(self.reward)
