"""Trees: an array, or a dictionary of trees. All data in SRL has this form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, Union

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Tree: TypeAlias = Union[Array, Mapping[str, "Tree"]]
TreeSpec: TypeAlias = Union["ArraySpec", Mapping[str, "TreeSpec"]]

SEPARATOR = "/"


@dataclass(frozen=True)
class ArraySpec:
    """Shape and dtype of an array, excluding its leading (time, lane) axes."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def empty(self, *leading: int) -> Array:
        return np.zeros((*leading, *self.shape), self.dtype)


def joined(path: str, key: str) -> str:
    """Return the path of the child `key` of the tree at `path`."""
    return f"{path}{SEPARATOR}{key}" if path else key


def leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each path (`camera/left`) and leaf, sorted by key; a bare leaf has the path ``""``."""
    if isinstance(tree, Mapping):
        for key in sorted(tree):
            yield from leaves(tree[key], joined(prefix, key))
    else:
        yield prefix, tree


def from_leaves(items: Mapping[str, Any]) -> Any:
    """Build a tree from its leaves by path: the inverse of :func:`leaves`."""
    if "" in items:
        return items[""]
    root: dict[str, Any] = {}
    for path, leaf in items.items():
        *parents, last = path.split(SEPARATOR)
        node = root
        for key in parents:
            node = node.setdefault(key, {})
        node[last] = leaf
    return root


def map_tree(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Apply `function` to each leaf, or to the leaves at the same path in several trees."""
    if isinstance(tree, Mapping):
        return {key: map_tree(function, value, *(other[key] for other in others)) for key, value in tree.items()}
    return function(tree, *others)


def assign(target: Tree, source: Tree) -> None:
    """Copy every leaf of `source` into the leaf of `target` at the same path."""
    if isinstance(target, Mapping):
        for key, value in target.items():
            assign(value, source[key])
    else:
        target[...] = source


def lane_of(batch: Any, lane: int) -> Any:
    """Return one lane's value from a batch, which is an array, or a dictionary or tuple of batches."""
    if isinstance(batch, Mapping):
        return {key: lane_of(part, lane) for key, part in batch.items()}
    return tuple(lane_of(part, lane) for part in batch) if isinstance(batch, tuple) else batch[lane]
