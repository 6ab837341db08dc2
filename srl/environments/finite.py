"""Finding lanes whose observation or reward is NaN or infinite."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from srl.base.tree import Array, Tree, leaves


def all_finite(tree: Tree) -> bool:
    """Whether every real number of the tree is finite. One pass over the batch; integers cost nothing."""
    if isinstance(tree, Mapping):
        return all(all_finite(item) for item in tree.values())
    return tree.dtype.kind != "f" or int(np.count_nonzero(np.isfinite(tree))) == tree.size


def broken_lanes(observation: Tree, reward: Array) -> dict[int, str]:
    """What is wrong with each lane that holds a number that is not finite."""
    found: dict[int, str] = {}
    for path, leaf in (*leaves(observation), ("reward", reward)):
        if leaf.dtype.kind == "f":
            finite = np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1)  # [L]
            what = "reward" if leaf is reward else f"observation {path!r}" if path else "observation"
            for lane in np.flatnonzero(~finite):
                found.setdefault(int(lane), f"{what} is not finite: {np.array2string(leaf[lane], threshold=20)}")
    return found
