"""The memory of T steps of L lanes: what actors fill, policies read and trainers gather."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from srl.base.tree import Array, ArraySpec, Tree, TreeSpec, from_leaves, leaves

ALIGNMENT = 64
"""Arrays start on cache lines, so that two workers never write into the same one."""

STEP_ARRAYS = {
    "reward": ArraySpec((), "float32"),
    "terminated": ArraySpec((), "bool"),
    "truncated": ArraySpec((), "bool"),
    "acting": ArraySpec((), "bool"),
    "first": ArraySpec((), "bool"),
    "version": ArraySpec((), "int32"),
}


STATE = "state"
"""The memory of a recurrent policy. Beside the decision it is what the policy will remember (`decision/state`); beside
the observation, what it remembered when it decided (`state`): the first goes into the second of the lane's next row."""


@dataclass(frozen=True)
class BlockSpec:
    """Every array of a block is time-major ``[horizon + 1, lanes, ...]``; the last row bootstraps."""

    horizon: int
    lanes: int
    observation: TreeSpec
    decision: Mapping[str, TreeSpec]

    def arrays(self) -> Iterator[tuple[str, ArraySpec]]:
        """All arrays of one row of one lane with their paths, in the order in which they lie in memory."""
        tree = {"observation": self.observation, "decision": self.decision, **STEP_ARRAYS}
        if STATE in self.decision:
            tree[STATE] = self.decision[STATE]
        yield from leaves(tree)

    @property
    def nbytes(self) -> int:
        return sum(aligned(self.rows * self.lanes * spec.nbytes) for _, spec in self.arrays())

    @property
    def rows(self) -> int:
        return self.horizon + 1


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Block:
    """One block's arrays. `index` is its place in the producer's memory: all that travels on a host."""

    index: int
    arrays: Mapping[str, Array]  # path -> [T+1, L, ...]
    observation: Mapping[str, Array] = field(init=False)
    """The arrays below `observation`, by the rest of their paths; a bare array has the path ``""``."""
    state: Mapping[str, Array] = field(init=False)
    """The same for what the policy remembers; nothing if it has no memory."""
    decision: Mapping[str, Array] = field(init=False)
    """The same for `decision`."""
    version: Array = field(init=False)  # [T+1, L], as `first`
    first: Array = field(init=False)
    num_lanes: int = field(init=False)

    def __post_init__(self) -> None:
        for root in ("observation", STATE, "decision"):
            object.__setattr__(self, root, self._below(root))
        object.__setattr__(self, "version", self.arrays["version"])
        object.__setattr__(self, "first", self.arrays["first"])
        object.__setattr__(self, "num_lanes", self.first.shape[1])

    def _below(self, root: str) -> dict[str, Array]:
        return {p.partition("/")[2]: a for p, a in self.arrays.items() if p.partition("/")[0] == root}

    def tree(self) -> Mapping[str, Tree]:
        """The same arrays as a tree: `observation`, `decision`, `reward`, ..."""
        nested: Mapping[str, Tree] = from_leaves(self.arrays)
        return nested
