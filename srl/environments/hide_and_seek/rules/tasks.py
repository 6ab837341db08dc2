"""The transfer tasks, in which a single agent locks boxes, builds a blueprint, or protects a cylinder."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from srl.base.tree import Array
from srl.environments.hide_and_seek.options import CELL
from srl.environments.hide_and_seek.perception.rays import count_exposed
from srl.environments.hide_and_seek.physics.layout import SITE_SIZE, Layout
from srl.environments.hide_and_seek.physics.manipulation import Manipulation
from srl.environments.hide_and_seek.physics.worlds import Worlds

LOCK_REWARD, APPROACH, SUCCESS = 5.0, 0.5, 1.0
HOME = 0.1  # m: an agent nearer than this has returned
CLOSE = 0.1  # m: a box nearer than this is on its site
SMOOTHNESS, SITE_COST, SITE_REWARD = 1.5, 0.05, 3.0
RAY_COST, RAYS_PER_SIDE = 0.001, 25
SITE_HEIGHT = 0.25
CORNERS = np.array([(x, y) for x in (-1, 1) for y in (-1, 1)]) * SITE_SIZE / 2  # [4, 2], of a site and of a cube


class Task(Protocol):
    """A task: the agent's reward in each world after a step, and the end of the episode."""

    def begin(self, world: int, layout: Layout) -> None:
        """Start a new episode in one world."""

    def score(self) -> tuple[Array, Array]:
        """Return reward [N] and terminated [N]."""


class Locking:
    """Lock all boxes in order; then, with `home`, return to the start."""

    def __init__(self, worlds: Worlds, manipulation: Manipulation, home: bool) -> None:
        self._worlds, self._manipulation, self._home = worlds, manipulation, home
        self._start = np.zeros((worlds.num, 2))
        self._locked = np.zeros(worlds.num, np.int64)
        self._distance = np.zeros(worlds.num)

    def begin(self, world: int, layout: Layout) -> None:
        self._start[world] = layout.agents[0]
        self._locked[world] = 0
        self._distance[world] = self._distances()[world]

    def score(self) -> tuple[Array, Array]:
        locked = self._manipulation.locked[:, self._worlds.num_ramps :].sum(axis=1)
        gained = locked - self._locked
        distance = self._distances()
        # Approaching a box is rewarded until it is locked; unlocking it takes the reward back.
        approached = self._distance * (gained >= 0) - distance * (gained <= 0)
        reward = LOCK_REWARD * gained + APPROACH * approached
        done = locked == self._worlds.present[:, self._worlds.num_agents + self._worlds.num_ramps :].sum(axis=1)
        if self._home:
            done &= self._way_home() <= HOME
        self._locked, self._distance = locked, distance
        return reward + SUCCESS * done, np.zeros(len(done), bool)

    def _way_home(self) -> Array:
        return _length(self._worlds.q[:, 0, :2] - self._start)

    def _distances(self) -> Array:
        """Return the agent's distance [N] to the first unlocked box. Once all are locked, return the distance to its
        starting point, or 0 if it need not return (`home` is false)."""
        worlds, ramps = self._worlds, self._worlds.num_ramps
        free = ~self._manipulation.locked[:, ramps:] & worlds.present[:, worlds.num_agents + ramps :]
        first = worlds.num_agents + ramps + free.argmax(axis=1)
        index = np.arange(worlds.num)
        offset = worlds.q[index, first] + np.pad(worlds.half[index, first], ((0, 0), (0, 1)))
        offset[:, :3] -= worlds.q[:, 0, :3] + worlds.half[:, 0]
        rest = self._way_home() if self._home else np.zeros(worlds.num)
        return np.where(free.any(axis=1), _length(offset[:, :2]), rest)


class Blueprint:
    """Put a cube on every site."""

    def __init__(self, worlds: Worlds) -> None:
        self._worlds = worlds
        self._sites: list[Array] = [np.zeros((0, 5, 3))] * worlds.num  # center and four corners of each

    def begin(self, world: int, layout: Layout) -> None:
        self._sites[world] = site_points(layout.sites)

    def score(self) -> tuple[Array, Array]:
        worlds = self._worlds
        boxes = slice(worlds.num_agents + worlds.num_ramps, None)
        center = worlds.q[:, boxes, :3] + worlds.half[:, boxes]  # [N, B, 3]
        cosine, sine = np.cos(worlds.q[:, boxes, 3, None]), np.sin(worlds.q[:, boxes, 3, None])
        half = worlds.half[:, boxes, None, :2] * np.sign(CORNERS)  # [N, B, 4, 2]
        corner = np.repeat(center[:, :, None], 4, axis=2)
        corner[..., 0] += cosine * half[..., 0] - sine * half[..., 1]
        corner[..., 1] += sine * half[..., 0] + cosine * half[..., 1]
        reward, done = np.zeros(worlds.num), np.zeros(worlds.num, bool)
        for world, sites in enumerate(self._sites):
            there = worlds.present[world, boxes]
            far = _length(sites[:, 1:].reshape(-1, 1, 3) - corner[world, there].reshape(1, -1, 3))  # [corners, corners]
            weight = np.exp(-SMOOTHNESS * far)
            reward[world] = -SITE_COST * ((far * weight).sum(axis=1) / weight.sum(axis=1)).mean()
            middle = _length(sites[:, :1] - center[world, there])  # [sites, B]
            done[world] = bool((middle.min(axis=1) <= CLOSE).all() and (far.min(axis=1) <= CLOSE).all())
            reward[world] += SITE_REWARD * len(sites) * done[world]
        return reward, done


class Shelter:
    """Shield a cylinder from rays that come from the outer walls."""

    def __init__(self, worlds: Worlds) -> None:
        self._worlds = worlds
        near, far = 1.01 * CELL, worlds.options.floor - 1.01 * CELL
        along = np.linspace(near, far, RAYS_PER_SIDE)
        sides = [np.stack((along, np.full_like(along, edge)), axis=1) for edge in (near, far)]
        origins = np.concatenate([*sides, *(side[:, ::-1] for side in sides)])
        self._origins = np.pad(origins, ((0, 0), (0, 1)))  # [100, 3], on the floor
        self.exposed = np.zeros(worlds.num, np.int64)

    def begin(self, world: int, layout: Layout) -> None:
        """Do nothing: the task has no state."""

    def score(self) -> tuple[Array, Array]:
        w = self._worlds
        count_exposed(
            w.num_agents, w.num_ramps, w.q, w.half, w.present, w.walls, w.num_walls, w.pillar, self._origins,
            self.exposed,
        )  # fmt: skip
        return -RAY_COST * self.exposed, np.zeros(w.num, bool)


def make_task(name: str, worlds: Worlds, manipulation: Manipulation) -> Task | None:
    """Return the named task, or None for hide-and-seek itself."""
    if name == "blueprint":
        return Blueprint(worlds)
    if name == "shelter":
        return Shelter(worlds)
    return None if name == "hide-and-seek" else Locking(worlds, manipulation, home=name == "lock-and-return")


def site_points(sites: Array) -> Array:
    """Return the center and corners [S, 5, 3] of sites [S, 2]."""
    points = np.full((len(sites), 5, 3), SITE_HEIGHT)
    points[:, :, :2] = sites[:, None]
    points[:, 1:, :2] += CORNERS
    return points


def _length(vectors: Array) -> Array:
    length: Array = np.sqrt((vectors * vectors).sum(axis=-1))
    return length
