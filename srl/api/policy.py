"""The policy contract: it decides, and knows no loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TypeAlias

from srl.base.state import NotResumable, State
from srl.base.tree import Array, Tree

Decision: TypeAlias = Mapping[str, Tree]
"""`action`, plus the arrays that the algorithm wants beside it in the block (`log_prob`, `value`), each [B, ...]. A
recurrent policy adds `state`, its memory, which it gets back with the lane's next observation."""


class Policy(ABC):
    """Base class of policies."""

    version: int = -1
    """Version of the parameters in use; -1 before the first `load`."""

    @abstractmethod
    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        """Decide for B lanes: observation [B, ...], state [B, ...] and first [B].

        The state is the one of each lane's previous decision. Where `first` is true it is invalid: the policy starts
        with an empty memory there, as it does everywhere if `state` is None. A policy without memory gets None.

        Actions are drawn from the policy's own generator, or are the most likely ones if `greedy`. The caller may
        overwrite its arrays afterwards; the arrays of the decision are new.
        """

    @abstractmethod
    def load(self, parameters: Array, version: int) -> None:
        """Copy a flat vector of parameters (float32 [P]) into the policy and set `version`."""

    def state(self) -> State:
        """Everything except the parameters that determines the next decisions, such as the random generator. An exact
        resume needs it. Default: raise NotResumable."""
        raise NotResumable(f"{type(self).__name__} has no `state` and `restore`")

    def restore(self, state: State) -> None:
        """Go on from what `state` returned. Default: raise NotResumable."""
        raise NotResumable(f"{type(self).__name__} has no `state` and `restore`")
