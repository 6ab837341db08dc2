"""Dataflows: what an algorithm's trainer learns from, as plain data from which the standard graph is built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias, Union

import numpy as np

from srl.api.spaces import Space
from srl.base.tree import Array, Tree, from_leaves, leaves, map_tree


@dataclass(frozen=True)
class OnPolicy:
    """Trajectories of the newest policy, each used by one update; `max_lag` bounds their age."""


WHOLE_EPISODE = 1 << 20
"""The `n_step` of returns without a bootstrap: longer than any episode."""


@dataclass(frozen=True)
class Transitions:
    """Unit of replay: a decision, the discounted rewards of the next `n_step` steps, and the observation after them.
    The sum ends early where the episode ends: a truncation bootstraps from the last observation, a termination does
    not."""

    n_step: int = 1
    gamma: float = 0.99


@dataclass(frozen=True)
class Sequences:
    """Unit of replay: `burn_in + length` consecutive rows of a lane and one more, from which the last one bootstraps.
    The burn-in rows only refresh a recurrent memory. Sequences start every `period` rows of a lane. A sequence may
    contain ends of episodes: the rows after one begin the next episode, and `first` says where."""

    length: int
    burn_in: int = 0
    period: int = 1
    num_agents: int = 1
    """Number of agents in a copy of the environment whose sequences are drawn together, as joint steps."""

    def __post_init__(self) -> None:
        for name, smallest in (("length", 1), ("burn_in", 0), ("period", 1), ("num_agents", 1)):
            if getattr(self, name) < smallest:
                raise ValueError(f"{name} of sequences must be at least {smallest}, found {getattr(self, name)}")

    @property
    def rows(self) -> int:
        """Number of rows, without the one that bootstraps."""
        return self.burn_in + self.length


@dataclass(frozen=True)
class Episodes(Sequences):
    """Unit of replay: episodes from their first row on, drawn with equal probability whatever their length. `length` is
    that of the longest one, plus 1 for its last observation: the rest of a longer episode is left out, and after the
    end of a shorter one the rows of the next one follow, as `first` says. The newest ones may not have ended yet."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.burn_in or self.period != 1:
            raise ValueError("whole episodes have no burn-in, and start where the environment does: leave out `period`")


@dataclass(frozen=True)
class Priorities:
    """Draws in proportion to priority^alpha (Schaul et al. 2016), corrected by importance weights with the exponent
    `beta`, which grows linearly to `beta_final` over the run. New units get the highest priority so far."""

    alpha: float = 0.6
    beta: float = 0.4
    beta_final: float = 1.0
    epsilon: float = 1e-6  # added to each priority, so that none is 0
    from_decisions: bool = False
    """Whether new transitions get the error of their decisions instead (Horgan et al. 2018): policies then return
    `value`, that of the best action, and `action_value`, that of the chosen one, both [B] float32."""

    def exponent(self, progress: float) -> float:
        """Return beta at a progress of the run from 0 to 1."""
        return self.beta + (self.beta_final - self.beta) * min(1.0, max(0.0, progress))


BatchFunction: TypeAlias = Callable[[Any, np.random.Generator], Any]
"""Change of a drawn batch: takes a `TransitionBatch` or `SequenceBatch`, whose arrays it may change in place, and
returns one with arrays of the same shapes and types. All randomness comes from the generator."""


class BatchTransform(ABC):
    """Base class of configs, frozen dataclasses of plain data, of a function that changes drawn batches."""

    @abstractmethod
    def build(self, observation: Space, action: Space) -> BatchFunction:
        """Return the function. Raises ValueError if the spaces are not supported; it is also called before anything is
        launched."""


@dataclass(frozen=True)
class HindsightGoals:
    """Hindsight experience replay (Andrychowicz et al. 2017): for each transition that is drawn as it was recorded,
    `ratio` others are drawn, on average, as if the desired goal had been one that their episode achieved later."""

    strategy: Literal["future", "final"] = "future"  # any later row of the episode, or the last one
    ratio: float = 4.0

    def __post_init__(self) -> None:
        if self.strategy not in ("future", "final"):
            raise ValueError(f"the strategy of hindsight must be 'future' or 'final', found {self.strategy!r}")
        if not 0.0 < self.ratio < float("inf"):
            raise ValueError(f"the ratio of hindsight must be a positive number, found {self.ratio}")

    @property
    def share(self) -> float:
        """Probability that a transition gets another goal."""
        return self.ratio / (1.0 + self.ratio)


@dataclass(frozen=True)
class Reanalysis:
    """Targets that decisions contain, and that are made again with newer parameters (Schrittwieser et al. 2020):
    `Policy.reanalyze` returns these arrays. Needs sequences as units."""

    max_age: int
    """Bound on the age of the targets in a batch: the number of its update minus the version that made them. Older
    ones are made again before a trainer gets them."""
    rows: int
    """First rows of a sequence that need targets."""
    arrays: tuple[str, ...] = ("policy", "value")
    """Names of the arrays."""

    def __post_init__(self) -> None:
        if self.max_age < 0:
            raise ValueError(f"the largest age of targets must be 0 or more, found {self.max_age}")


