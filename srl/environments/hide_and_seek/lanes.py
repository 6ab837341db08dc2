"""Hide-and-seek as lanes: each agent in each world is a lane, and every agent can have its own policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from srl.api.lanes import Lanes, LanesConfig, LaneSpec, TeamSpec, TimeStep, named_texts
from srl.api.spaces import MultiDiscrete
from srl.base.tree import Array, Tree
from srl.environments.factories import copy_seeds
from srl.environments.failures import count_failure, failed_lanes
from srl.environments.hide_and_seek.options import GameOptions, least
from srl.environments.hide_and_seek.physics.random_draws import RandomDraws
from srl.environments.hide_and_seek.variants import check_installed, game_options, image_options


@dataclass(frozen=True)
class HideAndSeekConfig(LanesConfig):
    """A named game, ``quadrant`` or another of :data:`.variants.VARIANTS`, and options that override its own."""

    variant: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def environment_name(self) -> str:
        return f"hide-and-seek/{self.variant}"

    def named_code(self) -> tuple[str, ...]:
        return named_texts(self.options)

    def build(self, num_copies: int) -> HideAndSeekLanes:
        check_installed(self.variant)
        options = game_options(self.variant, self.options)
        images = image_options(self.options)
        return HideAndSeekLanes(self.environment_name(), options, num_copies, images)


class HideAndSeekLanes(Lanes):
    """`num_copies` worlds in this process. An unstable world gets a new layout; only its own lanes lose their episodes.

    Each copy has its own random generator, so its episodes do not depend on the number of copies.
    """

    def __init__(
        self, name: str, options: GameOptions, num_copies: int, images: Mapping[str, Any] | None = None
    ) -> None:
        from srl.environments.hide_and_seek.rendering.renderer import Renderer
        from srl.environments.hide_and_seek.rules.game import ACTIONS, Game

        self._renderer = Renderer(**(images or {}))
        self._options, self._num = options, num_copies
        self.game = game = Game(options, num_copies)
        worlds = game.worlds
        sizes = (("hider", worlds.num_hiders, options.num_hiders), ("seeker", worlds.num_seekers, options.num_seekers))
        teams = [
            TeamSpec(
                name=f"{kind}_{index}",
                agents=(f"{kind}_{index}",),
                observation=game.observation.space,
                action=MultiDiscrete(ACTIONS),
                aligned=index < least(count),
            )
            for kind, number, count in sizes
            for index in range(number)
        ]
        self.spec = LaneSpec(name, num_copies, tuple(teams))
        # Views of the game's arrays for each agent, without copies.
        self._observations: list[Tree] = [
            {name: array[agent] for name, array in game.observation.arrays.items()} for agent in range(len(teams))
        ]
        self._ended = np.zeros(num_copies, bool)
        self._failures_in_a_row = np.zeros(num_copies, np.int64)
        self._draws = [RandomDraws(np.random.default_rng(0))] * num_copies
        self._seeds: list[int] = [0] * num_copies

    def reset(self, seed: int) -> tuple[TimeStep, ...]:
        self._seeds = list(islice(copy_seeds(seed), self._num))
        self._draws = [RandomDraws(np.random.default_rng(one)) for one in self._seeds]
        everywhere = np.ones(self._num, bool)
        self._ended = ~everywhere
        self._failures_in_a_row[:] = 0
        self.game.begin(range(self._num), self._draws)
        self.game.look()
        self.game.describe()
        reward = np.zeros((self._num, self._options.most_agents))
        return self._time_steps(reward, self._ended, self._ended, everywhere, {}, {})

    def step(self, actions: tuple[Tree, ...]) -> tuple[TimeStep, ...]:
        game, starting = self.game, self._ended
        chosen = np.stack([np.asarray(tree) for tree in actions], axis=1)  # [N, A, 5]
        failures = game.step(chosen, ~starting, self._draws)
        if failures:
            starting = self._replace(failures, starting)
        if starting.any():
            game.begin(np.flatnonzero(starting).tolist(), self._draws)
        reward, terminated = game.score(~starting)
        game.describe()
        truncated = ~starting & ~terminated & (game.steps >= self._options.horizon)
        self._ended = terminated | truncated
        statistics = game.episode_statistics() if self._ended.any() else {}
        return self._time_steps(reward, terminated, truncated, starting, statistics, failures)

    def render(self) -> Array:
        """Return a frame of the first copy, [size, size, 3] uint8."""
        return self._renderer.render(self.game, 0)

    def close(self) -> None:
        self._renderer.close()
        self.game.close()

    def _replace(self, failures: dict[int, str], starting: Array) -> Array:
        """Count the failures, expand messages into reports, and return a mask [N] of the worlds to restart."""
        broken = np.zeros(self._num, bool)
        broken[list(failures)] = True
        self._failures_in_a_row[~broken] = 0
        for world, what in failures.items():
            report = failures[world] = self._report(world, what)
            before, at_first_step = int(self._failures_in_a_row[world]), bool(self.game.steps[world] <= 1)
            self._failures_in_a_row[world] = count_failure(before, at_first_step, report)
        return starting | broken

    def _report(self, world: int, what: str) -> str:
        return (
            f"environment {self.spec.environment}, copy {world}, seed {self._seeds[world]}, "
            f"step {self.game.steps[world]}: failed and was restarted with a new layout:\n{what}"
        )

    def _time_steps(
        self,
        reward: Array,  # [N, A]
        terminated: Array,  # [N], like the rest
        truncated: Array,
        starting: Array,
        statistics: Mapping[str, Array],
        failures: Mapping[int, str],
    ) -> tuple[TimeStep, ...]:
        present = self.game.worlds.present.T  # [E, N]
        failed = failed_lanes(failures, self._num)
        time_steps: list[TimeStep] = []
        acting = ~(terminated | truncated)
        rewards = np.ascontiguousarray(reward.T, np.float32)  # [A, N]
        shared: dict[str, Array] = {name: values.astype(np.float32) for name, values in statistics.items()}
        if statistics:
            shared["length"] = self.game.steps.copy()
        for agent, observation in enumerate(self._observations):
            here = present[agent]
            time_step = TimeStep(
                observation,
                rewards[agent],
                terminated=here & terminated,
                truncated=here & truncated,
                acting=here & acting,
                first=here & starting,
                failed=failed,
                failures=() if agent else tuple(failures.values()),
            )
            if statistics:
                time_step.facts = shared | {"return": self.game.statistics.returns[:, agent].astype(np.float32)}
            time_steps.append(time_step)
        return tuple(time_steps)
