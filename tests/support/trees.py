"""Typed access to the arrays of a tree."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from srl.base.tree import Array, Tree


def leaf(tree: Tree | None, *keys: str) -> Array:
    """Return the array under these keys; fail if there is none."""
    for key in keys:
        assert isinstance(tree, Mapping), f"{key!r} in an array"
        tree = tree[key]
    assert isinstance(tree, np.ndarray), f"{type(tree).__name__} is not an array"
    return tree
