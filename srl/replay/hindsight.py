"""Hindsight: drawn transitions whose desired goal is replaced by one that their episode achieved later."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from srl.api.dataflow import HindsightGoals, Transitions
from srl.base.tree import Array, Tree, from_leaves
from srl.replay.goals import ACHIEVED, DESIRED, GoalRewards
from srl.replay.kernels import draw_goals, follow_steps, sum_rewards
from srl.replay.ring import BlockRing
from srl.replay.storage import as_words
from srl.replay.transitions import TransitionBuffers
from srl.replay.units import OBSERVATION

NEVER = np.zeros((0, 0), bool)


class Hindsight:
    """Relabels transitions after they are drawn. The memory keeps goals and rewards as they were recorded.

    The rewards of all n steps of a transition are computed for its new goal. So is the termination, if the environment
    can say when a goal terminates; otherwise a transition terminates where it was recorded to.
    """

    def __init__(self, goals: HindsightGoals, unit: Transitions, ring: BlockRing, rewards: GoalRewards) -> None:
        self._goals, self._unit, self._ring, self._rewards = goals, unit, ring, rewards
        self._achieved = _below(ring, ACHIEVED)
        self._desired = _below(ring, DESIRED)
        if not self._achieved or self._achieved.keys() != self._desired.keys():
            raise ValueError(
                f"hindsight needs {ACHIEVED!r} and {DESIRED!r}, with the same parts, in observations; found "
                f"{', '.join(ring.stores)}"
            )

    def relabel(self, random: Array, units: Array, buffers: TransitionBuffers) -> None:
        """Replace the goals of some of the drawn `units` [N], whose data is in the buffers."""
        ring, goals = self._ring, self._goals
        chosen, places = np.empty((2, len(units)), np.int64)
        is_final, chain = goals.strategy == "final", (ring.spec.lanes, ring.flags, ring.following)
        count = draw_goals(random, goals.share, is_final, units, *chain, chosen, places)
        if not count:
            return
        chosen, num_steps = chosen[:count], self._unit.n_step
        desired = self._take(places[:count])
        after, lengths = np.empty((count, num_steps), np.int64), np.empty(count, np.int64)
        follow_steps(units[chosen], *chain, after, lengths)
        achieved = from_leaves(self._take(after.ravel()))
        wanted = from_leaves({rest: goal.repeat(num_steps, axis=0) for rest, goal in desired.items()})
        reward, terminated = self._evaluated(achieved, wanted, after.shape)
        for rest, goal in desired.items():
            for rows in (buffers.here, buffers.there):
                rows.arrays[self._desired[rest]][chosen] = goal
        sum_rewards(reward, lengths, terminated, self._unit.gamma, chosen, buffers.reward, buffers.discount)

    def _take(self, places: Array) -> dict[str, Array]:
        """Return the achieved goals at `places` [N], by the rest of their paths."""
        kinds, found = dict(self._ring.spec.arrays()), {}
        for rest, path in self._achieved.items():
            found[rest] = kinds[path].empty(len(places))
            self._ring.stores[path].take(places, as_words(found[rest], 1))
        return found

    def _evaluated(self, achieved: Tree, desired: Tree, shape: tuple[int, ...]) -> tuple[Array, Array]:
        rewards = self._rewards
        reward = rewards.reward(achieved, desired).reshape(shape)
        ends = NEVER if rewards.terminated is None else rewards.terminated(achieved, desired).reshape(shape)
        return reward, ends


def _below(ring: BlockRing, key: str) -> Mapping[str, str]:
    """Return the arrays of observations under a key: the rest of each path -> path."""
    root = f"{OBSERVATION}/{key}"
    paths = [path for path in ring.stores if path == root or path.startswith(f"{root}/")]
    return {path.removeprefix(root).removeprefix("/"): path for path in paths}
