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
        self.count = 0
        self.returns: list[float] = []
        self.lengths: list[float] = []

    def count_block(self, reward: Array, acting: Array, ended: Array) -> None:
        """Take in T steps: reward, acting, ended, all [T, L]."""
        earned = np.cumsum(reward, axis=0, dtype=np.float64)
        lasted = np.cumsum(acting, axis=0, dtype=np.float64)
        if ended.any():
            lane, time = np.nonzero(ended.T)  # by lane, then by time
            opens = np.ones(len(lane), bool)
            opens[1:] = lane[1:] != lane[:-1]
            for running, total, out in ((self._return, earned, self.returns), (self._length, lasted, self.lengths)):
                at_end = total[time, lane]
                before = np.where(opens, -running[lane], np.roll(at_end, 1))
                out.extend((at_end - before).tolist())
                last = np.zeros_like(running)
                last[lane] = at_end  # the last end of a lane stands last, so it remains
                finished = ended.any(axis=0)
                running[...] = np.where(finished, total[-1] - last, running + total[-1])
            self.count += len(lane)
        else:
            self._return += earned[-1]
            self._length += lasted[-1]

    def count_step(self, lane: int, reward: float, ended: bool) -> None:
        """Take in one decision of one lane (lanes with a time of their own)."""
        self._return[lane] += reward
        self._length[lane] += 1
        if ended:
            self.record(float(self._return[lane]), float(self._length[lane]))
            self._return[lane] = self._length[lane] = 0.0

    def record(self, total: float, length: float) -> None:
        self.count += 1
        self.returns.append(total)
        self.lengths.append(length)

    def forget(self, lanes: Array) -> None:
        """These lanes were restarted in the middle of an episode."""
        self._return[lanes] = 0.0
        self._length[lanes] = 0.0

    def drain(self) -> tuple[int, list[float], list[float]]:
        """Number, returns and lengths of the episodes since the last call."""
        count, returns, lengths = self.count, self.returns, self.lengths
        self.count, self.returns, self.lengths = 0, [], []
        if len(returns) > MAX_REPORTED:
            chosen = np.linspace(0, len(returns) - 1, MAX_REPORTED).astype(int)
            returns, lengths = [returns[i] for i in chosen], [lengths[i] for i in chosen]
        return count, returns, lengths
