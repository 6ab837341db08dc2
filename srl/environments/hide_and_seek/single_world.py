"""A single world, stepped and reset by its caller; the PettingZoo and Gymnasium environments wrap it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces as gym_spaces

from srl.api.spaces import Box
from srl.base.tree import Array
from srl.environments.failures import EnvironmentBroken
from srl.environments.hide_and_seek.physics.random_draws import RandomDraws
from srl.environments.hide_and_seek.variants import check_installed, game_options, image_options

ALL_MOVE = np.ones(1, bool)


class SingleWorld:
    def __init__(self, variant: str, render_mode: str | None, options: Mapping[str, Any]) -> None:
        """`options` are game and rendering options."""
        check_installed(variant)
        from srl.environments.hide_and_seek.rendering.renderer import Renderer
        from srl.environments.hide_and_seek.rules.game import ACTIONS, Game

        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode must be 'rgb_array' or None, not {render_mode!r}")
        renderer = Renderer(**image_options(options))
        self._renderer = renderer if render_mode is not None else None
        self._actions = ACTIONS
        self.game = game = Game(game_options(variant, options), 1)
        worlds = game.worlds
        hiders, seekers = range(worlds.num_hiders), range(worlds.num_seekers)
        self.names = (*(f"hider_{index}" for index in hiders), *(f"seeker_{index}" for index in seekers))
        self._generator: np.random.Generator | None = None
        self._draws: list[RandomDraws] = []

    def observation_space(self) -> gym_spaces.Dict:
        found: dict[str, gym_spaces.Space[Any]] = {}
        for name, item in self.game.observation.space.items.items():
            assert isinstance(item, Box)
            found[name] = gym_spaces.Box(item.low, item.high, item.shape, np.dtype(item.dtype))
        return gym_spaces.Dict(found)

    def action_space(self) -> gym_spaces.MultiDiscrete:
        return gym_spaces.MultiDiscrete(self._actions)

    def present(self) -> list[str]:
        return [name for name, here in zip(self.names, self.game.worlds.present[0], strict=False) if here]

    def reset(self, seed: int | None) -> None:
        """Start an episode. Without a seed, continue the current random sequence."""
        if seed is not None or self._generator is None:
            self._generator = np.random.default_rng(seed)
            self._draws = [RandomDraws(self._generator)]
        self.game.begin([0], self._draws)
        self.game.look()
        self.game.describe()

    def step(self, actions: Array) -> tuple[Array, bool, bool, dict[str, float]]:
        """Step with `actions` [A, 5]; return reward [A], terminated, truncated, and, at the end, the statistics."""
        if not self._draws:
            raise RuntimeError("call reset before the first step")
        if ((actions < 0) | (actions >= self._actions)).any():
            raise ValueError(f"actions must be integers from 0 to below {self._actions}, not {actions.tolist()}")
        failures = self.game.step(actions[None], ALL_MOVE, self._draws)
        if failures:
            raise EnvironmentBroken(failures[0])
        reward, terminated = self.game.score(ALL_MOVE)
        self.game.describe()
        truncated = not terminated[0] and int(self.game.steps[0]) >= self.game.options.horizon
        statistics: dict[str, float] = {}
        if terminated[0] or truncated:
            statistics = {name: float(values[0]) for name, values in self.game.episode_statistics().items()}
        return reward[0].astype(np.float32), bool(terminated[0]), truncated, statistics

    def observe(self, agent: str) -> dict[str, Array]:
        index = self.names.index(agent)
        return {name: array[index, 0].copy() for name, array in self.game.observation.arrays.items()}

    def render(self) -> Array | None:
        """Return a frame [size, size, 3] uint8, or None without a render mode."""
        return None if self._renderer is None else self._renderer.render(self.game, 0)

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
        self.game.close()
