"""Recorded data as blocks: what actors would have sent if they had played the episodes of a data set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from srl.api.block import BlockSpec
from srl.api.spaces import Space
from srl.base.tree import Array, leaves
from srl.datasets.reader import Dataset, DatasetError, Episode, locate

HORIZON = 256
"""Steps per block. The rows of all episodes follow each other in one lane, as an actor records them."""
TRACK = "data"


class RecordedData:
    """One or several data sets of the same environment."""

    def __init__(self, names: Iterable[str]) -> None:
        self._datasets = [Dataset(locate(name)) for name in names]

    @property
    def folders(self) -> tuple[Path, ...]:
        return tuple(dataset.folder for dataset in self._datasets)

    @property
    def num_steps(self) -> int:
        return sum(dataset.num_steps for dataset in self._datasets)

    @property
    def num_blocks(self) -> int:
        rows = sum(dataset.num_rows for dataset in self._datasets)
        return -(-rows // HORIZON)

    def check(self, observation: Space, action: Space) -> None:
        """Raise DatasetError unless all data sets have these spaces and can be read."""
        for dataset in self._datasets:
            dataset.check(observation, action)

    def blocks(self, spec: BlockSpec, observation: Space, action: Space) -> Iterator[dict[str, Array]]:
        """Yield the arrays of one block after the other; they are reused for the next one."""
        episodes = (episode for dataset in self._datasets for episode in dataset.episodes(observation, action))
        for number, arrays in enumerate(blocks_of(episodes, spec)):
            if number == self.num_blocks:
                raise DatasetError(f"{self.folders[0]} has more steps than its metadata says")
            yield arrays


def block_spec(observation: Any, decision: Any) -> BlockSpec:
    """Return the layout of blocks for these specs of arrays."""
    return BlockSpec(HORIZON, 1, observation, decision)


def fill(
    insert: Callable[[dict[str, Array], str, int], object], blocks: Iterable[dict[str, Array]], horizon: int = HORIZON
) -> None:
    """Insert blocks, each of which continues the one before it."""
    for number, arrays in enumerate(blocks):
        insert(arrays, TRACK, number * horizon)


def blocks_of(episodes: Iterable[Episode], spec: BlockSpec) -> Iterator[dict[str, Array]]:
    """Cut the rows of all episodes into blocks. The last row of a block is the first one of the next block. Rows after
    the last episode are empty: nothing acts in them."""
    arrays = {path: leaf.empty(spec.rows, spec.lanes) for path, leaf in spec.arrays()}
    filled = 0
    for episode in episodes:
        rows = dict(_rows(episode))
        count, start = episode.num_steps + 1, 0
        while start < count:
            taken = min(count - start, spec.rows - filled)
            for path, values in rows.items():
                arrays[path][filled : filled + taken, 0] = values[start : start + taken]
            start, filled = start + taken, filled + taken
            if filled == spec.rows:
                yield arrays
                for array in arrays.values():
                    array[0] = array[-1]
                filled = 1
    if filled > 1:  # otherwise the only row is the last one of an episode, which the block before has, too
        for array in arrays.values():
            array[filled:] = 0
        yield arrays


def _rows(episode: Episode) -> Iterator[tuple[str, Array]]:
    """Yield path and rows [n+1, ...] of each array of a block that is not zero. The last observation has a row of its
    own, in which nothing acts."""
    count = episode.num_steps
    acting, first = np.ones(count + 1, bool), np.zeros(count + 1, bool)
    acting[-1], first[0] = False, True
    truncated = episode.truncated.copy()
    truncated[-1] |= not episode.terminated[-1]  # a recording that stops in an episode says nothing about its end
    yield "acting", acting
    yield "first", first
    for name, values in (("reward", episode.reward), ("terminated", episode.terminated), ("truncated", truncated)):
        yield name, np.append(values, np.zeros(1, values.dtype))
    for path, values in leaves({"observation": episode.observation}):
        yield path, values
    for path, values in leaves({"decision": {"action": episode.action}}):
        yield path, np.concatenate((values, np.zeros_like(values[:1])))
