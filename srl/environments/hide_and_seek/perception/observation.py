"""What each agent is told: arrays over all agents and worlds, [A, N, ...].

Entities are described whether an agent sees them or not. The masks say what it sees (`mask_*_obs`: the policy's) and
what there is at all (`mask_*_obs_spoof`: a critic's that knows everything).
"""

from __future__ import annotations

import numpy as np

from srl.api.spaces import Box, Dict
from srl.base.tree import Array
from srl.environments.hide_and_seek.options import GameOptions, most
from srl.environments.hide_and_seek.perception.describing import (
    LOCKS,
    MOVING,
    SELF,
    SIZES,
    describe_agents,
    describe_objects,
)
from srl.environments.hide_and_seek.perception.rays import NUM_RAYS
from srl.environments.hide_and_seek.physics.manipulation import Hands
from srl.environments.hide_and_seek.physics.worlds import Worlds
from srl.environments.hide_and_seek.rules.rewards import Food


class Observation:
    """Owns the arrays. Each kind of entity has at least one row, so that a network has the same inputs everywhere."""

    def __init__(self, options: GameOptions, worlds: Worlds) -> None:
        self._worlds, self._options = worlds, options
        self._sized = options.has_elongated
        self._others = max(1, worlds.num_agents - 1 if options.max_others is None else options.max_others)
        boxes, ramps = max(1, worlds.num_boxes), max(1, worlds.num_ramps)
        self._locks = MOVING + SIZES * self._sized  # the column at which they begin
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
        # Whom each agent is shown in which row: those before it, going backwards. [N, A, others], -1: nobody.
        self._order = np.full((num, agents, self._others), -1)

    @property
    def lidar(self) -> Array:
        return self.arrays["lidar"]

    def begin(self, world: int, sites: Array) -> None:
        """What does not change in an episode."""
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

    def update(self, sees: Array, sees_food: Array, hands: Hands, food: Food, preparation: Array) -> None:
        """Write what has changed. `lidar` is written by the kernel that casts the rays."""
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
                sees, hands.locked, hands.owner, arrays[rows], arrays[mask],
            )  # fmt: skip
        if "food_obs" in arrays:
            arrays["food_obs"][..., :3], arrays["food_obs"][..., 3] = food.places, food.health
            arrays["mask_af_obs"][:] = sees_food.transpose(1, 0, 2)


def _space(name: str, array: Array) -> Box:
    if array.dtype == np.int8:
        return Box(array.shape[2:], "int8", 0.0, 1.0)
    return Box(array.shape[2:])
