"""Sizes that a run chose for itself, when it goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from srl.experiments.options.sizes import with_sizes
from srl.experiments.options.train_options import TrainOptions

BEFORE = TrainOptions(lanes=16)
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
def test_sizes_stay_unless_the_user_gives_something_they_depend_on(
    given: dict[str, Any], wanted: dict[str, Any]
) -> None:
    options = with_sizes(replace(BEFORE, **given), SIZES, BEFORE, given)
    assert {name: getattr(options, name) for name in SIZES} == wanted


def test_a_run_that_wrote_none_down_chooses_anew() -> None:
    assert with_sizes(BEFORE, {}, BEFORE) == BEFORE