@dataclass(frozen=True)
class Replay:
    """Batches drawn from a memory of past decisions."""

    unit: Transitions | Sequences
    batch: int  # units per gradient step, over all trainers
    capacity: int  # decisions that are kept, over all trainers; the oldest blocks are replaced
    warmup: int = 0  # decisions collected before the first gradient step
    updates_per_decision: float = 1.0  # gradient steps per collected decision
    priorities: Priorities | None = None  # None: uniform draws
    transform: BatchTransform | None = None  # change of drawn batches
    keeps_new: bool = False  # whether batches also carry the new trajectories, for statistics of observations
    only_recorded: bool = False  # whether the memory must hold recorded data, which no actor adds to
    relabel: HindsightGoals | None = None  # None: goals as they were recorded
    reanalysis: Reanalysis | None = None  # None: targets as they were recorded
    newest: int | None = None  # draw only from this many of the newest decisions, over all trainers; None: from all

    def __post_init__(self) -> None:
        if self.newest is not None and self.newest < 1:
            raise ValueError(f"`newest` must be the number of decisions to draw from, at least 1; found {self.newest}")
        if self.newest is not None and self.priorities is not None:
            raise ValueError("draws from the `newest` decisions are uniform; leave out `priorities`")


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
    largest_weight: Array | None = None
    """[K] float64: weight of each minibatch that became 1, by which the others were divided. With it, data-parallel
    trainers agree on one scale. None: uniform draws."""

    @property
    def num_steps(self) -> int:
        """Number K of gradient steps."""
        return len(self.reward)


@dataclass
class SequenceBatch:
    """K minibatches of N = B * `num_agents` lanes, time-major: R = `burn_in + length` rows, and row R, from which row
    R - 1 bootstraps. The agents of one copy are next to each other. K is 0 before the warm-up ends.

    The arrays have the meaning that they have in a `Trajectory`: the reward and the end of an episode are in the row of
    the action that caused them, and the last observation of an episode has a row of its own, in which no lane acts.
    Where the memory of a lane ends before row R, its last observation is such a row too, and the row before it is
    `truncated`. So `acting[:, :-1]` marks the rows to learn from, and all of them may bootstrap from the next row.
    """

    observation: Tree  # [K, R+1, N, ...]
    decision: Mapping[str, Tree]  # [K, R+1, N, ...]
    reward: Array  # [K, R+1, N] float32
    terminated: Array  # [K, R+1, N] bool
    truncated: Array  # [K, R+1, N] bool
    acting: Array  # [K, R+1, N] bool: false also in rows that are not `valid`
    first: Array  # [K, R+1, N] bool
    valid: Array  # [K, R+1, N] bool: false after the last row that is remembered of a lane, which they repeat
    state: Tree | None  # [K, N, ...]: memory of a recurrent policy before row 0; invalid where `first`
    weight: Array  # [K, B] float32: importance weights, at most 1; all 1 for uniform draws
    num_decisions: int  # decisions collected since the last update
    burn_in: int = 0
    new: Tree | None = None  # observations of these decisions, if the dataflow `keeps_new`
    largest_weight: Array | None = None
    """[K] float64, as in a `TransitionBatch`."""

    @property
    def num_steps(self) -> int:
        """Number K of gradient steps."""
        return len(self.weight)


ReplayBatch: TypeAlias = Union[TransitionBatch, SequenceBatch]
REST = ("num_decisions", "burn_in", "new")  # fields of batches that are not arrays of minibatches


def arrays_of(batch: ReplayBatch) -> dict[str, Array]:
    """Return the arrays of minibatches by path, such as `observation/camera`."""
    trees = {one.name: getattr(batch, one.name) for one in fields(batch) if one.name not in REST}
    return dict(leaves({name: tree for name, tree in trees.items() if tree is not None}))


def first_steps(batch: Any, num_steps: int) -> Any:
    """Return the first `num_steps` minibatches of a batch."""
    trees = {one.name: getattr(batch, one.name) for one in fields(batch) if one.name not in REST}
    cut = {name: map_tree(lambda array: array[:num_steps], tree) for name, tree in trees.items() if tree is not None}
    return replace(batch, **cut)


def batch_of(
    unit: Transitions | Sequences, arrays: Mapping[str, Array], num_decisions: int = 0, new: Tree | None = None
) -> ReplayBatch:
    """Return the batch with these arrays of minibatches, the reverse of `arrays_of`."""
    trees = from_leaves(arrays)
    if isinstance(unit, Sequences):
        return SequenceBatch(**{"state": None, **trees}, num_decisions=num_decisions, burn_in=unit.burn_in, new=new)
    return TransitionBatch(**trees, num_decisions=num_decisions, new=new)


def transformed(function: BatchFunction, batch: ReplayBatch, random: np.random.Generator) -> ReplayBatch:
    """Apply the function of a `BatchTransform`. The weights stay those of the draw. Raises TypeError if the function
    returns other arrays than it got."""
    if batch.num_steps == 0:
        return batch
    trees = {one.name: getattr(batch, one.name) for one in fields(batch) if one.name not in REST}
    own = {name: map_tree(_writeable, tree) for name, tree in trees.items() if tree is not None}
    given = replace(batch, **own)
    layout = {path: (array.dtype.name, array.shape) for path, array in arrays_of(given).items()}
    found = function(given, random)
    if not isinstance(found, type(batch)):
        raise TypeError(f"a transform must return a {type(batch).__name__}, found {type(found).__name__}")
    for path, array in arrays_of(found).items():
        expected = layout.pop(path, None)
        if expected != (array.dtype.name, array.shape):
            raise TypeError(f"a transform returned {path} as {array.dtype.name} {array.shape}, expected {expected}")
    if layout:
        raise TypeError(f"a transform returned no {', '.join(layout)}")
    found = replace(found, weight=batch.weight, largest_weight=batch.largest_weight)
    return replace(found, num_decisions=batch.num_decisions, new=batch.new)


def _writeable(array: Array) -> Array:
    return array if array.flags.writeable else array.copy()
