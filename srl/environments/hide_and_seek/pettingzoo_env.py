"""Hide-and-seek as a PettingZoo parallel environment."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces as gym_spaces

from srl.base.tree import Array
from srl.environments.hide_and_seek.single_world import SingleWorld
from srl.environments.hide_and_seek.variants import PETTINGZOO_IS_MISSING, VARIANTS

try:
    from pettingzoo import ParallelEnv
except ModuleNotFoundError as error:
    raise ImportError(PETTINGZOO_IS_MISSING) from error


class HideAndSeek(ParallelEnv):  # type: ignore[misc]
    """One world of the game `variant`, with the options of :class:`.options.GameOptions`.

    Agents are `hider_0`, ..., `seeker_0`, .... With random team sizes, absent agents are not in `agents`. An episode is
    truncated at the horizon; the infos of its last step contain its statistics.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "hide_and_seek_v0",
        "render_modes": ["rgb_array"],
        "render_fps": 13,  # an environment step is 0.075 s
        "is_parallelizable": True,
    }

    def __init__(self, variant: str = "quadrant", render_mode: str | None = None, **options: Any) -> None:
        self.render_mode = render_mode
        self._world = SingleWorld(variant, render_mode, options)
        self.possible_agents = list(self._world.names)
        self.agents: list[str] = []

    @functools.cache  # noqa: B019  PettingZoo expects the same space at every call.
    def observation_space(self, agent: str) -> gym_spaces.Space[Any]:
        return self._world.observation_space()

    @functools.cache  # noqa: B019
    def action_space(self, agent: str) -> gym_spaces.Space[Any]:
        return self._world.action_space()

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        self._world.reset(seed)
        self.agents = self._world.present()
        return {agent: self._world.observe(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        agents = self.agents
        for agent in agents:
            if agent not in actions:
                raise ValueError(f"no action for agent {agent!r}; expected actions for {agents}")
        chosen = np.full((len(self.possible_agents), 5), 0, np.int64)
        for agent in agents:
            chosen[self._world.names.index(agent)] = actions[agent]
        reward, terminated, truncated, statistics = self._world.step(chosen)
        observations = {agent: self._world.observe(agent) for agent in agents}
        rewards = {agent: float(reward[self._world.names.index(agent)]) for agent in agents}
        if terminated or truncated:
            self.agents = []
        return (
            observations,
            rewards,
            dict.fromkeys(agents, terminated),
            dict.fromkeys(agents, truncated),
            {agent: dict(statistics) for agent in agents},
        )

    def render(self) -> Array | None:
        return self._world.render()

    def close(self) -> None:
        self._world.close()


def register() -> None:
    """Register the games with PettingZoo: ``pettingzoo.make("parallel", "hide-and-seek/quadrant-v0")``."""
    import pettingzoo

    if hasattr(pettingzoo, "register"):  # since 1.26
        for name in VARIANTS:
            entry = f"{__name__}:HideAndSeek"
            pettingzoo.register("parallel", f"hide-and-seek/{name}-v0", entry, kwargs={"variant": name})


register()  # once, when this module is imported
