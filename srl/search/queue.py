"""Searches that begin at different times and share the calls of the model."""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from srl.base.tree import Array
from srl.search.noise import Rng
from srl.search.results import Evaluation, SearchResult
from srl.search.search import Model, Search
from srl.search.states import state_bytes
from srl.search.trees import Trees


class _Request(NamedTuple):
    key: int
    num_rows: int
    root: Evaluation
    rng: Rng | None
    legal: Any
    noise: bool


class SearchQueue:
    """Trees that requests join between simulations. Each call of the model serves all of them, so that a request does
    not wait until those before it have finished. A row's result does not depend on the other rows, except for the
    rounding of a model whose results depend on the batch size."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._trees: Trees | None = None
        self._keys = count()
        self._waiting: deque[_Request] = deque()
        self._active: dict[int, Array] = {}  # request -> its lanes, which begin and finish together
        self._most_rows = 0  # that were active or waiting at a time

    def __len__(self) -> int:
        """Return the number of requests that have not finished."""
        return len(self._waiting) + len(self._active)

    def begin(self, root: Evaluation, rng: Rng | None = None, legal: Any = None, noise: bool = True) -> int:
        """Search from the roots of a request, as `Search.run` does. Return the key of its result."""
        request = _Request(next(self._keys), len(root.value), root, rng, legal, noise)
        self._waiting.append(request)
        rows = sum(waiting.num_rows for waiting in self._waiting) + sum(map(len, self._active.values()))
        self._most_rows = max(self._most_rows, rows)
        return request.key

    def advance(self, model: Model) -> list[tuple[int, SearchResult]]:
        """Do one simulation of all requests that have memory, in the order in which they began. Return the results of
        those that are finished with it."""
        while self._waiting and (lanes := self._free_lanes(self._waiting[0])) is not None:
            self._admit(self._waiting.popleft(), lanes)
        trees = self._trees
        if trees is None or not self._active:
            return []
        trees.expand(model(*trees.select()))
        finished = [key for key, lanes in self._active.items() if np.isin(lanes, trees.finished).all()]
        return [(key, trees.finish(self._active.pop(key))) for key in finished]

    def _free_lanes(self, request: _Request) -> Array | None:
        """Return lanes for a request; None: it has to wait."""
        if not self._active and (self._trees is None or self._trees.num_lanes < self._wanted(request)):
            self._trees = self._search.build(self._wanted(request))
        assert self._trees is not None
        used = np.concatenate([*self._active.values(), np.zeros(0, np.int64)])
        free = np.setdiff1d(np.arange(self._trees.num_lanes), used)
        return free[: request.num_rows] if len(free) >= request.num_rows else None

    def _wanted(self, request: _Request) -> int:
        """Return the number of lanes for all requests that came together so far, or as many as fit into memory."""
        per_lane = self._search.bytes(1, state_bytes(request.root.state))
        fitting = self._search.max_memory_mb * 2**20 // per_lane
        return max(request.num_rows, min(self._most_rows, fitting))

    def _admit(self, request: _Request, lanes: Array) -> None:
        assert self._trees is not None
        self._trees.begin(request.root, request.rng, lanes=lanes, legal=request.legal, noise=request.noise)
        self._active[request.key] = lanes
