"""Transitions as units of replay: each row with a decision is one, with the rewards of the next n steps."""

from __future__ import annotations

import numpy as np

from srl.api.dataflow import TransitionBatch, Transitions
from srl.base.tree import Array
from srl.replay.kernels import ACTING, draw_uniform, n_step_returns
from srl.replay.ring import BlockRing
from srl.replay.units import DECISION, OBSERVATION, Changed, Rows, Units, shaped

NO_UNITS = np.zeros(0, np.int64)


class TransitionBuffers:
    def __init__(self, ring: BlockRing, num_units: int) -> None:
        self.places, self.ends = np.zeros((2, num_units), np.int64)
        self.reward, self.discount = np.zeros((2, num_units), np.float32)
        self.here = Rows(ring, num_units, OBSERVATION, DECISION)
        self.there = Rows(ring, num_units, OBSERVATION)


class TransitionUnits(Units):
    def __init__(self, unit: Transitions, ring: BlockRing) -> None:
        self.ring = ring
        self.per_slot = ring.spec.horizon * ring.spec.lanes
        self._unit = unit
        self._counts = np.zeros(ring.num_slots, np.int64)
        self.num_drawable = 0

    def insert(self, slot: int) -> Changed:
        ring = self.ring
        self.num_drawable += int(ring.num_acting[slot] - self._counts[slot])
        self._counts[slot] = ring.num_acting[slot]
        return Changed((ring.strips(slot)[0][:, :-1] & ACTING != 0).ravel(), NO_UNITS)

    def draw(self, random: Array, units: Array) -> None:
        lanes = self.ring.spec.lanes
        first, number = self.window(self._counts)
        draw_uniform(random, self.ring.flags, first * lanes, number * lanes, self.ring.num_strips, units)

    def new_buffers(self, num_units: int) -> TransitionBuffers:
        return TransitionBuffers(self.ring, num_units)

    def expand(self, units: Array, batch: int, buffers: TransitionBuffers) -> None:
        count, ring, unit = len(units), self.ring, self._unit
        places, ends = buffers.places[:count], buffers.ends[:count]
        n_step_returns(
            units,
            unit.n_step,
            unit.gamma,
            ring.spec.lanes,
            ring.flags,
            ring.rewards,
            ring.following,
            places,
            ends,
            buffers.reward[:count],
            buffers.discount[:count],
        )
        buffers.here.take_with(places, buffers.there, ends)

    def returns_of(self, slot: int) -> tuple[Array, Array, Array]:
        """Return sums of rewards and discounts of all rows of a slot, acting or not, and the rows from which to
        bootstrap, as numbers lane * (T+1) + row. The slot must have the newest block of its track."""
        ring, unit = self.ring, self._unit
        count = self.per_slot
        places, ends = np.zeros((2, count), np.int64)
        returns, discounts = np.zeros((2, count), np.float32)
        units = slot * count + np.arange(count)
        chain = ring.spec.lanes, ring.flags, ring.rewards, ring.following
        n_step_returns(units, unit.n_step, unit.gamma, *chain, places, ends, returns, discounts)
        return returns, discounts, ends - slot * ring.spec.lanes * ring.spec.rows

    def view(self, buffers: TransitionBuffers, num_steps: int, batch: int, weight: Array) -> TransitionBatch:
        here, there = buffers.here.tree(num_steps, batch), buffers.there.tree(num_steps, batch)
        return TransitionBatch(
            here[OBSERVATION],
            here[DECISION],
            shaped(buffers.reward, num_steps, batch),
            shaped(buffers.discount, num_steps, batch),
            there[OBSERVATION],
            weight,
            0,
        )

    def drawable(self) -> Array:
        ring = self.ring
        acting: Array = ring.flags[: ring.num_strips, :-1] & ACTING != 0
        return acting.ravel()

    def restored(self) -> None:
        self._counts[:] = self.ring.num_acting
        self._counts[self.ring.num_filled :] = 0
        self.num_drawable = int(self._counts.sum())
