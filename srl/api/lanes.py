"""The environment contract: arrays over lanes. A lane is one agent of one copy of an environment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from srl.api.control import OptionValue
from srl.api.simulator import SimulatorConfig
from srl.api.spaces import Space
from srl.base.config import texts_in
from srl.base.state import NotResumable, State
from srl.base.tree import Array, Tree

if TYPE_CHECKING:
    from srl.api.worker import Context

LONGEST_EPISODE = 30_000
"""Default step limit per episode in evaluations and videos, because some never end. Above Atari's limit of 27,000."""

PLAIN_TEXTS = (
    *("camera_name", "desc", "map_name", "obs_method", "obs_type", "observation_type"),
    *("hiders_start", "reward", "scenario", "seekers_start", "task", "view"),
)
"""Options of known environments that choose among names."""


def named_texts(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the options of an environment that are text, except for choices among names. Constructors open such texts
    as files (MuJoCo's `xml_file`) or run them as programs (`vzd_path` of EnvPool's VizDoom)."""
    found = []
    for name, value in options.items():
        texts = [text for text in texts_in(value) if text]
        if texts and not (name in PLAIN_TEXTS and all(map(_is_name, texts))):
            found.append(f"environment option {name}={texts[0]}")
    return tuple(found)


def _is_name(text: str) -> bool:
    return text.isascii() and text.replace("-", "").replace("_", "").isalnum()


@dataclass(frozen=True)
class TeamSpec:
    """Agents of one kind, whose lanes share arrays: ``len(agents) * num_copies`` lanes, ordered by agent, then copy."""

    name: str
    agents: tuple[str, ...]
    observation: Space
    action: Space
    aligned: bool = True
    """All lanes act at every step (except after the end of an episode) and share one block. Otherwise they act at
    different steps (turn-based games, agents that die early) and have one block each."""
    mask_key: str = "action_mask"  # key of the action mask in a Dict observation, if there is one


@dataclass(frozen=True)
class LaneSpec:
    """Name (for messages), number of copies and teams of an environment."""

    environment: str
    num_copies: int
    teams: tuple[TeamSpec, ...]

    def num_lanes(self, team: int) -> int:
        return len(self.teams[team].agents) * self.num_copies


@dataclass(slots=True)
class TimeStep:
    """Observations, rewards and episode ends of a team, one entry per lane.

    The arrays may be views, valid until the next call of `step` or `reset`. `reward`, `terminated` and `truncated`
    belong to the previous action; they are zero after a reset.

    Environments reset by the *next-step* rule. The time step that ends an episode (`terminated` or `truncated`) carries
    its last observation. No action follows: `acting` is false, the lane's action is ignored, and the next time step
    carries the first observation of the next episode with reward 0. The last observation thus has its own row: its
    value bootstraps a truncation, and nothing leaks into the next episode. `acting` is also false for agents that are
    dead or wait for their turn; their rewards are summed and delivered when they act again or their episode ends.
    """

    observation: Tree  # [L, ...]
    reward: Array  # [L] float32
    terminated: Array  # [L] bool
    truncated: Array  # [L] bool
    acting: Array  # [L] bool: the lane needs an action now
    first: Array  # [L] bool: the observation is the first of an episode
    failed: Array | None = None
    """[L] bool, or None: the lane's environment failed (it raised, or returned NaN) and was replaced. The observation
    is the first of a new episode; the failed step is not recorded."""
    failures: tuple[str, ...] = ()  # one report per failed environment: traceback, seed and step
    facts: Mapping[str, Array] = field(default_factory=dict)
    """Statistics of the episodes that ended here, each [L]. `return` and `length` replace the actor's own values (an
    adapter that clips rewards knows the true return); a `return` of NaN excludes the episode (a lost life that counts
    as an end). Others become metrics of these names, means over the episodes of an update; NaN is ignored."""


class Lanes(ABC):
    """Copies of one environment that step together, with one time step and one tree of actions per team."""

    spec: LaneSpec

    @abstractmethod
    def reset(self, seed: int) -> tuple[TimeStep, ...]:
        """Start a new episode in every copy. Copies get different seeds, derived from `seed`."""

    @abstractmethod
    def step(self, actions: tuple[Tree, ...]) -> tuple[TimeStep, ...]:
        """Step every copy. `actions` has one tree [L, ...] per team; entries of lanes that do not act are ignored."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources. Idempotent."""

    def set_option(self, name: str, value: OptionValue) -> None:
        """Set an attribute of every copy, also of those that replace failed ones: `env.NAME` of `srl change` and of
        callbacks. Raises AttributeError if the environment has no such attribute. Default: there are none."""
        raise AttributeError(f"{self.spec.environment} has no attributes that can change during a run")

    def state(self) -> State:
        """Return everything that determines the future, given the same actions, so that an inline run resumes exactly.
        After NotResumable, the default, a resumed run starts new episodes."""
        raise NotResumable(f"{type(self).__name__} does not implement `state` and `restore`")

    def restore(self, state: State) -> None:
        """Continue from a saved state, in lanes just built from the same config and never reset."""
        raise NotResumable(f"{type(self).__name__} does not implement `state` and `restore`")

    def render(self) -> Array:
        """Return the first copy's current frame, uint8 [height, width, 3]. Default: raises ValueError."""
        raise ValueError(f"{self.spec.environment} cannot be recorded: {type(self).__name__} has no `render`")


