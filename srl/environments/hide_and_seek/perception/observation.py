"""Observations of all agents in all worlds, as arrays [A, N, ...].

Observations contain all entities, whether or not the agent sees them. Masks mark the entities that the agent sees
(`mask_*_obs`, for the policy) and those that exist (`mask_*_obs_spoof`, for a critic that sees everything).
"""

from __future__ import annotations

import math

import numpy as np

from srl.api.spaces import Box, Dict
from srl.base.tree import Array
from srl.environments.hide_and_seek.options import GameOptions, most
from srl.environments.hide_and_seek.perception.rays import NUM_RAYS
from srl.environments.hide_and_seek.perception.shapes import compiled
from srl.environments.hide_and_seek.physics.manipulation import Manipulation
from srl.environments.hide_and_seek.physics.worlds import Worlds

SELF = 10  # x y z yaw, vx vy vz wz, hider, preparation
MOVING = 9  # x y z, cos and sin of yaw, vx vy vz wz
SIZES = 3  # along x, y and z
LOCKS = 3  # by the agent, by its team, by any agent


class Observation:
    """The observation arrays. Each kind of entity has at least one row, so networks always have the same inputs."""

    def __init__(self, options: GameOptions, worlds: Worlds) -> None:
        self._worlds, self._options = worlds, options
        self._sized = options.has_elongated
        self._others = max(1, worlds.num_agents - 1 if options.max_others is None else options.max_others)
        boxes, ramps = max(1, worlds.num_boxes), max(1, worlds.num_ramps)
        self._locks = MOVING + SIZES * self._sized  # column of the locks
        box_width, ramp_width = self._locks + LOCKS, self._locks + LOCKS * options.lock_ramps
        shapes: dict[str, tuple[int, ...]] = {
            "observation_self": (SELF,),
            "agent_qpos_qvel": (self._others, SELF),
            "box_obs": (boxes, box_width),
            "ramp_obs": (ramps, ramp_width),
            "lidar": (NUM_RAYS, 1),
        }
        masks = {"aa": self._others, "ab": boxes, "ar": ramps}
        if options.num_food:
            shapes["food_obs"] = (options.num_food, 4)
            masks["af"] = options.num_food
        if options.task == "blueprint":
            shapes["construction_site_obs"] = (most(options.num_sites), 15)
            masks["acs"] = most(options.num_sites)
        agents, num = worlds.num_agents, worlds.num
        self.arrays: dict[str, Array] = {
            name: np.zeros((agents, num, *shape), np.float32) for name, shape in shapes.items()
        }
        for kind, size in masks.items():
            self.arrays[f"mask_{kind}_obs"] = np.zeros((agents, num, size), np.int8)
            self.arrays[f"mask_{kind}_obs_spoof"] = np.zeros((agents, num, size), np.int8)
        self.space = Dict({name: _space(name, array) for name, array in sorted(self.arrays.items())})
        # [N, A, others]: which other agent each row describes, counting backwards from the observer; -1: none.
        self._order = np.full((num, agents, self._others), -1)

    @property
    def lidar(self) -> Array:
        return self.arrays["lidar"]

    def begin(self, world: int, sites: Array) -> None:
        """Write the parts that do not change during an episode."""
        arrays, worlds = self.arrays, self._worlds
        agents, ramps = worlds.num_agents, worlds.num_ramps
        here = np.flatnonzero(worlds.present[world, :agents])
        order = self._order[world]
        order[:] = -1
        for place, agent in enumerate(here):
            order[agent, : len(here) - 1] = [here[place - 1 - row] for row in range(len(here) - 1)]
        arrays["mask_aa_obs_spoof"][:, world] = order >= 0
        there = worlds.present[world, agents:]
        arrays["mask_ar_obs_spoof"][:, world, :ramps] = there[:ramps]
        arrays["mask_ab_obs_spoof"][:, world, : worlds.num_boxes] = there[ramps:]
        if "mask_af_obs_spoof" in arrays:
            arrays["mask_af_obs_spoof"][:, world] = 1
        if "construction_site_obs" in arrays:
            rows = arrays["construction_site_obs"][:, world]
            rows[:], arrays["mask_acs_obs"][:, world] = 0, 0
            rows[:, : len(sites)] = sites.reshape(len(sites), 15)
            arrays["mask_acs_obs"][:, world, : len(sites)] = 1
            arrays["mask_acs_obs_spoof"][:, world] = arrays["mask_acs_obs"][:, world]

    def update(self, sees: Array, manipulation: Manipulation, preparation: Array) -> None:
        """Write the parts that change, except for food; `lidar` is written by the ray-casting kernel."""
        worlds, arrays = self._worlds, self.arrays
        agents, ramps = worlds.num_agents, worlds.num_ramps
        describe_agents(
            worlds.num_hiders, worlds.q, worlds.v, worlds.present, sees, self._order, preparation,
            arrays["observation_self"], arrays["agent_qpos_qvel"], arrays["mask_aa_obs"],
        )  # fmt: skip
        for first, number, sized, locks, rows, mask in (
            (agents, ramps, False, self._locks * self._options.lock_ramps, "ramp_obs", "mask_ar_obs"),
            (agents + ramps, worlds.num_boxes, self._sized, self._locks, "box_obs", "mask_ab_obs"),
        ):
            describe_objects(
                first, number, worlds.num_hiders, sized, locks, worlds.q, worlds.v, worlds.half, worlds.present,
                sees, manipulation.locked, manipulation.owner, arrays[rows], arrays[mask],
            )  # fmt: skip

    def update_food(self, sees: Array, places: Array, health: Array) -> None:
        if "food_obs" in self.arrays:
            rows = self.arrays["food_obs"]
            rows[..., :3], rows[..., 3] = places, health
            self.arrays["mask_af_obs"][:] = sees.transpose(1, 0, 2)


