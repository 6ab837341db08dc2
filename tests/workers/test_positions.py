"""Positions of lanes, for policies that explore differently in each lane."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.rigs import ActorRig

from srl.workers.actor.recorder import positions_of

TRACER, TURNS = "srl.testing.environments:Tracer", "pettingzoo:srl.testing.probe_environments:turn_bonus"


def test_positions_of_an_actor_are_evenly_spaced_and_those_of_other_actors_between_them() -> None:
    assert positions_of(0, 0, 1, 4).tolist() == [0, 0.25, 0.5, 0.75]
    assert positions_of(1, 0, 1, 4).tolist() == [0.125, 0.375, 0.625, 0.875]
    assert [float(positions_of(actor, 0, 1, 1)[0]) for actor in range(5)] == [0, 1 / 2, 1 / 4, 3 / 4, 1 / 8]
    assert positions_of(0, 1, 2, 2).tolist() == [0.5, 0.75]  # the second slot of a ring


@pytest.mark.parametrize("in_loop", [True, False])
def test_every_row_has_the_position_of_its_lane_and_the_policy_gets_it(
    rig: Callable[..., ActorRig], in_loop: bool
) -> None:
    one = rig(TRACER, copies=2, horizon=3, ring=2, length=5, positions=True)
    for group in one.actor._groups:
        group._is_plain = in_loop
    one.publish(0)
    blocks = one.blocks(4)
    for (track, _), rows in zip(one.tracks, blocks, strict=True):
        expected = np.broadcast_to([[0.0, 0.25], [0.5, 0.75]][track], (4, 2))
        np.testing.assert_array_equal(rows["position"], expected)
        np.testing.assert_array_equal(rows["decision/value"], expected)


def test_lanes_that_take_turns_have_positions_too(rig: Callable[..., ActorRig]) -> None:
    pytest.importorskip("pettingzoo")
    one = rig(TURNS, copies=2, horizon=2, positions=True)
    one.publish(0)
    blocks = one.blocks(8)
    for (track, _), rows in zip(one.tracks, blocks, strict=True):
        np.testing.assert_array_equal(rows["position"], np.full((3, 1), track / 4))
        np.testing.assert_array_equal(rows["decision/value"], np.full((3, 1), track / 4))
    assert {track for track, _ in one.tracks} == {0, 1, 2, 3}
