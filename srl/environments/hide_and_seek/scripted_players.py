"""Players without a network: random ones, and ones that drag and lock objects and chase each other."""

from __future__ import annotations

import numpy as np

from srl.base.tree import Array
from srl.environments.hide_and_seek.rules.game import ACTIONS, Game

STILL = 5  # the middle of eleven forces
HELD_STEPS = 8


class RandomPlayers:
    """Players with uniformly random actions, each held for several steps so that agents get somewhere."""

    def __init__(self, game: Game, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._shape = (game.worlds.num, game.worlds.num_agents)
        self._actions = np.zeros((*self._shape, 5), np.int64)

    def act(self) -> Array:
        """Return actions [N, A, 5]."""
        fresh = self._random.integers(0, ACTIONS, (*self._shape, 5))
        change = self._random.random(self._shape) < 1 / HELD_STEPS
        self._actions = np.where(change[:, :, None], fresh, self._actions)
        return self._actions


class BusyPlayers:
    """Players with random plans of about twenty steps: drag an object, or chase an agent (hiders: flee from it).

    They know all positions: their purpose is to exercise the physics, not to play by the rules.
    """

    def __init__(self, game: Game, seed: int, fetchers: float = 0.75) -> None:
        self._game, self._fetchers = game, fetchers
        self._random = np.random.default_rng(seed)
        num, agents = game.worlds.num, game.worlds.num_agents
        self._target = np.zeros((num, agents), np.int64)  # an object, or an agent to chase
        self._fetches = np.zeros((num, agents), bool)
        self._goal = np.zeros((num, agents, 2))
        self._locks = np.zeros((num, agents), bool)
        self._left = np.zeros((num, agents), np.int64)  # steps left in the plan

    def act(self) -> Array:
        """Return actions [N, A, 5]."""
        self._plan()
        worlds = self._game.worlds
        agents = worlds.num_agents
        center = worlds.q[:, :, :2] + worlds.half[:, :, :2]
        mine = center[:, :agents]
        entity = np.where(self._fetches, agents + self._target, self._target)
        target = np.take_along_axis(center, entity[:, :, None], axis=1)
        holding = self._game.manipulation.held >= 0
        aim = np.where((holding & self._fetches)[:, :, None], self._goal, target) - mine
        away = (np.arange(agents) < worlds.num_hiders) & ~self._fetches  # Hiders that do not fetch run away.
        aim = np.where(away[:, :, None], -aim, aim)
        distance = np.maximum(np.sqrt((aim * aim).sum(axis=2, keepdims=True)), 1e-6)
        force = np.clip(aim / distance * np.minimum(1.0, distance * 2) * 5, -5, 5)
        # Turn toward the target: an agent faces along its own -y axis.
        look = np.arctan2(target[..., 1] - mine[..., 1], target[..., 0] - mine[..., 0]) + np.pi / 2
        turn = np.remainder(look - worlds.q[:, :agents, 3] + np.pi, 2 * np.pi) - np.pi
        action = np.zeros((worlds.num, agents, 5), np.int64)
        action[..., :2] = np.rint(force) + STILL
        action[..., 2] = np.clip(np.rint(turn / 0.135), -5, 5) + STILL
        action[..., 3] = self._fetches
        action[..., 4] = self._locks & (self._left < 4)
        return action

    def _plan(self) -> None:
        worlds, random = self._game.worlds, self._random
        shape = self._left.shape
        self._left -= 1
        new = self._left < 0
        if not new.any():
            return
        objects = worlds.present[:, worlds.num_agents :].sum(axis=1)[:, None]
        fetches = (random.random(shape) < self._fetchers) & (objects > 0)
        thing = (random.random(shape) * objects).astype(np.int64)
        agent = random.integers(0, worlds.num_agents, shape)
        self._fetches = np.where(new, fetches, self._fetches)
        self._target = np.where(new, np.where(fetches, thing, agent), self._target)
        goal = random.uniform(0.5, self._game.options.floor - 0.5, (*shape, 2))
        self._goal = np.where(new[:, :, None], goal, self._goal)
        self._locks = np.where(new, random.random(shape) < 0.5, self._locks)
        self._left = np.where(new, random.integers(10, 35, shape), self._left)
