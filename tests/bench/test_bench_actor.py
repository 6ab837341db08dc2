"""`srl bench actor`: the overhead of an actor compared with its bare environment."""

from __future__ import annotations

import pytest

from srl.bench.actor import raw_actor
from srl.bench.options import BenchOptions


def test_a_measurement_shorter_than_its_blocks_still_has_a_rate() -> None:
    found = raw_actor(BenchOptions(seconds=0.1))
    assert found["actor_fps"] > 0
    assert found["bare_fps"] > 0


def test_a_measurement_needs_time() -> None:
    with pytest.raises(ValueError, match="seconds must be positive, found 0"):
        BenchOptions(seconds=0)
