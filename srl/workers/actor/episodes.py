"""Episode statistics: returns and lengths, computed from full blocks for all lanes at once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from srl.base.state import State
from srl.base.tree import Array

MAX_REPORTED = 200  # maximum number of episodes in one report; if there are more, an evenly spaced sample is sent
COUNTED = ("return", "length")  # statistics reported for each episode; for all others, only means are reported


class EpisodeTracker:
    """Tracks the episodes of one lane group, a block at a time, so there is no cost per step."""

    def __init__(self, num_lanes: int) -> None:
        self._return = np.zeros(num_lanes, np.float64)  # [L], for the running episodes
        self._length = np.zeros(num_lanes, np.float64)
        self._returns: list[Array] = []
        self._lengths: list[Array] = []
        self._facts: dict[str, tuple[float, int]] = {}  # name -> sum and count

    def count_block(self, reward: Array, acting: Array, ended: Array, failed: Array | None = None) -> None:
        """Add T steps of all lanes; all arrays are [T, L]. Episodes that end where `failed` is set are left out."""
        num_steps = len(reward)
        ends = np.ascontiguousarray(ended.T).ravel()  # by lane, then by time, like everything below
        opens = np.empty(len(ends), bool)  # an episode starts or continues here
        opens[1:] = ends[:-1]
        opens[::num_steps] = True
        begins = np.flatnonzero(opens)  # first steps of the pieces of episodes in this block
        lasts = np.append(begins[1:], len(ends)) - 1
        is_whole = ends[lasts]
        heads = np.flatnonzero(begins % num_steps == 0)  # [L]: each lane's first piece
        tails = np.append(heads[1:], len(begins)) - 1  # [L]: and its last
        is_counted = is_whole if failed is None else is_whole & ~failed.T.ravel()[lasts]
        for running, values, kind, found in (
            (self._return, reward, np.float32, self._returns),
            (self._length, acting.view(np.uint8), np.int32, self._lengths),
        ):
            sums = np.add.reduceat(np.ascontiguousarray(values.T).ravel(), begins, dtype=kind).astype(np.float64)
            sums[heads] += running
            found.append(sums[is_counted])
            running[...] = sums[tails]
            running[is_whole[tails]] = 0.0

    def count_step(self, lane: int, reward: float, ended: bool) -> None:
        """Add one step of one lane, for lanes that do not step together."""
        self._return[lane] += reward
        self._length[lane] += 1
        if ended:
            self.record(float(self._return[lane]), float(self._length[lane]))
            self._return[lane] = self._length[lane] = 0.0

    def record(self, total: float, length: float) -> None:
        """Add an episode whose return and length the environment reported."""
        self._returns.append(np.array([total]))
        self._lengths.append(np.array([length]))

    def note(self, facts: Mapping[str, Array], ended: Array) -> None:
        """Add the environment's statistics on the episodes that `ended` [L], except for returns and lengths."""
        for name, values in facts.items():
            if name not in COUNTED:
                known = values[ended]
                known = known[np.isfinite(known)]
                total, count = self._facts.get(name, (0.0, 0))
                self._facts[name] = (total + float(known.sum()), count + len(known))

    def forget(self, lanes: Array) -> None:
        """Discard the running episodes of lanes that were restarted."""
        self._return[lanes] = 0.0
        self._length[lanes] = 0.0

    def drain(self) -> tuple[int, list[float], list[float]]:
        """Return how many episodes ended since the last call, and the returns and lengths of up to MAX_REPORTED."""
        if not self._returns:
            return 0, [], []
        returns, lengths = np.concatenate(self._returns), np.concatenate(self._lengths)
        self._returns.clear()
        self._lengths.clear()
        count = len(returns)
        chosen = np.linspace(0, count - 1, min(count, MAX_REPORTED)).astype(int)
        return count, returns[chosen].tolist(), lengths[chosen].tolist()

    def drain_facts(self) -> dict[str, tuple[float, int]]:
        """Return the sum and count of each statistic since the last call."""
        facts, self._facts = self._facts, {}
        return facts

    def state(self) -> State:
        """Return the running episodes, and the ended ones that have not been reported."""
        unreported = {"returns": self._returns, "lengths": self._lengths}
        ended = {name: np.concatenate([np.zeros(0), *found]) for name, found in unreported.items()}
        return {"return": self._return.copy(), "length": self._length.copy(), **ended}

    def restore(self, state: State) -> None:
        self._return[...], self._length[...] = state["return"], state["length"]
        self._returns, self._lengths = [state["returns"]], [state["lengths"]]
