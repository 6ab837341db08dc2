"""Configurations of searches: Gumbel MuZero and PUCT."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from srl.base.tree import Array
from srl.search import kernels
from srl.search.kernels import Rules
from srl.search.mlp import MLPModel
from srl.search.noise import Rng
from srl.search.results import Evaluation, SearchResult, Step
from srl.search.states import as_array
from srl.search.trees import Trees

Model = Callable[[Any, Any], Step | tuple[Any, Any, Any, Any]]
NUMBERS_PER_EDGE, NUMBERS_PER_NODE, BYTES_PER_LANE = 4, 7, 36
NUMBERS_PER_CACHE_LINE = 16


@dataclass(frozen=True)
class Search(ABC):
    """What both kinds of searches have in common."""

    num_simulations: int
    num_actions: int
    discount: float = 0.997
    """Discount of models that return four values. A `Step` has its own."""
    num_outcomes: int = 0
    """Largest number of outcomes of a chance node; 0: there are none."""
    max_memory_mb: int = 4096
    """Memory that trees and states may take."""

    def __post_init__(self) -> None:
        if self.num_simulations < 1:
            raise ValueError(f"a search needs num_simulations >= 1, found {self.num_simulations}")
        if self.num_actions < 1:
            raise ValueError(f"a search needs num_actions >= 1, found {self.num_actions}")
        if self.num_outcomes < 0:
            raise ValueError(f"num_outcomes must be at least 0, found {self.num_outcomes}")

    @property
    def width(self) -> int:
        """Number of edges of a node."""
        return max(self.num_actions, self.num_outcomes)

    @property
    def needs_logits(self) -> bool:
        return self.kind == kernels.GUMBEL

    @property
    def record_size(self) -> int:
        """Return the number of 4-byte numbers of a node, in whole cache lines."""
        numbers = self.width * (NUMBERS_PER_EDGE + self.needs_logits) + NUMBERS_PER_NODE
        return -(-numbers // NUMBERS_PER_CACHE_LINE) * NUMBERS_PER_CACHE_LINE

    @property
    @abstractmethod
    def kind(self) -> int: ...

    @property
    @abstractmethod
    def rules(self) -> Rules: ...

    @property
    def noise_alpha(self) -> float:
        return 0.0

    @property
    @abstractmethod
    def noise_scale(self) -> float: ...

    def bytes(self, num_lanes: int, state_bytes: int = 0) -> int:
        """Return the memory of the trees of so many lanes, with states of so many bytes."""
        num_nodes = self.num_simulations + 1
        per_node = 4 * self.record_size + state_bytes
        return num_lanes * (num_nodes * per_node + state_bytes + 4 * self.num_actions + BYTES_PER_LANE)

    def check_memory(self, num_lanes: int, state_bytes: int) -> None:
        """Raise an error if the search would take too much memory."""
        needed = self.bytes(num_lanes, state_bytes)
        if needed > self.max_memory_mb * 2**20:
            raise ValueError(
                f"a search of {num_lanes} lanes with {self.num_simulations} simulations, {self.width} actions and "
                f"states of {state_bytes} bytes needs {math.ceil(needed / 2**20)} MB, more than max_memory_mb="
                f"{self.max_memory_mb}; search fewer lanes at once, use fewer simulations, or "
                "sample some of the actions (Sampled MuZero)"
            )

    def build(self, num_lanes: int) -> Trees:
        """Return trees that are searched step by step."""
        return Trees(self, num_lanes)

    def run(
        self, root: Evaluation, step: Model, rng: Rng | None = None, legal: Any = None, noise: bool = True
    ) -> SearchResult:
        """Search from all roots at once, with one call of the model per simulation.

        `root` is an `Evaluation` of L states. `step` maps states [L, ...] and actions [L] to a `Step`, or to (state,
        reward, value, logits). `rng` is a sequence of one generator per lane, an array [L] of seeds that the search
        advances, or one generator. `legal` [L, A] masks the actions of the roots. Without `noise` the
        search is deterministic."""
        num_lanes = len(as_array(root[1]))
        trees = self._pool.pop() if self._pool else None
        if trees is None or trees.num_lanes < num_lanes:
            trees = Trees(self, num_lanes)
        trees.stop()
        trees.begin(root, rng, legal=legal, noise=noise)
        if isinstance(step, MLPModel):
            trees.run_compiled(step)
        else:
            for _ in range(self.num_simulations):
                trees.expand(step(*trees.select()))
        result = trees.finish()
        self._pool.append(trees)
        return result

    @cached_property
    def _pool(self) -> list[Trees]:
        """Trees that no call of `run` uses now, so that calls in several threads do not share them."""
        return []


@dataclass(frozen=True)
class GumbelSearch(Search):
    """Gumbel MuZero (Danihelka et al. 2022): sequential halving at the root, and inside of the tree the action whose
    visits are furthest below the improved policy. It improves the policy with any number of simulations."""

    max_considered: int = 16
    """Number of root actions that sequential halving starts with."""
    value_scale: float = 0.1
    max_visit_init: float = 50.0
    """sigma(q) = (max_visit_init + most visits) * value_scale * q, with q rescaled to [0, 1] in each node."""
    gumbel_scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_considered < 1:
            raise ValueError(f"max_considered must be at least 1, found {self.max_considered}")

    @property
    def kind(self) -> int:
        return kernels.GUMBEL

    @property
    def noise_scale(self) -> float:
        return self.gumbel_scale

    @property
    def rules(self) -> Rules:
        visits = np.arange(self.num_simulations + 2)
        considered = min(self.max_considered, self.num_actions)
        rows = [halving(m, self.num_simulations) for m in range(considered + 1)]
        return Rules(
            kind=self.kind,
            by=kernels.BY_NODE,
            unvisited=kernels.MEAN,
            num_actions=self.num_actions,
            num_outcomes=self.num_outcomes,
            num_simulations=self.num_simulations,
            factor=((self.max_visit_init + visits) * self.value_scale).astype(np.float32),
            halving=np.array(rows, np.int32),
        )


@dataclass(frozen=True)
class PUCTSearch(Search):
    """The search of AlphaZero and MuZero (Schrittwieser et al. 2020): upper bounds, and Dirichlet noise at the root."""

    c1: float = 1.25
    c2: float = 19652.0
    dirichlet_alpha: float = 0.3
    dirichlet_fraction: float = 0.25
    normalization: Literal["tree", "node"] = "tree"
    """Values are normalized by the lowest and the highest q of the tree, or by the value and the q of the node."""
    unvisited: Literal["lowest", "mean"] = "lowest"
    """Value of an action without visits: the lowest one, or the mean of the network's value and of the q of others."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.dirichlet_fraction <= 1:
            raise ValueError(f"dirichlet_fraction must be from 0 to 1, found {self.dirichlet_fraction}")
        if self.dirichlet_alpha <= 0:
            raise ValueError(f"dirichlet_alpha must be above 0, found {self.dirichlet_alpha}")
        for name, options in (("normalization", ("tree", "node")), ("unvisited", ("lowest", "mean"))):
            if getattr(self, name) not in options:
                raise ValueError(f"{name} must be {options[0]!r} or {options[1]!r}, found {getattr(self, name)!r}")

    @property
    def kind(self) -> int:
        return kernels.PUCT

    @property
    def noise_alpha(self) -> float:
        return self.dirichlet_alpha

    @property
    def noise_scale(self) -> float:
        return self.dirichlet_fraction

    @property
    def rules(self) -> Rules:
        visits = np.arange(self.num_simulations + 2)
        return Rules(
            kind=self.kind,
            by=kernels.BY_TREE if self.normalization == "tree" else kernels.BY_NODE,
            unvisited=kernels.LOWEST if self.unvisited == "lowest" else kernels.MEAN,
            num_actions=self.num_actions,
            num_outcomes=self.num_outcomes,
            num_simulations=self.num_simulations,
            factor=(np.sqrt(visits) * (self.c1 + np.log((visits + self.c2 + 1) / self.c2))).astype(np.float32),
            halving=np.zeros((1, 1), np.int32),
        )


def halving(num_considered: int, num_simulations: int) -> Array:
    """Return the visits that the action of each simulation has, if sequential halving starts with so many actions."""
    if num_considered <= 1:
        return np.arange(num_simulations)
    rounds = math.ceil(math.log2(num_considered))
    visits: list[int] = [0] * num_considered
    sequence: list[int] = []
    while len(sequence) < num_simulations:
        for _ in range(max(1, num_simulations // (rounds * num_considered))):
            sequence += visits[:num_considered]
            visits[:num_considered] = [count + 1 for count in visits[:num_considered]]
        num_considered = max(2, num_considered // 2)
    return np.array(sequence[:num_simulations])