def _space(name: str, array: Array) -> Box:
    if array.dtype == np.int8:
        return Box(array.shape[2:], "int8", 0.0, 1.0)
    return Box(array.shape[2:])


@compiled
def describe_agents(
    num_hiders: int, q: Array, v: Array, present: Array, sees: Array, order: Array, preparation: Array,
    oneself: Array, others: Array, mask: Array,
) -> None:  # fmt: skip
    """Write the rows that describe agents, with zeros for absent ones.

    Inputs: positions q and velocities v [N, E, 4], present [N, E], sees [N, A, E], order [N, A, K] (the agent in each
    row, -1: none), preparation [N]. Outputs: oneself [A, N, 10], others [A, N, K, 10], mask [A, N, K].
    """
    for n in range(len(q)):
        for a in range(len(oneself)):
            here = present[n, a]
            for i in range(4):
                oneself[a, n, i] = q[n, a, i] if here else 0.0
                oneself[a, n, 4 + i] = v[n, a, i] if here else 0.0
            oneself[a, n, 8] = 1.0 if here and a < num_hiders else 0.0
            oneself[a, n, 9] = preparation[n] if here else 0.0
        for a in range(len(oneself)):
            for row in range(others.shape[2]):
                other = order[n, a, row]
                mask[a, n, row] = other >= 0 and sees[n, a, other]
                for i in range(SELF):
                    others[a, n, row, i] = oneself[other, n, i] if other >= 0 else 0.0


@compiled
def describe_objects(
    first: int, number: int, num_hiders: int, sized: bool, locks: int, q: Array, v: Array, half: Array, present: Array,
    sees: Array, locked: Array, owner: Array, rows: Array, mask: Array,
) -> None:  # fmt: skip
    """Write the rows that describe the `number` entities from `first` on, with zeros for absent ones.

    Inputs: as in `describe_agents`, half-sizes half [N, E, 3], locked and owner [N, O]. Outputs: rows [A, N, K, width],
    mask [A, N, K]. Rows contain sizes if `sized`; `locks` is the first lock column, 0 if there are none.
    """
    num_agents = len(rows)
    for n in range(len(q)):
        for k in range(number):
            e = first + k
            here = present[n, e]
            cosine, sine = (math.cos(q[n, e, 3]), math.sin(q[n, e, 3])) if here else (0.0, 0.0)
            for a in range(num_agents):
                for i in range(3):
                    rows[a, n, k, i] = q[n, e, i]
                rows[a, n, k, 3], rows[a, n, k, 4] = cosine, sine
                for i in range(4):
                    rows[a, n, k, 5 + i] = v[n, e, i]
                mask[a, n, k] = sees[n, a, e]
                if sized:
                    for i in range(SIZES):
                        rows[a, n, k, MOVING + i] = 2.0 * half[n, e, i]
                if locks:
                    fast, by = locked[n, e - num_agents], owner[n, e - num_agents]
                    rows[a, n, k, locks] = fast and by == a
                    rows[a, n, k, locks + 1] = fast and (by < num_hiders) == (a < num_hiders)
                    rows[a, n, k, locks + 2] = fast
