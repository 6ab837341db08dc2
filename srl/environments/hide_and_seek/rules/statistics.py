"""Episode statistics: those of the original, and others that identify the six stages."""

from __future__ import annotations

import numpy as np

from srl.base.tree import Array
from srl.environments.hide_and_seek.physics.manipulation import Manipulation
from srl.environments.hide_and_seek.physics.worlds import Worlds
from srl.environments.hide_and_seek.rules.stages import stages

HIGH = 0.4  # m: an agent whose feet are above this is on top of something
UNDERFOOT = 0.2  # m: an object nearer than this is under the agent


class Statistics:
    """Statistics of the current episode in every world."""

    def __init__(self, worlds: Worlds, manipulation: Manipulation) -> None:
        self._worlds, self._manipulation = worlds, manipulation
        self._options = worlds.options
        num, agents, objects = worlds.num, worlds.num_agents, worlds.num_objects
        self.returns = np.zeros((num, agents))
        self._start = np.zeros((num, objects, 3))
        self._steps, self._main = np.zeros(num), np.zeros(num)
        self._seen, self._high, self._surfed = np.zeros(num), np.zeros(num), np.zeros(num)
        self._in_sight = np.zeros((num, worlds.num_seekers, worlds.num_hiders))  # consecutive steps, for each pair
        self._longest, self._sights, self._towards = np.zeros(num), np.zeros(num), np.zeros(num)
        self._counts = (
            self.returns, self._steps, self._main, self._seen, self._high, self._surfed, self._longest, self._sights,
            self._towards,
        )  # fmt: skip
        self._snapshot: dict[str, Array] = {name: np.zeros(num) for name in self._object_statistics()}
        self._snapshot["box_lock_share"] = np.zeros(num)
        self._snapshot["ramp_distance"] = np.zeros(num)
        # The first observation after preparation comes one step after its end.
        self._prepared_at = self._options.num_preparation + 1 if self._options.num_preparation else -1

    def begin(self, world: int) -> None:
        self._start[world] = self._worlds.q[world, self._worlds.num_agents :, :3]
        for array in self._counts:
            array[world] = 0
        for array in self._snapshot.values():
            array[world] = 0

    def add(self, reward: Array, steps: Array, sight: Array, reach: Array, moved: Array) -> None:
        """Add a step of the worlds that `moved` [N]; `steps` [N] is the number of steps so far in each."""
        worlds, hiders, agents = self._worlds, self._worlds.num_hiders, self._worlds.num_agents
        self.returns += reward * moved[:, None]
        self._steps += moved
        main = moved & (steps > self._options.num_preparation)
        self._main += main
        seen = sight[:, hiders:, :hiders] & main[:, None, None]  # [N, S, H]
        self._seen += seen.any(axis=(1, 2))
        self._in_sight = (self._in_sight + 1) * seen
        if seen.any():
            self._follow(seen)
        feet = worlds.q[:, :agents, 2]
        self._high += main & (feet[:, hiders:] > HIGH).any(axis=1)
        if worlds.num_objects and (feet > HIGH).any():
            held = self._manipulation.held
            near = np.take_along_axis(reach, np.maximum(held, 0)[:, :, None], axis=2)[:, :, 0] <= UNDERFOOT
            below = np.take_along_axis(worlds.q[:, agents:, 2], np.maximum(held, 0), axis=1) < feet - HIGH / 2
            self._surfed += moved & ((held >= 0) & near & below & (feet > HIGH)).any(axis=1)
        prepared = moved & (steps == self._prepared_at)
        if prepared.any():
            self._take_snapshot(prepared)

    def _follow(self, seen: Array) -> None:
        """Update how long seekers keep hiders in sight, `seen` [N, S, H], and how fast they approach them."""
        np.maximum(self._longest, self._in_sight.max(axis=(1, 2)), out=self._longest)
        worlds, hiders, agents = self._worlds, self._worlds.num_hiders, self._worlds.num_agents
        way = worlds.q[:, None, :hiders, :2] - worlds.q[:, hiders:agents, None, :2]
        far = np.maximum(np.sqrt((way * way).sum(axis=3)), 1e-6)
        speed = (way * worlds.v[:, hiders:agents, None, :2]).sum(axis=3) / far
        self._sights += seen.sum(axis=(1, 2))
        self._towards += (speed * seen).sum(axis=(1, 2))

    def _object_statistics(self) -> dict[str, Array]:
        """Return the greatest distance of any box and any ramp from its starting position, and how many are locked."""
        worlds, ramps = self._worlds, self._worlds.num_ramps
        offset = worlds.q[:, worlds.num_agents :, :3] - self._start
        far = np.sqrt((offset * offset).sum(axis=2))
        locked = self._manipulation.locked
        return {
            "max_box_move": far[:, ramps:].max(axis=1, initial=0.0),
            "num_box_lock": locked[:, ramps:].sum(axis=1).astype(np.float64),
            "max_ramp_move": far[:, :ramps].max(axis=1, initial=0.0),
            "num_ramp_lock": locked[:, :ramps].sum(axis=1).astype(np.float64),
        }

    def _take_snapshot(self, prepared: Array) -> None:
        worlds, ramps, agents = self._worlds, self._worlds.num_ramps, self._worlds.num_agents
        for name, values in self._object_statistics().items():
            self._snapshot[name][prepared] = values[prepared]
        boxes = np.maximum(worlds.present[:, agents + ramps :].sum(axis=1), 1)
        locked = self._manipulation.locked[:, ramps:].sum(axis=1)
        self._snapshot["box_lock_share"][prepared] = (locked / boxes)[prepared]
        if ramps:
            part = slice(agents, agents + ramps)
            center = worlds.q[:, part, :2] + worlds.half[:, part, :2] - self._options.floor / 2
            self._snapshot["ramp_distance"][prepared] = np.sqrt((center**2).sum(axis=2)).mean(axis=1)[prepared]

    def of_episodes(self, eaten: Array) -> dict[str, Array]:
        """Return the statistics, [N] each, of the episodes that end now."""
        objects = self._object_statistics()
        if self._options.task != "hide-and-seek":
            return {name: objects[name] for name in ("max_box_move", "num_box_lock")}
        hiders = self._worlds.num_hiders
        main = np.maximum(self._main, 1)
        found = objects | {f"{name}_prep": values.copy() for name, values in self._snapshot.items()}
        present = self._worlds.present[:, : self._worlds.num_agents]
        for name, part in (("hider_return", slice(0, hiders)), ("seeker_return", slice(hiders, None))):
            found[name] = self.returns[:, part].sum(axis=1) / np.maximum(present[:, part].sum(axis=1), 1)
        found |= {
            "seen_share": self._seen / main,
            "never_seen": (self._seen == 0).astype(np.float64),
            "longest_sight_share": self._longest / main,
            # Zero if no hider is seen for long enough to measure a speed.
            "approach_speed": np.where(self._sights >= 0.1 * main, self._towards / np.maximum(self._sights, 1), 0.0),
            "seeker_high_share": self._high / main,
            "surf_share": self._surfed / np.maximum(self._steps, 1),
        }
        found |= stages(found, self._options)
        return found | ({"food_eaten": eaten.copy()} if self._options.num_food else {})
