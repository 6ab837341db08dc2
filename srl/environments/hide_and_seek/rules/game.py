"""Hide-and-seek in many worlds at once, and the order of events in a step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from srl.base.tree import Array
from srl.environments.hide_and_seek.options import GameOptions
from srl.environments.hide_and_seek.perception.observation import Observation
from srl.environments.hide_and_seek.perception.rays import Perception
from srl.environments.hide_and_seek.physics.layout import Layout, draw_layout
from srl.environments.hide_and_seek.physics.manipulation import Manipulation
from srl.environments.hide_and_seek.physics.random_draws import RandomDraws
from srl.environments.hide_and_seek.physics.worlds import Worlds
from srl.environments.hide_and_seek.rules.rewards import Food, hide_and_seek, punish_leaving
from srl.environments.hide_and_seek.rules.statistics import Statistics
from srl.environments.hide_and_seek.rules.tasks import make_task, site_points

NUM_FORCES = 11
FORCES = np.linspace(-0.9, 0.9, NUM_FORCES)
ACTIONS = (NUM_FORCES, NUM_FORCES, NUM_FORCES, 2, 2)
"""Numbers of choices: force along x, force along y, torque, pull, lock. Axes are the world's, not the agent's."""


class Game:
    """`num` worlds. The caller decides when episodes start and end."""

    def __init__(self, options: GameOptions, num: int) -> None:
        self.options = options
        self.worlds = worlds = Worlds(options, num)
        self.manipulation = Manipulation(worlds, in_sequence=options.task == "sequential-lock")
        self.food = Food(options, worlds)
        self.observation = Observation(options, worlds)
        self.perception = Perception(worlds, options.num_food, self.observation.lidar)
        self.statistics = Statistics(worlds, self.manipulation)
        self._task = make_task(options.task, worlds, self.manipulation)
        self._seekers = np.arange(worlds.num_agents) >= worlds.num_hiders
        self._prepared_after = options.preparation * options.horizon + 1e-5
        self.steps = np.zeros(num, np.int64)  # done in each world

    def begin(self, which: Iterable[int], draws: Sequence[RandomDraws]) -> None:
        """Start episodes with random layouts in the worlds `which`; `draws` has one random source per world."""
        for world in which:
            self.arrange(world, draw_layout(self.options, draws[world]))

    def arrange(self, world: int, layout: Layout) -> None:
        """Start an episode with the given layout."""
        self.worlds.arrange(world, layout)
        self.manipulation.clear(world)
        self.food.begin(world, layout.food)
        self.observation.begin(world, site_points(layout.sites))
        self.statistics.begin(world)
        self.steps[world] = 0
        if self._task is not None:
            self._task.begin(world, layout)

    def step(self, actions: Array, moving: Array, draws: Sequence[RandomDraws]) -> dict[int, str]:
        """Advance the worlds that are `moving` [N] with `actions` [N, A, 5]; return error messages by world."""
        controls = FORCES[actions[:, :, :3]]
        pull, press = actions[:, :, 3] > 0, actions[:, :, 4] > 0
        idle = self._seekers & (self.steps < self.options.num_preparation)[:, None]  # [N, A]
        if idle.any():
            controls[idle] = 0.0
            pull, press = pull & ~idle, press & ~idle
        sees = self.perception.objects & moving[:, None, None]
        self.manipulation.act(pull, press, sees, self.perception.reach, draws)
        failures = self.worlds.step(controls, moving)
        self.steps += moving
        return failures

    def score(self, moved: Array) -> tuple[Array, Array]:
        """Update perception and statistics; return reward [N, A] and terminated [N] for worlds that `moved` [N].

        Worlds that start an episode are also updated; their reward is 0.
        """
        edible = self._edible()
        self.perception.update(self.food.places)
        if self._task is not None:
            earned, terminated = self._task.score()
            reward = np.repeat(earned[:, None], self.worlds.num_agents, axis=1)
        else:
            reward, terminated = self._score_hiding(edible, moved), np.zeros(self.worlds.num, bool)
        reward[~moved] = 0.0
        self.statistics.add(reward, self.steps, self.perception.agents, self.perception.reach, moved)
        return reward, terminated & moved

    def _score_hiding(self, edible: Array, moved: Array) -> Array:
        options, worlds = self.options, self.worlds
        present = worlds.present[:, : worlds.num_agents]
        reward = hide_and_seek(options.reward, self.perception.agents, present, worlds.num_hiders)
        preparing = self.steps <= options.num_preparation
        punish_leaving(reward, options, worlds)
        reward[preparing] = 0.0
        if options.num_food:
            reward += self.food.eat(edible, moved & ~preparing)  # Food counts even on top of a penalty.
        return reward

    def _edible(self) -> Array:
        """Return which food each agent last saw, [N, A, F]; none where a hider was seen, unless `eat_when_caught`."""
        saw, hiders = self.perception.sees_food, self.worlds.num_hiders
        if not self.options.num_food or self.options.eat_when_caught:
            return saw.copy()
        caught = np.asarray(self.perception.agents[:, hiders:, :hiders].any(axis=(1, 2)))
        return saw & ~caught[:, None, None]

    def look(self) -> None:
        """Update perception after new layouts, without a step."""
        self.perception.update(self.food.places)

    def describe(self) -> None:
        """Update the observations."""
        share = self.steps / self._prepared_after if self.options.preparation else np.zeros(len(self.steps))
        self.observation.update(self.perception.sees, self.manipulation, np.minimum(share, 1.0))
        self.observation.update_food(self.perception.sees_food, self.food.places, self.food.health)

    def episode_statistics(self) -> dict[str, Array]:
        return self.statistics.of_episodes(self.food.eaten)

    def close(self) -> None:
        self.worlds.close()
