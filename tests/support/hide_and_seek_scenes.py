"""Hand-made situations: one world, everything where a test wants it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from srl.environments.hide_and_seek.options import GameOptions
from srl.environments.hide_and_seek.physics.layout import BOX_HALF_SIZES, CUBE, Layout
from srl.environments.hide_and_seek.physics.random_draws import RandomDraws
from srl.environments.hide_and_seek.rules.game import Game
from srl.environments.hide_and_seek.variants import VARIANTS

STILL = (5, 5, 5, 0, 0)
AGENT, RAMP = 0.15, 0.25
LEFT, RIGHT, UP, DOWN = -np.pi / 2, np.pi / 2, np.pi, 0.0
"""Yaws with which an agent looks along -x, +x, +y, -y."""
MOVES = np.ones(1, bool)


class Stage:
    """Positions are centers. Hiders come first; `yaws` are the agents'."""

    def __init__(
        self,
        hiders: Sequence[tuple[float, float]],
        seekers: Sequence[tuple[float, float]] = (),
        boxes: Sequence[tuple[float, float]] = (),
        ramps: Sequence[tuple[float, float]] = (),
        kinds: Sequence[int] | None = None,
        walls: Sequence[tuple[float, float, float, float, float]] = (),
        yaws: Sequence[float] | None = None,
        food: Sequence[tuple[float, float]] = (),
        sites: Sequence[tuple[float, float]] = (),
        cylinder: tuple[float, float, float] | None = None,
        variant: str = "full",
        preparing: bool = False,
        **options: Any,
    ) -> None:
        changed = {
            "num_hiders": len(hiders),
            "num_seekers": len(seekers),
            "num_boxes": len(boxes),
            "num_elongated": int(kinds is not None),
            "num_ramps": len(ramps),
            "num_food": len(food),
            **({} if preparing else {"preparation": 0.0}),
            **options,
        }
        self.options: GameOptions = dataclasses.replace(VARIANTS[variant], **changed)
        self.game = Game(self.options, 1)
        self.draws = [RandomDraws(np.random.default_rng(0))]
        box_kinds = np.array([CUBE] * len(boxes) if kinds is None else kinds, np.int64)
        self.layout = Layout(
            walls=np.array(walls, np.float64).reshape(-1, 5),
            num_outer=0,
            num_hiders=len(hiders),
            agents=points([*hiders, *seekers]) - AGENT,
            box_kinds=box_kinds,
            boxes=points(boxes) - BOX_HALF_SIZES[box_kinds, :2],
            ramps=points(ramps) - RAMP,
            food=points(food) - 0.05,
            sites=points(sites),
            cylinder=cylinder,
        )
        self.game.arrange(0, self.layout)
        if yaws is not None:
            self.put(yaws=yaws)
        self.game.look()
        self.game.describe()

    def put(self, entity: int = 0, height: float | None = None, yaws: Sequence[float] = ()) -> None:
        """Lift an entity, or turn agents, and look again."""
        worlds = self.game.worlds
        scene = worlds._scene(0)
        if height is not None:
            scene.qpos[4 * entity + 2] = height
        for agent, yaw in enumerate(yaws):
            scene.qpos[4 * agent + 3] = yaw
        worlds._gather(0)
        self.game.look()
        self.game.describe()

    def step(self, *actions: Sequence[int]) -> np.ndarray:
        """Take one step and return the rewards of the agents. Agents that are not mentioned do not act."""
        chosen = np.array([*actions, *[STILL] * (self.game.worlds.num_agents - len(actions))])
        failures = self.game.step(chosen[None], MOVES, self.draws)
        assert failures == {}
        reward, self.terminated = self.game.score(MOVES)
        self.game.describe()
        return reward[0]

    def steps(self, number: int, *actions: Sequence[int]) -> np.ndarray:
        for _ in range(number):
            reward = self.step(*actions)
        return reward

    def center(self, entity: int) -> np.ndarray:
        worlds = self.game.worlds
        return worlds.q[0, entity, :3] + worlds.half[0, entity]

    def place(self, entity: int) -> np.ndarray:
        return self.game.worlds.q[0, entity].copy()

    def sees(self, agent: int, entity: int) -> bool:
        return bool(self.game.perception.sees[0, agent, entity])

    @property
    def locked(self) -> list[bool]:
        return self.game.manipulation.locked[0].tolist()

    @property
    def held(self) -> list[int]:
        return self.game.manipulation.held[0].tolist()


def points(places: Sequence[tuple[float, float]]) -> np.ndarray:
    return np.array(places, np.float64).reshape(-1, 2)
