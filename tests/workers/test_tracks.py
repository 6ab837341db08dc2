"""Tracks of blocks: a replay joins two blocks only if no row between them is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from support.rigs import ActorRig, Rows

from srl.workers.actor import lane_group
from srl.workers.actor.aligned_recorder import AlignedRecorder

TRACER = "srl.testing.environments:Tracer"
DYING_TEAM = "support.games:DyingTeam"


def joints(one: ActorRig, blocks: Sequence[Rows], horizon: int) -> tuple[int, int]:
    """Check that blocks that continue each other share a row. Return the number of joints and of gaps."""
    last: dict[int, tuple[int, Rows]] = {}
    joined = gaps = 0
    for (track, first_step), block in zip(one.tracks, blocks, strict=True):
        if track in last:
            step, before = last[track]
            assert first_step > step
            if first_step == step + horizon:
                joined += 1
                for path in ("observation", "acting", "first"):
                    np.testing.assert_array_equal(before[path][-1], block[path][0])
            else:
                gaps += 1
        last[track] = first_step, block
    return joined, gaps


def test_blocks_of_each_lane_group_continue_each_other(rig: Callable[..., ActorRig]) -> None:
    one = rig(TRACER, horizon=4, ring=2, length=3)
    one.publish(0)
    blocks = one.blocks(12)
    assert {track for track, _ in one.tracks} == {0, 1}
    assert joints(one, blocks, 4) == (10, 0)


def test_a_rebuilt_environment_leaves_a_gap(rig: Callable[..., ActorRig]) -> None:
    one = rig(TRACER, copies=1, horizon=4, length=3)
    one.publish(0)
    blocks = one.blocks(3)
    group = one.actor._groups[0]

    def broken(actions: Any) -> Any:
        raise RuntimeError("the simulator is gone")

    assert group.lanes is not None
    group.lanes.step = broken  # type: ignore[method-assign]
    blocks += one.blocks(4)
    assert joints(one, blocks, 4) == (5, 1)


@pytest.mark.parametrize("row", [1, 3])
def test_a_block_that_was_lost_with_its_trainer_leaves_a_gap(
    rig: Callable[..., ActorRig], monkeypatch: pytest.MonkeyPatch, row: int
) -> None:
    monkeypatch.setattr(lane_group, "MAX_ROWS", 1)
    one = rig(TRACER, copies=1, horizon=4, length=3)
    one.publish(0)
    blocks = one.blocks(2)
    recorder = one.actor._groups[0].recorders[0]
    assert isinstance(recorder, AlignedRecorder)
    while recorder.row != row:
        one.play(1)
    one.replace_consumer()
    one.updates["policy"] = 0
    blocks += one.blocks(3)
    assert joints(one, blocks, 4) == (3, 1)


def test_rows_without_admission_leave_a_gap(rig: Callable[..., ActorRig]) -> None:
    pytest.importorskip("pettingzoo")
    one = rig(DYING_TEAM, copies=1, horizon=2, max_lag=0, aligned=False)
    one.publish(0)
    blocks = []
    for version in range(1, 12):
        one.play(3 if version % 2 else 40)
        blocks += one.blocks(1)
        one.publish(version)
        one.consumer().advance(version)
    joined, gaps = joints(one, blocks, 2)
    assert gaps > 0
    assert joined + gaps == len(blocks) - len({track for track, _ in one.tracks})
