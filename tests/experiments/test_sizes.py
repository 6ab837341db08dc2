"""Sizes that a run chose, when it is resumed."""

from __future__ import annotations

from typing import Any

import pytest

from srl.experiments.graph.sizes import with_sizes
from srl.experiments.options.keywords import make_options

BEFORE = make_options(lanes=16)
SIZES = {"actors": 7, "lanes": 16, "ring": 2, "horizon": 32, "batch": 7168}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, SIZES),
        ({"steps": 5}, SIZES),
        ({"actors": 4}, {**SIZES, "actors": 4}),
        ({"actors": None}, {**SIZES, "actors": None}),  # to be chosen for this machine
        ({"scheduler": "hosts"}, {**SIZES, "actors": None}),
        ({"scheduler": "processes"}, SIZES),  # which it was already
        ({"lanes": 8}, {**SIZES, "lanes": 8, "batch": None}),
        ({"trainers": 2}, {**SIZES, "batch": None}),
        ({"trainers": 2, "batch": 512}, {**SIZES, "batch": 512}),
    ],
    ids=str,
)
def test_sizes_stay_unless_the_user_changes_options_they_depend_on(
    given: dict[str, Any], wanted: dict[str, Any]
) -> None:
    options = with_sizes(BEFORE.replace(**given), SIZES, BEFORE, given)
    assert {name: options.value(name) for name in SIZES} == wanted


def test_a_run_without_saved_sizes_chooses_them() -> None:
    assert with_sizes(BEFORE, {}, BEFORE) == BEFORE
