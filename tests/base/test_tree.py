"""Trees of arrays and their leaves."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from srl.base.tree import ArraySpec, Tree, assign, from_leaves, leaves, map_tree

TREES = st.recursive(
    st.integers(),
    lambda inner: st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, min_size=1, max_size=3),
    max_leaves=8,
)


def test_leaves_are_in_sorted_order_with_their_paths() -> None:
    tree = {"camera": {"right": 2, "left": 1}, "arm": 0}
    assert list(leaves(tree)) == [("arm", 0), ("camera/left", 1), ("camera/right", 2)]
    assert list(leaves(7)) == [("", 7)]
    assert list(leaves({"x": 1}, "observation")) == [("observation/x", 1)]


@settings(max_examples=50, deadline=None)
@given(tree=TREES)
def test_from_leaves_is_the_inverse(tree: Any) -> None:
    assert from_leaves(dict(leaves(tree))) == tree


def test_functions_apply_to_leaves_with_the_same_path() -> None:
    assert map_tree(lambda a, b: a + b, {"x": 1, "y": {"z": 2}}, {"y": {"z": 20}, "x": 10}) == {"x": 11, "y": {"z": 22}}


def test_specs_report_their_size_and_create_arrays() -> None:
    assert ArraySpec((4, 3), "uint8").nbytes == 12
    assert ArraySpec((), "float32").empty(7).shape == (7,)


def test_assign_copies_into_the_same_memory() -> None:
    x, z = np.zeros(2), np.zeros(1)
    target: Tree = {"x": x, "y": {"z": z}}
    assign(target, {"x": np.array([1.0, 2.0]), "y": {"z": np.array([3.0])}})
    assert x.tolist() == [1.0, 2.0]
    assert z.tolist() == [3.0]
