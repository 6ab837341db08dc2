"""Hide-and-seek rewards: for hiding, seeking, leaving the bounds, and food."""

from __future__ import annotations

import numpy as np

from srl.base.tree import Array
from srl.environments.hide_and_seek.options import GameOptions
from srl.environments.hide_and_seek.perception.shapes import compiled
from srl.environments.hide_and_seek.physics.worlds import Worlds

OUT_OF_BOUNDS = -10.0
FOOD_HEIGHT = 0.05  # m


def hide_and_seek(kind: str, sight: Array, present: Array, num_hiders: int) -> Array:
    """Return rewards [N, A]: +1 for unseen hiders and for seekers that see one, else -1; `kind` says whether this
    applies to agents, team means or whole teams. `sight[n, i, j]` is whether agent i sees agent j in world n."""
    caught = sight[:, num_hiders:, :num_hiders]  # [N, seekers, hiders]
    hiders, seekers = present[:, :num_hiders], present[:, num_hiders:]
    if kind == "joint_zero_sum":
        seen = seeing = np.asarray(caught.any(axis=(1, 2)))[:, None]
    else:
        seen, seeing = np.asarray(caught.any(axis=1)), np.asarray(caught.any(axis=2))
    reward = np.empty(present.shape)
    reward[:, :num_hiders], reward[:, num_hiders:] = 1.0 - 2.0 * seen, 2.0 * seeing - 1.0
    if kind == "joint_mean":
        reward[:, :num_hiders] = _team_mean(reward[:, :num_hiders], hiders)
        reward[:, num_hiders:] = _team_mean(reward[:, num_hiders:], seekers)
    return np.where(present, reward, 0.0)


def _team_mean(values: Array, present: Array) -> Array:
    """Return the mean [N, 1] over the agents that are present."""
    mean: Array = (values * present).sum(axis=1, keepdims=True) / np.maximum(present.sum(axis=1, keepdims=True), 1)
    return mean


def punish_leaving(reward: Array, options: GameOptions, worlds: Worlds) -> None:
    """Set the reward [N, A] of agents out of bounds to OUT_OF_BOUNDS; with `penalize_objects_out`, also that of all
    agents in a world where an object is out of bounds."""
    if options.bounds is None:
        return
    out = np.zeros(worlds.present.shape, bool)  # [N, E]
    if not _find_outside(worlds.q, worlds.half, worlds.present, np.array(options.bounds) * options.scale, out):
        return
    agents = worlds.num_agents
    reward[out[:, :agents]] = OUT_OF_BOUNDS
    if options.penalize_objects_out:
        reward[out[:, agents:].any(axis=1)] = OUT_OF_BOUNDS


@compiled
def _find_outside(q: Array, half: Array, present: Array, bounds: Array, out: Array) -> bool:
    """Mark in `out` [N, E] the entities centered outside `bounds` (x0, y0, x1, y1); return whether there are any."""
    some = False
    for n in range(len(q)):
        for e in range(q.shape[1]):
            x, y = q[n, e, 0] + half[n, e, 0], q[n, e, 1] + half[n, e, 1]
            if present[n, e] and not (bounds[0] <= x <= bounds[2] and bounds[1] <= y <= bounds[3]):
                out[n, e] = some = True
    return some


class Food:
    """Food that hiders eat when they are near it and not seen; once eaten up, it respawns after some steps."""

    def __init__(self, options: GameOptions, worlds: Worlds) -> None:
        self._options, self._worlds = options, worlds
        self.places = np.zeros((worlds.num, options.num_food, 3))
        self.health = np.zeros((worlds.num, options.num_food))
        self.eaten = np.zeros(worlds.num)
        self._empty_for = np.zeros((worlds.num, options.num_food), np.int64)

    def begin(self, world: int, places: Array) -> None:
        self.places[world, :, :2], self.places[world, :, 2] = places + 0.05, FOOD_HEIGHT
        self.health[world], self.eaten[world], self._empty_for[world] = self._options.food_health, 0, 0

    def eat(self, saw: Array, allowed: Array) -> Array:
        """Let hiders eat nearby food that they `saw` [N, A, F], in `allowed` [N] worlds; return rewards [N, A]."""
        hiders = self._worlds.num_hiders
        offset = self._worlds.q[:, :hiders, None, :3] - self.places[:, None]
        near = (offset * offset).sum(axis=3) < self._options.food_radius**2
        eating = near & saw[:, :hiders] & allowed[:, None, None] & (self.health > 0)[:, None]  # [N, H, F]
        share = np.minimum(1.0, self.health / np.maximum(eating.sum(axis=1), 1))  # Agents share the last bite.
        bites = eating * share[:, None]
        taken = bites.sum(axis=1)  # [N, F]
        self.health = np.maximum(self.health - taken, 0.0)
        self.eaten += taken.sum(axis=1)
        self._respawn()
        earned = bites.sum(axis=2)  # [N, H]
        present = self._worlds.present[:, :hiders]
        if self._options.reward != "selfish":
            earned = _team_mean(earned, present) * present
        reward = np.zeros((len(earned), self._worlds.num_agents))
        reward[:, :hiders] = earned * self._options.food_reward
        return reward

    def _respawn(self) -> None:
        empty = self.health <= 0
        self._empty_for = np.where(empty, self._empty_for + 1, 0)
        self.health[self._empty_for > self._options.food_respawn] = self._options.food_health
