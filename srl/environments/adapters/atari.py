"""Atari games as lanes. ALE's vector environment runs the games and preprocesses their images in C++."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from srl.api.lanes import Lanes, LanesConfig
from srl.base.errors import nearest
from srl.base.tree import Array
from srl.environments.adapters.autoreset import FACTS, zeroed
from srl.environments.adapters.vector import VectorLanes

ENTRY_POINT = "ale_py.env:AtariEnv"
NOOP, FIRE = 0, 1


@dataclass(frozen=True)
class AtariConfig(LanesConfig):
    """An Atari game with the standard preprocessing, which is the same for all of the game's ids.

    The id determines only two options, as registered by ALE: `repeat_action_probability` (0.25 for ``ALE/Pong-v5`` and
    ``Pong-v0``, 0 for ``PongNoFrameskip-v4`` and the other v4 ids) and `full_action_space`. Observations are
    [stack_num, img_height, img_width] uint8, the newest frame last.
    """

    name: str
    game: str
    """ROM name, such as ms_pacman."""
    repeat_action_probability: float = 0.0
    """Probability that the previous action is repeated instead (sticky actions)."""
    full_action_space: bool = False
    frameskip: int = 4
    maxpool: bool = True
    """Whether each image is the maximum of the last two frames, which removes flicker."""
    img_height: int = 84
    img_width: int = 84
    grayscale: bool = True
    stack_num: int = 4
    noop_max: int = 30
    """Maximum number of no-op frames at the start of an episode."""
    use_fire_reset: bool = True
    """Whether to press fire at the start of games that wait for it."""
    episodic_life: bool = False
    """Whether losing a life ends the episode; the game continues in the next one. Returns are those of whole games."""
    reward_clipping: bool = True
    """Whether rewards are clipped to -1, 0 or 1; the reported return is the true score."""
    max_num_frames_per_episode: int = 108_000
    num_threads: int = 1

    def environment_name(self) -> str:
        return self.name

    def named_code(self) -> tuple[str, ...]:
        return () if re.fullmatch(r"[a-z0-9_]+", self.game) else (self.game,)

    def build(self, num_copies: int) -> VectorLanes:
        return VectorLanes(self.name, lambda: AtariVector(self, num_copies))

    def build_rendered(self) -> Lanes:
        """Make one copy that renders in color. ALE's vector environment cannot render, so Gymnasium's wrappers do the
        same preprocessing."""
        from srl.environments.adapters.gymnasium import GymnasiumLanes

        return GymnasiumLanes(self.name, self._make_rendered, 1)

    def _make_rendered(self) -> Any:
        from ale_py.env import AtariEnv
        from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

        game = AtariEnv(
            game=self.game,
            frameskip=1,
            repeat_action_probability=self.repeat_action_probability,
            full_action_space=self.full_action_space,
            max_num_frames_per_episode=self.max_num_frames_per_episode,
            render_mode="rgb_array",
        )
        prepared = AtariPreprocessing(
            game,
            noop_max=self.noop_max,
            frame_skip=self.frameskip,
            screen_size=(self.img_width, self.img_height),
            grayscale_obs=self.grayscale,
        )
        fires = self.use_fire_reset and game.get_action_meanings()[FIRE:][:1] == ["FIRE"]
        started = FireFirst(prepared, self.episodic_life) if fires else prepared
        return FrameStackObservation(started, self.stack_num, padding_type="zero")


def config_of(name: str, kwargs: Mapping[str, Any]) -> AtariConfig | None:
    """Return the config for a Gymnasium id, or None if it is not an Atari game with image observations."""
    if name not in gymnasium.registry:
        if importlib.util.find_spec("ale_py") is None:
            if name.startswith("ALE/") or "NoFrameskip" in name:
                raise ValueError(f'environment {name} needs the package ale_py; pip install "srl-rl[atari]"')
            return None
        importlib.import_module("ale_py")  # Importing it registers its games.
    spec = gymnasium.registry.get(name) or gymnasium.registry.get(f"ALE/{name}")
    if spec is None or spec.entry_point != ENTRY_POINT or kwargs.get("obs_type") == "ram":
        return None
    fields = [field.name for field in dataclasses.fields(AtariConfig) if field.name not in ("name", "game")]
    for option in kwargs:
        if option not in fields:
            raise ValueError(f"Atari environment {name} has no option {option!r}{nearest(option, fields)}")
    registered = {key: spec.kwargs[key] for key in ("repeat_action_probability", "full_action_space")}
    return AtariConfig(spec.id, str(spec.kwargs["game"]), **{**registered, **kwargs})


class FireFirst(gymnasium.Wrapper):  # type: ignore[misc]
    """A wrapper that presses fire at the start of a game and, with `every_life`, after each lost life."""

    def __init__(self, environment: Any, every_life: bool = False) -> None:
        super().__init__(environment)
        self._every_life = every_life
        self._lives = 0
        self._lost = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.env.reset(seed=seed, options=options)
        observation, _, _, _, info = self.env.step(FIRE)
        self._lives, self._lost = info["lives"], False
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(FIRE if self._lost else action)
        self._lost = self._every_life and info["lives"] < self._lives
        self._lives = info["lives"]
        return observation, reward, terminated, truncated, info


class AtariVector:
    """ALE's vector environment, plus true scores when rewards are clipped, and optionally one episode per life.

    ALE's own `episodic_life` restarts the whole game after a lost life, so a policy never sees a second life.
    Here the game continues: the step after the loss ignores the policy's action (and presses fire if the game waits
    for it).
    """

    def __init__(self, config: AtariConfig, num_copies: int) -> None:
        from ale_py.vector_env import AtariVectorEnv

        options = dataclasses.asdict(config)
        for option in ("name", "reward_clipping", "episodic_life"):
            del options[option]
        self.environment = AtariVectorEnv(
            **options, num_envs=num_copies, reward_clipping=False, life_loss_info=config.episodic_life
        )
        self.num_envs = num_copies
        self.single_observation_space = self.environment.single_observation_space
        self.single_action_space = self.environment.single_action_space
        self._config = config
        meanings = [action.name for action in self.environment.ale.get_action_set()]
        self._start_action = FIRE if config.use_fire_reset and meanings[FIRE:][:1] == ["FIRE"] else NOOP
        self._clear()

    def _clear(self) -> None:
        self._score = np.zeros(self.num_envs, np.float64)
        self._steps = np.zeros(self.num_envs, np.int64)
        self._ended = np.zeros(self.num_envs, bool)
        self._frames = np.zeros(self.num_envs, np.int64)  # in the game so far

    def reset(self, seed: int) -> tuple[Array, dict[str, Any]]:
        self._clear()
        observation, info = self.environment.reset(seed=seed)
        self._frames = info["episode_frame_number"]
        return observation, {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        starting, any_starting = self._ended, bool(self._ended.any())
        if any_starting:
            actions = np.where(starting, self._start_action, actions)
        observation, reward, terminated, truncated, info = self.environment.step(actions)
        frames = info["episode_frame_number"]
        if any_starting:
            new = starting & (frames < self._frames)  # new games, as opposed to games that continue after a lost life
            self._score[new], self._steps[new] = 0, 0
        self._frames = frames
        self._score += reward
        self._steps += 1
        if any_starting:
            self._steps[starting] -= 1
            reward, terminated, truncated = zeroed(starting, reward, terminated, truncated)
        self._ended = terminated | truncated
        statistics: dict[str, Any] = {}
        if self._ended.any():
            life = terminated & ~truncated & (info["lives"] > 0) if self._config.episodic_life else False
            statistics[FACTS] = {
                "return": np.where(life, np.nan, self._score).astype(np.float32),
                "length": self._steps.copy(),
            }
        reward = np.sign(reward) if self._config.reward_clipping else reward
        return observation, reward.astype(np.float32), terminated, truncated, statistics

    def close(self) -> None:
        self.environment.close()