@dataclass(frozen=True)
class GoalFunctions:
    """Functions of a goal environment, in the convention of Gymnasium-Robotics. Observations are a Dict with
    `observation`, `achieved_goal` and `desired_goal`; the reward of a step and whether it terminates follow from the
    goals in the observation after it. Each is called with an achieved goal, a desired goal and an empty info."""

    reward: Callable[[Any, Any, Any], Any]
    terminated: Callable[[Any, Any, Any], Any] | None = None


class LanesConfig(ABC):
    """An environment's name and options: a frozen dataclass from which actors build lanes. Only `build` is required."""

    @abstractmethod
    def build(self, num_copies: int) -> Lanes:
        """Build `num_copies` copies of the environment."""

    def environment_name(self) -> str:
        """Return the environment's name, for messages and for finding a recipe."""
        return type(self).__name__

    def named_code(self) -> tuple[str, ...]:
        """Return the names of code in this config that is not part of SRL, Gymnasium, PettingZoo, EnvPool, ALE or
        MiniGrid, and the options that could name a file or a program (:func:`named_texts`). A config in a file that is
        not trusted must have none."""
        return (self.environment_name(),)

    def build_rendered(self) -> Lanes:
        """Build one copy whose `render` returns frames. Raises ValueError if that is not possible."""
        return self.build(1)

    def goal_functions(self) -> GoalFunctions:
        """Return the functions of a goal environment, which are pure. Raises ValueError if there are none."""
        raise ValueError(f"{self.environment_name()} does not run as a Gymnasium environment with `compute_reward`")

    def episode_limit(self) -> int | None:
        """Return the largest number of decisions in an episode. None, the default: it is not known."""
        return None

    def with_mask_key(self, key: str) -> LanesConfig:
        """Return the config with the name `key` for action masks, in observations and infos."""
        return self

    def with_log_info(self, names: tuple[str, ...]) -> LanesConfig:
        """Return the config with scalars of infos, by name, as statistics of episodes. Raises ValueError if the
        environment has no infos."""
        if names:
            raise ValueError(f"{self.environment_name()} reports its own statistics and has no infos for --log-info")
        return self

    def with_global_state(self) -> LanesConfig:
        """Return the config with the state of the whole game in observations, for a centralized critic."""
        return self

    def with_agent_ids(self) -> LanesConfig:
        """Return the config with each agent's number in its observation, if there are several agents."""
        return self

    def with_joint_seats(self) -> LanesConfig:
        """Return the config in which a lane carries all seats of a game, for algorithms that learn from the sequence of
        all moves."""
        return self

    def with_separate_seats(self) -> LanesConfig:
        """Return the config in which each seat of a game has lanes of its own, so that different policies can play
        against each other."""
        return self

    def with_states(self) -> LanesConfig:
        """Return the config with joint seats and the simulator's states in observations, under the key `state`. Raises
        ValueError if there is no simulator."""
        self.simulator()
        return self

    def simulator(self) -> SimulatorConfig:
        """Return the rules of the environment, for algorithms that search with them. Raises ValueError if there are
        none, or if they are not deterministic."""
        raise ValueError(
            f"{self.environment_name()} has no simulator, which alphazero searches with; it needs a game as "
            "game:connect-four, game:openspiel:NAME, game:pettingzoo:NAME or your own Simulator. Without one, use "
            "muzero, ppo or dqn"
        )

    def can_repeat_actions(self) -> bool:
        """Return whether one decision can last several steps of the environment."""
        return False

    def with_action_repeat(self, times: int) -> LanesConfig:
        """Return the config with one decision every `times` steps. Raises ValueError if that is not possible."""
        if times == 1:
            return self
        raise ValueError(
            f"action_repeat needs a plain Gymnasium environment, and {self.environment_name()} does not run as one; "
            "use --env-arg frameskip=... for Atari games, --env-arg frame_skip=... for MuJoCo tasks"
        )

    def can_shrink_images(self) -> bool:
        """Return whether images in observations can be made smaller."""
        return False

    def with_images(self, size: int | None, grayscale: bool) -> LanesConfig:
        """Return the config with images of `size` x `size` pixels, or of their own size, and without colors if
        `grayscale`. Raises ValueError if that is not possible."""
        if size is None and not grayscale:
            return self
        raise ValueError(
            f"image_size and grayscale need a plain Gymnasium environment, and {self.environment_name()} does not run "
            "as one; use its own options (--env-arg img_height=... for Atari games) or a wrapper"
        )

    def with_spec(self, spec: LaneSpec) -> LanesConfig:
        """Return the config with what probing one copy found, so that actors need not probe again."""
        return self

    def bind(self, context: Context) -> LanesConfig:
        """Return the config with the run's services that it needs, from an actor's `context`; self-play uses the
        parameter store."""
        return self


@runtime_checkable
class ResumableEnvironment(Protocol):
    """A Gymnasium or PettingZoo environment that can be saved during an episode. The adapter saves `np_random`."""

    def save_state(self) -> Mapping[str, Array]:
        """Return everything that determines the rest of the episode, given the same actions."""

    def restore_state(self, state: Mapping[str, Array]) -> None:
        """Continue from a saved state, in an environment just made with the same options and reset."""
