"""Sequences as units of replay: rows of a lane, or of all lanes of a copy, that continue from block to block."""

from __future__ import annotations

import numpy as np

from srl.api.block import STATE
from srl.api.dataflow import SequenceBatch, Sequences
from srl.base.tree import Array
from srl.replay.kernels import ACTING, FIRST, draw_episodes, draw_starts, follow_sequences
from srl.replay.ring import NONE, BlockRing
from srl.replay.units import DECISION, OBSERVATION, Changed, Rows, Units, shaped, slots_of, starts_per_block


class SequenceBuffers:
    def __init__(self, ring: BlockRing, unit: Sequences, num_units: int) -> None:
        num_rows = num_units * unit.num_agents * (unit.rows + 1)
        self.places = np.zeros(num_rows, np.int64)
        self.states = np.zeros(num_units * unit.num_agents, np.int64)
        self.reward = np.zeros(num_rows, np.float32)
        self.flags = np.zeros((5, num_rows), bool)  # terminated, truncated, acting, first, valid
        self.rows = Rows(ring, num_rows, OBSERVATION, DECISION)
        self.state = Rows(ring, num_units * unit.num_agents, STATE)


class SequenceUnits(Units):
    """Sequences. One can be drawn as soon as `burn_in + 1` rows with their rewards are remembered from its start on, so
    that there is something to learn from. The last starts of a block therefore wait for the next block of the track.
    The oldest block is replaced first, so that a sequence never loses its later rows before its first one."""

    def __init__(self, unit: Sequences, ring: BlockRing) -> None:
        self.ring = ring
        self._unit = unit
        self._copies = ring.spec.lanes // unit.num_agents
        self._starts = starts_per_block(unit, ring.spec.horizon)
        self.per_slot = self._copies * self._starts
        self._begins = np.zeros(ring.num_slots, np.int64)  # the first row of each slot at which a sequence may start
        self._counts = np.zeros(ring.num_slots, np.int64)  # how many starts of each slot can be drawn
        self.num_drawable = 0

    def insert(self, slot: int) -> Changed:
        self._begins[slot] = -self.ring.first_step[slot] % self._unit.period
        self._set(slot, self._count(slot, 0))
        own = np.tile(np.arange(self._starts) < self._counts[slot], self._copies)
        earlier, distance = [], 1
        before = self.ring.preceding[slot]
        while before != NONE and distance * self.ring.spec.horizon - self._unit.burn_in < self.ring.spec.horizon:
            known, now = self._counts[before], self._count(before, distance)
            groups = before * self._copies + np.arange(self._copies)
            earlier.append((groups[:, None] * self._starts + np.arange(known, now)).ravel())
            self._set(before, now)
            before, distance = self.ring.preceding[before], distance + 1
        return Changed(own, np.concatenate(earlier) if earlier else np.zeros(0, np.int64))

    def _count(self, slot: int, num_following: int) -> int:
        """Return how many starts of a slot can be drawn if `num_following` blocks continue it."""
        horizon = self.ring.spec.horizon
        rows = min(horizon, (num_following + 1) * horizon - self._unit.burn_in)
        return max(0, -(-(rows - int(self._begins[slot])) // self._unit.period))

    def _set(self, slot: int, count: int) -> None:
        self.num_drawable += (count - int(self._counts[slot])) * self._copies
        self._counts[slot] = count

    def draw(self, random: Array, units: Array) -> None:
        filled, (first, number) = self.ring.num_filled, self.window(self._counts)
        window = first * self.per_slot, number * self.per_slot, filled * self.per_slot
        draw_starts(random, *window, self._copies, self._starts, self._counts, units)

    def new_buffers(self, num_units: int) -> SequenceBuffers:
        return SequenceBuffers(self.ring, self._unit, num_units)

    def expand(self, units: Array, batch: int, buffers: SequenceBuffers) -> None:
        if not len(units):
            return
        ring, unit = self.ring, self._unit
        axes = (len(units) // batch, unit.rows + 1, batch * unit.num_agents)
        places, states = shaped(buffers.places, *axes), shaped(buffers.states, axes[0], axes[2])
        follow_sequences(
            units,
            batch,
            unit.num_agents,
            self._copies,
            self._starts,
            unit.period,
            self._begins,
            ring.flags,
            ring.rewards,
            ring.following,
            places,
            states,
            shaped(buffers.reward, *axes),
            *(shaped(flags, *axes) for flags in buffers.flags),
        )
        buffers.rows.take(places.ravel())
        buffers.state.take(states.ravel())

    def view(self, buffers: SequenceBuffers, num_steps: int, batch: int, weight: Array) -> SequenceBatch:
        unit = self._unit
        axes = (num_steps, unit.rows + 1, batch * unit.num_agents)
        rows, state = buffers.rows.tree(*axes), buffers.state.tree(axes[0], axes[2])
        terminated, truncated, acting, first, valid = (shaped(flags, *axes) for flags in buffers.flags)
        return SequenceBatch(
            rows[OBSERVATION],
            rows[DECISION],
            shaped(buffers.reward, *axes),
            terminated,
            truncated,
            acting,
            first,
            valid,
            state.get(STATE),
            weight,
            0,
            unit.burn_in,
        )

    def drawable(self) -> Array:
        counts = np.repeat(self._counts[: self.ring.num_filled], self._copies)
        return (np.arange(self._starts) < counts[:, None]).ravel()

    def restored(self) -> None:
        ring, unit = self.ring, self._unit
        self._begins[:] = -ring.first_step % unit.period
        self._counts[:], self.num_drawable = 0, 0
        for slot in np.flatnonzero(ring.generation).tolist():
            after, length = ring.following[slot], 0
            while after != NONE and length * ring.spec.horizon < unit.burn_in:
                after, length = ring.following[after], length + 1
            self._set(slot, self._count(slot, length))


class EpisodeUnits(SequenceUnits):
    """Sequences that start with the first row of an episode. One can be drawn as soon as its first reward is known."""

    def insert(self, slot: int) -> Changed:
        starts = self._first_rows(self.ring.strips(slot)[0][None])[0]
        self._set(slot, int(starts.sum()))
        return Changed(starts.ravel(), np.zeros(0, np.int64))

    def _first_rows(self, flags: Array) -> Array:
        """Return which rows [slots, copies, T] begin an episode, given the flags [slots, L, T+1] of their lanes."""
        begins: Array = flags[:, : self._copies, :-1] & (ACTING | FIRST) == ACTING | FIRST
        return begins

    def _set(self, slot: int, count: int) -> None:
        self.num_drawable += count - int(self._counts[slot])
        self._counts[slot] = count

    def draw(self, random: Array, units: Array) -> None:
        ring = self.ring
        slots = slots_of(*self.window(self._counts), ring.num_filled)
        ends = np.cumsum(self._counts[slots])
        draw_episodes(random, slots, ends, self._copies, ring.spec.lanes, ring.spec.horizon, ring.flags, units)

    def drawable(self) -> Array:
        ring = self.ring
        flags = ring.flags[: ring.num_strips].reshape(ring.num_filled, ring.spec.lanes, -1)
        return self._first_rows(flags).ravel()

    def restored(self) -> None:
        starts = self.drawable().reshape(self.ring.num_filled, -1).sum(axis=1)
        self._counts[:] = 0
        self._counts[: len(starts)] = starts
        self.num_drawable = int(starts.sum())
