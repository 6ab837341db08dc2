"""Schedules at their ends and in between."""

from __future__ import annotations

import pytest

from srl.algorithms.actor_critic import scheduled


def test_schedules_by_hand() -> None:
    assert [scheduled("constant", 2.0, 1.0, progress) for progress in (0.0, 0.5, 1.0)] == [2.0, 2.0, 2.0]
    assert [scheduled("linear", 2.0, 1.0, progress) for progress in (0.0, 0.25, 1.0)] == [2.0, 1.75, 1.0]
    # cos(pi / 3) = 1/2: a quarter of the way after a third of the time
    found = [scheduled("cosine", 2.0, 1.0, progress) for progress in (0.0, 1 / 3, 0.5, 1.0)]
    assert found == pytest.approx([2.0, 1.75, 1.5, 1.0])
