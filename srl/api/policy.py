"""The policy contract: decides, knows no loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias, runtime_checkable

from srl.base.state import State
from srl.base.tree import Array, Tree

Decision: TypeAlias = Mapping[str, Tree]
"""`action`, plus what the algorithm wants beside it in the block (`log_prob`, `value`), each [B, ...]; a recurrent
policy adds `state`, the memory to be handed back with the lane's next observation."""


@runtime_checkable
class Policy(Protocol):
    version: int
    """Of the parameters in use; -1 before the first `load`."""

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        """Decide for B lanes: observation [B, ...], state [B, ...] and first [B]. The state is that of each lane's
        decision before, and void where `first`: the policy begins with an empty memory there, as it does where state is
        None. A policy without memory gets None.

        Draws from the policy's own generator, or takes the likeliest action if `greedy`. The caller may overwrite its
        arrays afterwards; the decision's arrays are fresh.
        """

    def load(self, parameters: Array, version: int) -> None:
        """Take over a flat vector of parameters (float32 [P]); it is copied."""


@runtime_checkable
class ResumablePolicy(Protocol):
    """A policy that can be saved between two decisions, as an exact resume needs it."""

    def state(self) -> State:
        """All but the parameters that decides what it does next: its random generator."""

    def restore(self, state: State) -> None: ...
