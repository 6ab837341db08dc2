"""Statistics of episodes from infos: success, Gymnasium's RecordEpisodeStatistics, and scalars that the user names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from srl.base.tree import Array

SUCCESS = "is_success"
EPISODE = "episode"  # key of RecordEpisodeStatistics
RAW = {"r": "raw_return", "l": "raw_length"}
"""Statistics of RecordEpisodeStatistics -> our names. They differ from `return` and `length` below wrappers that change
rewards or repeat actions; otherwise the actor leaves them out."""
FINAL_INFO = "final_info"  # key of the last infos of episodes, of a vector environment in autoreset mode SAME_STEP


class InfoFacts:
    """Reader of the last infos of episodes, for a number of lanes. `names` are those of further scalars."""

    def __init__(self, names: Iterable[str], num_lanes: int) -> None:
        self._names = dict.fromkeys((SUCCESS, *names))
        self._num_lanes = num_lanes

    def from_lanes(self, infos: Iterable[tuple[int, Mapping[str, Any]]]) -> dict[str, Array]:
        """Return the statistics [L] of lanes whose episodes ended, given as pairs of lane and info."""
        found: dict[str, Array] = {}
        for lane, info in infos:
            episode = info.get(EPISODE)
            raw = {RAW[key]: episode.get(key) for key in RAW} if isinstance(episode, Mapping) else {}
            for name, value in {**{name: info.get(name) for name in self._names}, **raw}.items():
                number = _number(value)
                if number is not None:
                    found.setdefault(name, np.full(self._num_lanes, np.nan))[lane] = number
        return found

    def from_vector(self, info: Mapping[str, Any], ended: Array) -> dict[str, Array]:
        """Return the statistics [L] in the info of a vector environment, in which episodes `ended` [L]."""
        last = info.get(FINAL_INFO, info)
        if not isinstance(last, Mapping):  # one info per lane
            return self.from_lanes((int(lane), last[lane]) for lane in np.flatnonzero(ended) if last[lane])
        found = {name: self._column(last, name) for name in self._names}
        episode = last.get(EPISODE)
        if isinstance(episode, Mapping):
            found |= {name: self._column(episode, key) for key, name in RAW.items()}
        return {name: np.where(ended, values, np.nan) for name, values in found.items() if values is not None}

    def _column(self, info: Mapping[str, Any], name: str) -> Array | None:
        values = info.get(name)
        if values is None or np.shape(values)[:1] != (self._num_lanes,):
            return None
        numbers = [_number(value) for value in values]
        column = np.array([np.nan if number is None else number for number in numbers])
        known = info.get(f"_{name}")
        return column if known is None else np.where(known, column, np.nan)


def _number(value: Any) -> float | None:
    """Return a scalar as a float (0 or 1 for a bool), or None for anything else."""
    if isinstance(value, (bool, int, float, np.bool_, np.number)):
        return float(value)
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "biuf":
        return float(value.reshape(-1)[0])
    return None
