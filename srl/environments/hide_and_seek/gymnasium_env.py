"""The single-agent transfer tasks as Gymnasium environments."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np

from srl.base.errors import nearest
from srl.base.tree import Array
from srl.environments.hide_and_seek.single_world import SingleWorld
from srl.environments.hide_and_seek.variants import VARIANTS

TASKS = tuple(name for name, options in VARIANTS.items() if options.most_agents == 1)


class TransferTask(gymnasium.Env):  # type: ignore[misc]
    """One of the single-agent `TASKS`, with the options of :class:`.options.GameOptions`."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 13}

    def __init__(self, variant: str = "lock-and-return", render_mode: str | None = None, **options: Any) -> None:
        if variant not in TASKS:
            raise ValueError(f"{variant!r} is not a task with one agent{nearest(variant, TASKS)}")
        self.render_mode = render_mode
        self._world = SingleWorld(variant, render_mode, options)
        self.observation_space = self._world.observation_space()
        self.action_space = self._world.action_space()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._world.reset(seed)
        return self._world.observe("hider_0"), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward, terminated, truncated, statistics = self._world.step(np.asarray(action).reshape(1, 5))
        return self._world.observe("hider_0"), float(reward[0]), terminated, truncated, dict(statistics)

    def render(self) -> Array | None:
        return self._world.render()

    def close(self) -> None:
        self._world.close()


def register() -> None:
    """Register the tasks with Gymnasium as ``hide-and-seek/lock-and-return-v0`` and so on."""
    for name in TASKS:
        gymnasium.register(f"hide-and-seek/{name}-v0", f"{__name__}:TransferTask", kwargs={"variant": name})


register()  # on import, as by `gymnasium.make("srl.environments.hide_and_seek.gymnasium_env:hide-and-seek/shelter-v0")`
