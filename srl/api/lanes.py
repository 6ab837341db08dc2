"""The environment contract: arrays over lanes. A lane is one agent of one copy of an environment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from srl.api.spaces import Space
from srl.base.state import NotResumable, State
from srl.base.tree import Array, Tree

if TYPE_CHECKING:
    from srl.api.worker import Context

LONGEST_EPISODE = 30_000
"""Default limit, in steps, of an episode in evaluations and recordings: an episode need not end by itself. It exceeds
the longest limit in common use, Atari's 108,000 frames, which are 27,000 decisions."""


@dataclass(frozen=True)
class TeamSpec:
    """Agents of one kind, whose lanes share arrays. An environment with one agent has one team.

    A team has ``len(agents) * num_copies`` lanes, ordered by agent, then by copy: all copies of the first agent
    come first. The lanes of an `aligned` team act at every step (except after the end of an episode) and share one
    block. The lanes of other teams act at different steps (turn-based games, agents that die early) and have one block
    each.
    """

    name: str
    agents: tuple[str, ...]
    observation: Space
    action: Space
    aligned: bool = True
    mask_key: str = "action_mask"
    """Key of the action mask in a Dict observation, if there is one."""


@dataclass(frozen=True)
class LaneSpec:
    """Teams and number of copies of an environment."""

    environment: str
    """Name of the environment in messages."""
    num_copies: int
    teams: tuple[TeamSpec, ...]

    def num_lanes(self, team: int) -> int:
        return len(self.teams[team].agents) * self.num_copies


@dataclass(slots=True)
class Arrival:
    """Observations, rewards and ends that the lanes of a team received, one entry per lane.

    The arrays may be views that stay valid until the next call of `step` or `reset`.

    Episodes end by the *next-step* rule. The arrival that ends an episode (`terminated` or `truncated`) carries the
    episode's last observation. No action follows it: `acting` is false there, the action given for that lane is
    ignored, and the next arrival carries the first observation of the next episode with reward 0. The last
    observation therefore has a row to itself: its value bootstraps a truncation, and nothing leaks from one episode
    into the next. `acting` is also false for agents that are dead or wait for their turn; their rewards are added up
    and delivered with the arrival at which they act again or end.

    `reward`, `terminated` and `truncated` belong to the previous action; they are zero in the arrival of a reset.
    """

    observation: Tree  # [L, ...]
    reward: Array  # [L] float32
    terminated: Array  # [L] bool
    truncated: Array  # [L] bool
    acting: Array  # [L] bool: the lane needs an action now
    first: Array  # [L] bool: the observation is the first of an episode
    failed: Array | None = None
    """[L] bool, or None: the environment of these lanes failed (it raised, or returned NaN) and was replaced. The
    observation is the first of a new episode; the step that failed is not recorded."""
    failures: tuple[str, ...] = ()
    """One report for each environment that failed at this step: traceback, seed and step."""
    facts: Mapping[str, Array] = field(default_factory=dict)
    """Statistics of the episodes that ended here, each [L]. `return` and `length` replace the values that the actor
    computes from rewards (an adapter that clips rewards knows the true return). A `return` of NaN excludes the episode
    from statistics (a lost life that counts as an end). All others appear in the metrics as `episodes/NAME`, as means
    over about 100 episodes; NaN entries are ignored."""


class Lanes(ABC):
    """`num_copies` copies of one environment, stepped together. One arrival, and one tree of actions, for each team.

    A subclass sets `spec` and implements `reset`, `step` and `close`; the other methods are optional.
    """

    spec: LaneSpec

    @abstractmethod
    def reset(self, seed: int) -> tuple[Arrival, ...]:
        """Start a new episode in every copy. Copies get different seeds, derived from `seed`."""

    @abstractmethod
    def step(self, actions: tuple[Tree, ...]) -> tuple[Arrival, ...]:
        """Step every copy. `actions` holds one tree [L, ...] for each team; lanes that do not act are ignored."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources of the copies. Idempotent."""

    def state(self) -> State:
        """Return everything that determines the future of the lanes, given the same actions.

        With `state` and `restore` an inline run resumes exactly. By default the lanes raise NotResumable, and a
        resumed run starts new episodes.
        """
        raise NotResumable(f"{type(self).__name__} does not implement `state` and `restore`")

    def restore(self, state: State) -> None:
        """Continue from a saved state. These lanes were just built from the same config and never reset."""
        raise NotResumable(f"{type(self).__name__} does not implement `state` and `restore`")

    def render(self) -> Array:
        """Return the current frame of the first copy, uint8 [height, width, 3]; by default raise ValueError."""
        raise ValueError(
            f"{self.spec.environment} cannot be recorded: {type(self).__name__} does not implement `render`"
        )


class LanesConfig(ABC):
    """The name of an environment and its options as plain data; an actor builds the lanes.

    A subclass is a frozen dataclass that implements `build`; the other methods are optional.
    """

    @abstractmethod
    def build(self, num_copies: int) -> Lanes:
        """Make `num_copies` copies of the environment."""

    def environment_name(self) -> str:
        """Return the name of the environment in messages; recipes are also found by it."""
        return type(self).__name__

    def build_rendered(self) -> Lanes:
        """Make one copy whose `render` returns frames, for `srl record`; raise ValueError if there is none."""
        return self.build(1)

    def with_mask_key(self, key: str) -> LanesConfig:
        """Return the config of an environment whose action masks are called `key`, in observations and infos."""
        return self

    def with_global_state(self) -> LanesConfig:
        """Return the config of an environment that also shows the state of the whole game, for a central critic."""
        return self

    def can_repeat_actions(self) -> bool:
        """Return whether one decision can last several steps of the environment."""
        return False

    def with_action_repeat(self, times: int) -> LanesConfig:
        """Return the config of the environment with one decision every `times` steps; ValueError if it cannot."""
        if times == 1:
            return self
        raise ValueError(
            f"action_repeat needs a plain Gymnasium environment, and {self.environment_name()} does not run as one; "
            "use --env-arg frameskip=... for Atari games, --env-arg frame_skip=... for MuJoCo tasks"
        )

    def with_spec(self, spec: LaneSpec) -> LanesConfig:
        """Return the config completed with what a first look at one copy revealed, so that actors need not look."""
        return self

    def bind(self, context: Context) -> LanesConfig:
        """Return the config that an actor builds; one that needs services of the run takes them from `context`."""
        return self


@runtime_checkable
class ResumableEnvironment(Protocol):
    """A Gymnasium or PettingZoo environment that can be saved in the middle of an episode.

    The generator `np_random` of a Gymnasium environment is saved and restored by the adapter.
    """

    def save_state(self) -> Mapping[str, Array]:
        """Return everything that determines the rest of the episode, given the same actions."""

    def restore_state(self, state: Mapping[str, Array]) -> None:
        """Continue from a saved state. The environment was just made with the same options and reset."""
