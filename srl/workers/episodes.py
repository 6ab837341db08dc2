"""Counting episodes from full blocks: returns and lengths, over all lanes at once."""

from __future__ import annotations

import numpy as np

from srl.base.tree import Array

MAX_REPORTED = 200
"""Episodes named in one report; beyond that a sample, evenly spread."""


class EpisodeTally:
    """Follows the lanes of one group. Works on whole blocks, so a step costs nothing."""

    def __init__(self, num_lanes: int) -> None:
        self._return = np.zeros(num_lanes, np.float64)  # [L] of the running episodes
        self._length = np.zeros(num_lanes, np.float64)
        self._returns: list[Array] = []
        self._lengths: list[Array] = []

    def count_block(self, reward: Array, acting: Array, ended: Array, cut: Array | None = None) -> None:
        """Take in T steps: reward, acting, ended, all [T, L]. An episode that was `cut` is no whole one: left out."""
        lanes = np.flatnonzero(ended.any(axis=0))  # those in which something ended; late in training they are few
        which, time = np.nonzero(np.ascontiguousarray(ended[:, lanes].T))  # by lane, then by time
        opens = np.ones(len(which), bool)  # the first end of each lane
        np.not_equal(which[1:], which[:-1], out=opens[1:])
        closes = np.ones(len(which), bool)  # the last end of each lane
        closes[:-1] = opens[1:]
        for running, values, found in (
            (self._return, reward, self._returns),
            (self._length, acting, self._lengths),
        ):
            total = np.add.accumulate(values[:, lanes].T.astype(np.float32), axis=1)  # [K, T]
            at_end = total[which, time]
            before = np.empty_like(at_end)
            before[1:] = at_end[:-1]
            before[opens] = -running[lanes]
            episodes = at_end - before
            found.append(episodes if cut is None else episodes[~cut[time, lanes[which]]])
            running += values.sum(axis=0)
            running[lanes] = total[:, -1] - at_end[closes]

    def count_step(self, lane: int, reward: float, ended: bool) -> None:
        """Take in one decision of one lane (lanes with a time of their own)."""
        self._return[lane] += reward
        self._length[lane] += 1
        if ended:
            self.record(float(self._return[lane]), float(self._length[lane]))
            self._return[lane] = self._length[lane] = 0.0

    def record(self, total: float, length: float) -> None:
        """Take in an episode that somebody else counted."""
        self._returns.append(np.array([total]))
        self._lengths.append(np.array([length]))

    def forget(self, lanes: Array) -> None:
        """These lanes were restarted in the middle of an episode."""
        self._return[lanes] = 0.0
        self._length[lanes] = 0.0

    def drain(self) -> tuple[int, list[float], list[float]]:
        """Number, returns and lengths of the episodes since the last call."""
        if not self._returns:
            return 0, [], []
        returns, lengths = np.concatenate(self._returns), np.concatenate(self._lengths)
        self._returns.clear()
        self._lengths.clear()
        count = len(returns)
        chosen = np.linspace(0, count - 1, min(count, MAX_REPORTED)).astype(int)
        return count, returns[chosen].tolist(), lengths[chosen].tolist()
