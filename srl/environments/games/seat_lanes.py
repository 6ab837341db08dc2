"""Games in which each seat has lanes of its own, and players take turns."""

from __future__ import annotations

from typing import Any

import numpy as np

from srl.api.lanes import Lanes, LaneSpec, TeamSpec, TimeStep
from srl.api.simulator import Simulator
from srl.api.spaces import Discrete
from srl.base.state import State, part, under
from srl.base.tree import Array, Tree, leaves, map_tree
from srl.environments.games.joint_lanes import Copies


class SeatLanes(Lanes):
    """One team for each of two players, whose lanes act in turn. The rewards of a player are summed until its next
    turn or the end. A player whose first turn never comes has no episode."""

    def __init__(self, config: Any, simulator: Simulator, num_copies: int) -> None:
        self._copies = copies = Copies(config, simulator, num_copies)
        space, action = copies.observation_space(), Discrete(simulator.spec.num_actions)
        teams = [
            TeamSpec(f"player_{seat}", (f"player_{seat}",), space, action, aligned=False, mask_key=config.mask_key)
            for seat in range(2)
        ]
        self.spec = LaneSpec(config.environment_name(), num_copies, tuple(teams))
        self._seen = [map_tree(np.copy, copies.observations()) for _ in teams]  # each player's last observations
        self._waiting = np.zeros((2, num_copies), np.float32)  # rewards that are not yet delivered
        self._started = np.zeros((2, num_copies), np.bool_)

    def reset(self, seed: int) -> tuple[TimeStep, ...]:
        self._copies.seed(seed)
        self._begin(np.arange(self._copies.num))
        return self._time_steps(np.zeros(self._copies.num, np.bool_))

    def step(self, actions: tuple[Tree, ...]) -> tuple[TimeStep, ...]:
        copies = self._copies
        starting = copies.over.copy()
        going = np.flatnonzero(~starting)
        mover = copies.to_play[going].copy()
        chosen = np.stack([np.asarray(tree) for tree in actions])[mover, going]
        reward = copies.move(going, chosen)
        self._waiting[mover, going] += reward
        self._waiting[1 - mover, going] -= reward
        self._begin(np.flatnonzero(starting))
        return self._time_steps(copies.over & ~starting)

    def _begin(self, copies: Array) -> None:
        self._copies.begin(copies)
        self._waiting[:, copies] = 0.0
        self._started[:, copies] = False

    def _time_steps(self, over: Array) -> tuple[TimeStep, ...]:
        """`over` [L] marks the games that ended in this step."""
        copies = self._copies
        now = copies.observations()
        return tuple(self._of_seat(seat, now, over) for seat in range(2))

    def _of_seat(self, seat: int, now: Tree, over: Array) -> TimeStep:
        copies = self._copies
        turn = copies.to_play == seat
        acting = turn & ~copies.over
        first = acting & ~self._started[seat]
        done = over & self._started[seat]
        self._started[seat] |= first
        looks = turn & (acting | done)
        map_tree(lambda rows, new: rows.__setitem__(looks, new[looks]), self._seen[seat], now)
        for _, mask in leaves({"": self._seen[seat][copies.config.mask_key]}):
            mask[done] = 1
        # Rewards from before the first turn, which precede all actions of the player, come with its second row.
        delivered = (acting & ~first) | done
        reward = np.where(delivered, self._waiting[seat], np.float32(0))
        self._waiting[seat][delivered] = 0.0
        terminated, truncated = done & copies.ended, done & copies.truncated
        return TimeStep(self._seen[seat], reward, terminated, truncated, acting, first)

    def render(self) -> Array:
        return self._copies.image()

    def state(self) -> State:
        seen = {f"seen/{seat}/{path}": array.copy() for seat in range(2) for path, array in leaves(self._seen[seat])}
        own = {"waiting": self._waiting.copy(), "started": self._started.copy()}
        return {**under("copies", self._copies.saved()), **own, **seen}

    def restore(self, state: State) -> None:
        self._copies.restore(part(state, "copies"))
        self._waiting[...], self._started[...] = state["waiting"], state["started"]
        for seat in range(2):
            for path, array in leaves(self._seen[seat]):
                array[...] = state[f"seen/{seat}/{path}"]

    def close(self) -> None:
        pass
