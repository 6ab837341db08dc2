"""Prioritized draws: a sum tree over the units of a memory, and importance weights."""

from __future__ import annotations

import numpy as np
from numba import njit

from srl.api.dataflow import Priorities
from srl.base.state import State, pack, unpack
from srl.base.tree import Array
from srl.replay.kernels import fill_uniform
from srl.replay.storage import Arena
from srl.replay.sum_tree import SumTree

compiled = njit(cache=True, nogil=True, error_model="numpy")


class PrioritizedUnits:
    """Priorities of units. A leaf of the tree is (priority + epsilon)^alpha; of one that cannot be drawn it is 0."""

    def __init__(self, options: Priorities, num_units: int, arena: Arena | None = None) -> None:
        self._options = options
        arena = arena or Arena()
        self._tree = SumTree(num_units, arena)
        self._raised = arena.array("highest", (1,), "float64")  # zero at first
        self._uniform = self._values = np.zeros(0)

    @property
    def total(self) -> float:
        """Sum of all leaves."""
        return self._tree.total

    @property
    def _highest(self) -> float:
        """Leaf of new units."""
        return max(1.0, float(self._raised[0]))

    def insert(self, first_unit: int, drawable: Array, earlier: Array, errors: Array | None = None) -> None:
        """Give the highest priority so far to the units of a new block that are `drawable` (bool, for all units from
        `first_unit` on), and to units of `earlier` blocks [N] that were not drawable so far. With `errors`, those that
        are finite are the priorities of the new block's units."""
        leaves: float | Array = self._highest
        if errors is not None:
            own = (np.abs(errors) + self._options.epsilon) ** self._options.alpha
            leaves = np.where(np.isfinite(errors), own, self._highest)
        self._tree.set_range(first_unit, np.where(drawable, leaves, 0.0))
        if len(earlier):
            self._tree.set(earlier, np.full(len(earlier), self._highest))

    def draw(
        self, random: Array, batch: int, progress: float | None, units: Array, weights: Array, largest: Array
    ) -> None:
        """Fill `units` [N], drawn in minibatches of `batch`, and their importance `weights` [N], or with
        `progress=None` their probabilities. `largest` [K] gets the divisors of the weights.

        Weights are (memory size * probability)^-beta, divided by the maximum over their minibatch (Schaul et al. 2016,
        section 3.4). The maximum over the memory would be that of the one unit with the lowest priority, which is
        almost never drawn: it would make all gradient steps smaller for as long as that unit stays.
        """
        count = len(units)
        if len(self._uniform) < count:
            self._uniform, self._values = np.zeros(count), np.zeros(count)
        uniform, values = self._uniform[:count], self._values[:count]
        fill_uniform(random, uniform)
        self._tree.draw(uniform, batch, units, values)
        if progress is None:
            weights[:] = values / self.total
        else:
            _importance_weights(values, self.total, self._options.exponent(progress), batch, weights, largest)

    def feedback(self, units: Array, is_current: Array, priorities: Array) -> None:
        """Set the priorities of the units [N] that `is_current` marks; those that are not finite are ignored."""
        kept, leaves = np.empty_like(units), np.empty(len(units))
        options = self._options
        count, highest = _new_leaves(units, is_current, priorities, options.epsilon, options.alpha, kept, leaves)
        self._raised[0] = max(self._highest, highest)
        self._tree.set(kept[:count], leaves[:count])

    def state(self, num_units: int) -> State:
        return {"highest": pack(self._highest), "leaves": self._tree.leaves[:num_units].copy()}

    def restore(self, state: State) -> None:
        self._raised[0] = unpack(state["highest"])
        self._set_all(state["leaves"])

    def recover(self, drawable: Array) -> None:
        """Continue with the leaves in the arena, of which `drawable` marks the first ones that can be drawn. A leaf
        that was not set yet gets the highest priority."""
        leaves = self._tree.leaves[: len(drawable)]
        kept = np.where((leaves > 0.0) & np.isfinite(leaves), leaves, self._highest)
        self._set_all(np.where(drawable, kept, 0.0))

    def _set_all(self, first: Array) -> None:
        """Set the first leaves to these values, and the others to 0."""
        values = np.zeros(len(self._tree.leaves))
        values[: len(first)] = first
        self._tree.set_range(0, values)


@compiled
def _importance_weights(values: Array, total: float, beta: float, batch: int, weights: Array, largest: Array) -> None:
    """The size cancels out: (size * value / total)^-beta is largest for the lowest value."""
    for begin in range(0, len(values), batch):
        lowest = values[begin]
        for i in range(begin, begin + batch):
            lowest = min(lowest, values[i])
        largest[begin // batch] = (lowest / total) ** -beta
        for i in range(begin, begin + batch):
            weights[i] = (lowest / values[i]) ** beta


@compiled
def _new_leaves(
    units: Array, is_current: Array, priorities: Array, epsilon: float, alpha: float, kept: Array, leaves: Array
) -> tuple[int, float]:
    """Fill the first places of `kept` and `leaves`. Return their number and the largest leaf."""
    count, highest = 0, 0.0
    for i in range(len(units)):
        if is_current[i] and np.isfinite(priorities[i]):
            kept[count] = units[i]
            leaves[count] = (abs(priorities[i]) + epsilon) ** alpha
            highest = max(highest, leaves[count])
            count += 1
    return count, highest
