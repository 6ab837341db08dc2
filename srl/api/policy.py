"""The policy contract. A policy chooses actions; it has no loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TypeAlias

from srl.api.spaces import Space
from srl.base.state import NotResumable, State
from srl.base.tree import Array, Tree

Decision: TypeAlias = Mapping[str, Tree]
"""`action`, plus arrays that the algorithm stores with it in the block (`log_prob`, `value`), each [B, ...]. A
recurrent policy adds `state`, its memory, which it receives with the lane's next observation."""


class GradualDecisions(ABC):
    """Decisions that a policy makes in many small steps, such as the simulations of a search. Requests join between
    steps. The policy loads no parameters while requests are unfinished."""

    @abstractmethod
    def begin(self, observation: Tree, state: Tree | None, first: Array) -> int:
        """Begin to decide for B lanes, with the arguments of `Policy.act`, which may change after this call. Return the
        key of the decision."""

    @abstractmethod
    def step(self) -> list[tuple[int, Decision]]:
        """Do one step for all requests. Return the finished decisions with their keys."""


class Policy(ABC):
    """Base class of policies."""

    version: int = -1  # version of the parameters in use; -1 before the first `load`

    @abstractmethod
    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        """Choose actions for B lanes: observation [B, ...], state [B, ...] and first [B].

        `state` is from each lane's previous decision; a policy without memory gets None. Where `first` is true,
        `state` is ignored and the policy starts with an empty memory, as it does everywhere if `state` is None. Actions
        are sampled with the policy's own generator; with `greedy`, the most likely ones are chosen. The returned arrays
        are newly allocated."""

    def explore(self, observation: Tree, state: Tree | None, first: Array, position: Array) -> Decision:
        """Choose actions as `act` does without `greedy`, for lanes at a `position` [B] in [0, 1) among all lanes.
        Actors call it if the algorithm `explores_by_lane`. Lanes that are not learned from have the position 1.
        Default: `act`."""
        return self.act(observation, state, first)

    def gradual_decisions(self) -> GradualDecisions | None:
        """Return decisions in steps, which policy workers prefer to `act`, so that requests need not wait for those
        before them. None: decisions take one step."""
        return None

    def value(self, observation: Tree, state: Tree | None, first: Array) -> Array | None:
        """Return the policy's estimates of its discounted return [B], for checks. None: it has none. Default: `value`
        of its decisions."""
        estimates: Array | None = self.act(observation, state, first).get("value")  # type: ignore[assignment]
        return estimates

    def reanalyze(self, observation: Tree) -> Mapping[str, Array]:
        """Return the arrays of decisions that are targets, as the policy would make them now for observations [B, ...],
        without noise. Needed only if the dataflow has a `Reanalysis`."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `reanalyze`")

    @abstractmethod
    def load(self, parameters: Array, version: int) -> None:
        """Copy a flat parameter vector (float32 [P]) into the policy and set `version`."""

    def state(self) -> State:
        """Return everything besides the parameters that determines the next actions (the random generator)."""
        raise NotResumable(f"{type(self).__name__} has no `state` and `restore`")

    def restore(self, state: State) -> None:
        """Continue from a state that `state` returned."""
        raise NotResumable(f"{type(self).__name__} has no `state` and `restore`")


Expert: TypeAlias = Callable[[Tree], Tree]
"""What an expert would do: observations [B, ...] -> actions [B, ...], both as a policy has them."""


class ExpertConfig(ABC):
    """Description of an expert, as plain data: a frozen dataclass."""

    @abstractmethod
    def check(self, observation: Space, action: Space) -> None:
        """Raise ValueError if the expert does not fit these spaces."""

    @abstractmethod
    def build(self) -> Expert: ...
