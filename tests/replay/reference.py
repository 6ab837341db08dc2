"""A slow and obvious replay memory, random blocks for it, and the schedules that tests of the real one share."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from srl.api.block import BlockSpec
from srl.api.dataflow import Sequences
from srl.base.tree import ArraySpec


def spec_of(horizon: int, lanes: int, observation=None, **decision) -> BlockSpec:
    observation = observation or ArraySpec((2,), "float32")
    return BlockSpec(horizon, lanes, observation, {"action": ArraySpec((), "int64"), **decision})


def empty_block(spec: BlockSpec) -> dict[str, np.ndarray]:
    return {path: kind.empty(spec.rows, spec.lanes) for path, kind in spec.arrays()}


@dataclass
class Lane:
    """A lane that plays random episodes. Its observations are serial numbers, so that each one can be recognized."""

    rng: np.random.Generator
    serial: int
    row: dict = field(default_factory=dict)

    def start(self) -> None:
        self.row = {"acting": True, "first": True}
        self._observe()

    def _observe(self) -> None:
        self.serial += 1
        self.row |= {"observation": self.serial, "action": self.serial + 0.5}

    def step(self, end_rate: float) -> dict:
        """Return the current row, complete, and go on to the next one."""
        row = self.row
        ends = row["acting"] and self.rng.random() < end_rate
        terminated = ends and self.rng.random() < 0.5
        row |= {
            "reward": float(self.rng.integers(1, 100)) if row["acting"] else 0.0,
            "terminated": terminated,
            "truncated": ends and (not terminated or self.rng.random() < 0.2),
        }
        self.row = {"acting": not ends, "first": not row["acting"]}
        self._observe()
        return row


class Source:
    """Lanes that fill blocks. Row T of a block is repeated as row 0 of the next one."""

    def __init__(
        self, spec: BlockSpec, rng: np.random.Generator, serial: int, end_rate: float, fail_rate: float = 0.0
    ) -> None:
        self.spec, self.end_rate, self.rng, self.fail_rate = spec, end_rate, rng, fail_rate
        self.lanes = [Lane(rng, serial + 100_000 * i) for i in range(spec.lanes)]
        for lane in self.lanes:
            lane.start()
        self.first_step = 0

    def block(self) -> tuple[dict[str, np.ndarray], int]:
        """Return the next block and the number of its first step."""
        arrays = empty_block(self.spec)
        for index, lane in enumerate(self.lanes):
            for row in range(self.spec.rows):
                if row == self.spec.horizon:
                    values = {**lane.row, "reward": -1.0, "truncated": True}  # left from an earlier use of the memory
                elif self.rng.random() < self.fail_rate:
                    values = self._fail(arrays, row, index)
                else:
                    values = lane.step(self.end_rate)
                for name, value in values.items():
                    path = "decision/action" if name == "action" else name
                    arrays[path][row, index] = value
                if "state" in arrays:
                    arrays["state"][row, index] = values["observation"] + 0.25
        step = self.first_step
        self.first_step += self.spec.horizon
        return arrays, step

    def _fail(self, arrays: dict[str, np.ndarray], row: int, index: int) -> dict:
        """Return a row in which the environment failed, as the recorder writes it, and start a new episode."""
        lane = self.lanes[index]
        ended = row and (arrays["terminated"][row - 1, index] or arrays["truncated"][row - 1, index])
        if row and not ended:
            arrays["truncated"][row - 1, index] = True
        values = {**lane.row, "acting": False, "reward": 0.0, "terminated": False, "truncated": True}
        lane.start()
        return values


class ReferenceMemory:
    """Every transition computed by a loop over a list of rows."""

    def __init__(self, spec: BlockSpec, num_slots: int, n_step: int, gamma: float) -> None:
        self.spec, self.num_slots, self.n_step, self.gamma = spec, num_slots, n_step, gamma
        self.blocks: list[tuple] = []  # (arrays, track, first_step), oldest first

    def insert(self, arrays: dict[str, np.ndarray], track, first_step: int) -> None:
        self.blocks.append(({path: values.copy() for path, values in arrays.items()}, track, first_step))
        self.blocks = self.blocks[-self.num_slots :]

    def transitions(self) -> dict[float, tuple]:
        """Return (observation, action, reward, discount, next_observation) of all units, by observation."""
        found = {}
        for number, (arrays, *_) in enumerate(self.blocks):
            for lane in range(self.spec.lanes):
                for row in range(self.spec.horizon):
                    if arrays["acting"][row, lane]:
                        key = float(arrays["observation"][row, lane, 0])
                        found[key] = self._transition(number, lane, row)
        return found

    def sequences(self, unit: Sequences) -> dict[float, list[list[dict]]]:
        """Return the rows of every agent of all units, by the first agent's first observation."""
        copies, found = self.spec.lanes // unit.num_agents, {}
        for number, (arrays, _, first_step) in enumerate(self.blocks):
            for row in range(self.spec.horizon):
                for copy in range(copies):
                    lanes = [agent * copies + copy for agent in range(unit.num_agents)]
                    agents = [self._sequence(number, lane, row, unit) for lane in lanes]
                    learned = [row for row in agents[0][:-1] if row["valid"] and row["has_reward"]]
                    if (first_step + row) % unit.period == 0 and len(learned) > unit.burn_in:
                        found[float(arrays["observation"][row, lanes[0], 0])] = agents
        return found

    def _sequence(self, number: int, lane: int, row: int, unit: Sequences) -> list[dict]:
        rows: list[dict] = []
        while len(rows) <= unit.rows:
            arrays = self.blocks[number][0]
            is_last, at_end = row == self.spec.horizon, len(rows) == unit.rows
            values = {
                name: arrays[name][row, lane] for name in ("reward", "terminated", "truncated", "acting", "first")
            }
            values |= {name: arrays[name][row, lane].copy() for name in ("observation", "decision/action")}
            values |= {"valid": True, "has_reward": not is_last}
            if "state" in arrays:
                values["state"] = arrays["state"][row, lane].copy()
            if is_last:
                values |= {
                    "reward": 0.0,
                    "terminated": False,
                    "truncated": False,
                    "acting": values["acting"] and at_end,
                }
            if rows and rows[-1]["acting"] and not (rows[-1]["terminated"] or rows[-1]["truncated"]):
                cut = not values["acting"] or values["first"]
                rows[-1]["truncated"] = cut and not (at_end and is_last)
            rows.append(values)
            if is_last:
                over = {"valid": False, "acting": False, "first": False, "has_reward": False}
                rows += [{**values, **over}] * (unit.rows + 1 - len(rows))
                break
            number, row = self._next(number, row)
        return rows

    def _next(self, number: int, row: int) -> tuple[int, int]:
        """Return block and row of what follows: row T only if no block does."""
        _, track, first_step = self.blocks[number]
        if row + 1 == self.spec.horizon:
            for i, (_, other, step) in enumerate(self.blocks):
                if i > number and other == track:
                    return (i, 0) if step == first_step + self.spec.horizon else (number, row + 1)
        return number, row + 1

    def _row_after(self, number: int, row: int, lane: int):
        """Return block, row and number of what follows: within the block, or in the next block of the track."""
        _, track, first_step = self.blocks[number]
        if row + 1 < self.spec.horizon:
            return number, row + 1
        newest = [i for i, (_, other, _) in enumerate(self.blocks) if other == track and i > number]
        if newest and self.blocks[newest[0]][2] == first_step + self.spec.horizon:
            after = self.blocks[newest[0]][0]
            if after["acting"][0, lane] and not after["first"][0, lane]:
                return newest[0], 0
        return number, self.spec.horizon  # for bootstrapping only

    def later_rows(self) -> dict[float, list[float]]:
        """Return the observations of all later rows of the episode of each decision, by its observation."""
        found = {}
        for number, (arrays, *_) in enumerate(self.blocks):
            for lane in range(self.spec.lanes):
                for row in range(self.spec.horizon):
                    if arrays["acting"][row, lane]:
                        found[float(arrays["observation"][row, lane, 0])] = self._rest_of_episode(number, lane, row)
        return found

    def _rest_of_episode(self, number: int, lane: int, row: int) -> list[float]:
        found = []
        while True:
            arrays = self.blocks[number][0]
            ends = arrays["terminated"][row, lane] or arrays["truncated"][row, lane]
            number, row = (number, row + 1) if ends else self._row_after(number, row, lane)
            arrays = self.blocks[number][0]
            found.append(float(arrays["observation"][row, lane, 0]))
            if ends or row == self.spec.horizon or not arrays["acting"][row, lane]:
                return found

    def _transition(self, number: int, lane: int, row: int) -> tuple:
        arrays = self.blocks[number][0]
        observation, action = arrays["observation"][row, lane], arrays["decision/action"][row, lane]
        reward, discount = 0.0, 1.0
        for _ in range(self.n_step):
            arrays = self.blocks[number][0]
            reward += discount * float(arrays["reward"][row, lane])
            discount *= self.gamma
            if arrays["terminated"][row, lane]:
                number, row, discount = number, row + 1, 0.0
                break
            if arrays["truncated"][row, lane]:
                row += 1
                break
            number, row = self._row_after(number, row, lane)
            if row == self.spec.horizon or not self.blocks[number][0]["acting"][row, lane]:
                break
        return observation, action, reward, discount, self.blocks[number][0]["observation"][row, lane]
