"""Trees: an array, or a dictionary of trees. The one shape in which data moves through SRL."""

from __future__ import annotations

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
    """Shape and dtype of one array, without its leading (time, lane) axes."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    def empty(self, *leading: int) -> Array:
        return np.zeros((*leading, *self.shape), self.dtype)


def joined(path: str, key: str) -> str:
    """The path of a part, given that of the whole."""
    return f"{path}{SEPARATOR}{key}" if path else key


def leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its path (`camera/left`), keys in sorted order; a bare leaf has the path ``""``."""
    if isinstance(tree, Mapping):
        for key in sorted(tree):
            yield from leaves(tree[key], joined(prefix, key))
    else:
        yield prefix, tree


def from_leaves(items: Mapping[str, Any]) -> Any:
    """The inverse of :func:`leaves`."""
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
    """Apply `function` to each leaf, or to the leaves that stand at the same place of several trees."""
    if isinstance(tree, Mapping):
        return {key: map_tree(function, value, *(other[key] for other in others)) for key, value in tree.items()}
    return function(tree, *others)


def assign(target: Tree, source: Tree) -> None:
    """Copy every leaf of `source` into the same place of `target`."""
    if isinstance(target, Mapping):
        for key, value in target.items():
            assign(value, source[key])
    else:
        target[...] = source


def lane_of(batch: Any, lane: int) -> Any:
    """One of a batch of native values: arrays, and dictionaries and tuples of them."""
    if isinstance(batch, Mapping):
        return {key: lane_of(part, lane) for key, part in batch.items()}
    return tuple(lane_of(part, lane) for part in batch) if isinstance(batch, tuple) else batch[lane]
