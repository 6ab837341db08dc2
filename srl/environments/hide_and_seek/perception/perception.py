"""What all agents perceive at one moment, as arrays over the worlds."""

from __future__ import annotations

import numpy as np

from srl.base.tree import Array
from srl.environments.hide_and_seek.perception.rays import perceive
from srl.environments.hide_and_seek.physics.worlds import Worlds


class Perception:
    """Owns the arrays; `update` overwrites them."""

    def __init__(self, worlds: Worlds, num_food: int, lidar: Array) -> None:
        num, agents, objects = worlds.num, worlds.num_agents, worlds.num_objects
        self._worlds, self._lidar = worlds, lidar
        self.sees = np.zeros((num, agents, agents + objects), bool)
        self.sees_food = np.zeros((num, agents, num_food), bool)
        self.reach = np.zeros((num, agents, objects))  # m, to each object

    @property
    def agents(self) -> Array:
        """[N, A, A]: who sees whom."""
        return self.sees[:, :, : self._worlds.num_agents]

    @property
    def objects(self) -> Array:
        """[N, A, O]: who sees which object."""
        return self.sees[:, :, self._worlds.num_agents :]

    def update(self, food: Array) -> None:
        w = self._worlds
        perceive(
            w.num_agents, w.num_ramps, w.q, w.half, w.present, w.walls, w.num_walls, w.pillar, food, self._lidar,
            self.sees, self.sees_food, self.reach,
        )  # fmt: skip
