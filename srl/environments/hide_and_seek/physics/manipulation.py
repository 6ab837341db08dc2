"""How agents grab and lock objects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from srl.base.tree import Array
from srl.environments.hide_and_seek.physics.random_draws import RandomDraws
from srl.environments.hide_and_seek.physics.worlds import Worlds

REACH = 0.25
"""Maximum distance in meters from an agent's center to the cuboid of an object it can grab or lock."""


class Manipulation:
    """The objects that agents hold and lock, given what they perceived after the previous step."""

    def __init__(self, worlds: Worlds, in_sequence: bool) -> None:
        """`in_sequence`: whether a box can be locked only after all boxes before it."""
        self._worlds, self._in_sequence = worlds, in_sequence
        num, agents, objects = worlds.num, worlds.num_agents, worlds.num_objects
        self.held = np.full((num, agents), -1)  # [N, A]: index among the objects, ramps first; -1: none
        self.locked = np.zeros((num, objects), bool)
        self.owner = np.zeros((num, objects), np.int64)
        """The agent that last locked an object; at first agent 0, so that hiders have a veto over untouched objects."""
        self._is_hider = np.arange(agents) < worlds.num_hiders
        self._lockable = np.ones(objects, bool)
        self._lockable[: worlds.num_ramps] = worlds.options.lock_ramps

    def clear(self, world: int) -> None:
        self.held[world], self.locked[world], self.owner[world] = -1, False, 0

    def act(self, pull: Array, press: Array, sees: Array, reach: Array, draws: Sequence[RandomDraws]) -> None:
        """Apply `pull` and `press` [N, A], given the objects that agents see and their distances `reach` [N, A, O]."""
        near = sees & (reach <= REACH)
        some = bool(near.any())
        if some or (self.held >= 0).any():
            self._grab(near & pull[:, :, None], reach)
        if some:
            self._lock(press, near, draws)

    def _grab(self, within: Array, reach: Array) -> None:
        """Let each agent hold the nearest object that is `within` reach; `reach` are distances (both [N, A, O])."""
        nearest = np.where(within, reach, np.inf).argmin(axis=2)
        chosen = np.where(within.any(axis=2), nearest, -1)
        for world, agent in zip(*np.nonzero(chosen != self.held), strict=True):
            self._worlds.grab(world, agent, int(chosen[world, agent]))
        self.held = chosen

    def _lock(self, press: Array, near: Array, draws: Sequence[RandomDraws]) -> None:
        """Lock an object if an agent that is `near` [N, A, O] presses [N, A]; unlock it if one of the owner's team does
        not. Draw the owner of a newly locked object from the agents that pressed."""
        same_team = self._is_hider[:, None] == self._is_hider[self.owner][:, None, :]
        pressed = press[:, :, None]
        unlock = (near & ~pressed & same_team).any(axis=1)  # [N, O]
        votes = near & pressed
        lock = votes.any(axis=1) & ~unlock & self._lockable
        if self._in_sequence:
            lock &= self._all_before_locked()
        for world, thing in zip(*np.nonzero(lock & ~self.locked), strict=True):
            voters = np.flatnonzero(votes[world, :, thing])
            self.owner[world, thing] = voters[draws[world].below(len(voters))]
            self._worlds.lock(world, thing, True)
        for world, thing in zip(*np.nonzero(unlock & self.locked), strict=True):
            self._worlds.lock(world, thing, False)
        self.locked = (self.locked & ~unlock) | lock

    def _all_before_locked(self) -> Array:
        """Return, for each object [N, O], whether all boxes with a smaller index are locked."""
        allowed = np.ones_like(self.locked)
        ramps = self._worlds.num_ramps
        allowed[:, ramps + 1 :] = np.logical_and.accumulate(self.locked[:, ramps:-1], axis=1)
        return allowed
