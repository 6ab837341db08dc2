"""The environment contract: arrays over lanes. A lane is one agent of one copy of an environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from srl.api.spaces import Space
from srl.base.state import State
from srl.base.tree import Array, Tree

LONGEST_EPISODE = 30_000
"""Steps after which who plays whole episodes cuts one off, unless told otherwise: an episode need not end. It is more
than the longest limit in common use, Atari's 108,000 frames, which are 27,000 decisions."""


@dataclass(frozen=True)
class TeamSpec:
    """Agents of one kind, whose lanes share arrays. An environment with one agent has one team.

    A team has ``len(agents) * num_copies`` lanes, ordered by agent, then by copy: all copies of the first agent
    come first. `aligned` teams act at every step (but for the step after an episode's end), so their lanes share a
    block; in a team that is not aligned every lane keeps its own time (turn-based games, agents that die early).
    """

    name: str
    agents: tuple[str, ...]
    observation: Space
    action: Space
    aligned: bool = True
    mask_key: str = "action_mask"
    """The part of a Dict observation, if it has one, that says which choices are allowed."""


@dataclass(frozen=True)
class LaneSpec:
    environment: str
    """The name a user knows it by; stands in messages."""
    num_copies: int
    teams: tuple[TeamSpec, ...]

    def num_lanes(self, team: int) -> int:
        return len(self.teams[team].agents) * self.num_copies


@dataclass(slots=True)
class Arrival:
    """What a team's lanes received, one entry per lane. Views stay valid until the next call of `step` or `reset`.

    Episodes end by the *next-step* rule. The arrival that ends an episode (`terminated` or `truncated`) carries the
    episode's last observation. Nobody acts on it: `acting` is false there, whatever action is given for that lane is
    ignored, and the following arrival carries the first observation of the next episode with reward 0. So the last
    observation has a row of its own: its value bootstraps a truncation, and nothing leaks from one episode into the
    next. `acting` is also false for agents that are dead or wait for their turn; what they earn meanwhile is
    added up and delivered with the arrival at which they act again or end.

    `reward`, `terminated` and `truncated` belong to the action before; they are zero in the arrival of a reset.
    """

    observation: Tree  # [L, ...]
    reward: Array  # [L] float32
    terminated: Array  # [L] bool
    truncated: Array  # [L] bool
    acting: Array  # [L] bool: this lane must decide now
    first: Array  # [L] bool: this observation opens an episode
    failed: Array | None = None
    """[L] bool, or None: the environment of these lanes broke (it raised, or gave NaN) and was replaced. The
    observation is a fresh first one; the step that led here never happened."""
    failures: tuple[str, ...] = ()
    """One report for each environment that broke at this step: traceback, seed and step."""
    facts: Mapping[str, Array] = field(default_factory=dict)
    """Facts about the episodes that ended here, each [L]: `return` and `length` override what the actor counts from
    rewards (an adapter that clips rewards knows the true return). A `return` of NaN: this was no whole episode (a lost
    life that counts as an end), leave it out of statistics. All others appear in the metrics as `episodes/NAME`, means
    over about 100 episodes; NaN there: nothing to tell of this one."""


@runtime_checkable
class Lanes(Protocol):
    """`num_copies` copies of one environment, stepped together. One arrival, and one tree of actions, for each team."""

    spec: LaneSpec

    def reset(self, seed: int) -> tuple[Arrival, ...]:
        """Start every copy anew. Copies get different seeds, drawn from `seed`."""

    def step(self, actions: tuple[Tree, ...]) -> tuple[Arrival, ...]:
        """Step every copy. `actions` holds one tree [L, ...] for each team; lanes that do not act are ignored."""

    def close(self) -> None:
        """Free what the copies hold. Idempotent."""


@runtime_checkable
class ResumableLanes(Protocol):
    """Lanes that can be saved in the middle of their episodes. Both raise NotResumable where that is not possible."""

    def state(self) -> State:
        """All that decides what the lanes do from now on, given the same actions."""

    def restore(self, state: State) -> None:
        """Go on where others stopped; these lanes were just built, by the same config, and never reset."""


@runtime_checkable
class RenderedLanes(Lanes, Protocol):
    """Lanes of one copy that can be looked at."""

    def render(self) -> Array:
        """The present picture, uint8 [height, width, 3]."""


@runtime_checkable
class LanesConfig(Protocol):
    """Names an environment and its options as plain data; an actor builds it.

    A config may have a method ``build_filmed() -> RenderedLanes`` for `srl record`: one copy that draws itself, or
    ValueError where it cannot. Without it, the lanes that `build(1)` gives are filmed if they have a method `render`.
    """

    def build(self, num_copies: int) -> Lanes: ...


def called(config: LanesConfig) -> str:
    """What people call an environment: the `name` of its config, if it has one."""
    return str(getattr(config, "name", type(config).__name__))
