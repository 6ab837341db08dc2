import numpy as np
import pytest
from staged import DOWN, LEFT, RIGHT, STILL, Stage

from srl.environments.hide_and_seek.stages import STAGES, StageDetector

PULL = (5, 5, 5, 1, 0)


def facts(stage):
    return {name: float(values[0]) for name, values in stage.game.facts().items()}


def test_movement_and_locks_are_told_for_preparation_and_for_the_whole():
    stage = Stage(
        [(3, 3)], [(1, 1)], boxes=[(3.45, 3), (5, 5)], ramps=[(5, 1)], yaws=[RIGHT, LEFT], preparing=True, horizon=20
    )
    stage.steps(4, (0, 5, 5, 1, 0), STILL)  # drags it by about a metre
    stage.steps(5, (5, 5, 5, 1, 1), STILL)
    found = facts(stage)
    assert found["num_box_lock_prep"] == found["num_box_lock"] == 1
    assert found["max_box_move_prep"] == pytest.approx(found["max_box_move"], abs=0.01)
    assert found["max_box_move"] > 0.3
    assert found["box_lock_share_prep"] == 0.5
    assert found["ramp_distance_prep"] == pytest.approx(np.hypot(2, 2), abs=0.01)
    assert found["max_ramp_move"] == pytest.approx(0, abs=1e-3)
    stage.steps(3, PULL, STILL)
    assert facts(stage)["num_box_lock"] == 0
    assert facts(stage)["num_box_lock_prep"] == 1


def test_returns_and_how_often_hiders_are_seen():
    stage = Stage([(3, 3)], [(2, 3)], yaws=[LEFT, RIGHT], preparing=True, horizon=10)
    stage.steps(6)
    found = facts(stage)
    assert (found["hider_return"], found["seeker_return"]) == (-2, 2)
    assert (found["seen_share"], found["never_seen"]) == (1, 0)
    stage = Stage([(3, 3)], [(2, 3)], yaws=[LEFT, LEFT])
    stage.steps(3)
    assert (facts(stage)["seen_share"], facts(stage)["never_seen"]) == (0, 1)


def test_surfing_and_standing_high_are_noticed():
    stage = Stage([(1, 1)], [(3, 3)], boxes=[(3, 3)], yaws=[0, -np.pi / 4 + DOWN])
    stage.put(1, height=0.5)
    stage.steps(4, STILL, PULL)
    found = facts(stage)
    assert found["seeker_high_share"] == 1
    assert found["surf_share"] == 1
    stage = Stage([(1, 1)], [(3, 3)], boxes=[(3, 3)], yaws=[0, -np.pi / 4 + DOWN])
    stage.put(1, height=0.5)
    stage.steps(4)
    assert facts(stage)["surf_share"] == 0
    stage = Stage([(1, 1)], [(3, 3)], boxes=[(3.45, 3)], yaws=[0, RIGHT])
    stage.steps(4, STILL, PULL)
    assert facts(stage)["surf_share"] == facts(stage)["seeker_high_share"] == 0


def test_stages_are_told_from_the_statistics_as_they_change():
    stage = Stage([(3, 3)], [(2, 3)])
    calm = dict.fromkeys(stage.game.facts(), 0.0)
    detector = StageDetector(decay=0.9)
    for _ in range(60):
        detector.add(calm)
    assert detector.present() == []
    situations = [
        {"seen_share": 0.4},
        {"seen_share": 0.1, "never_seen": 0.5, "num_box_lock_prep": 2, "max_box_move_prep": 1.5},
        {"seeker_high_share": 0.2, "max_ramp_move": 2.0},
        {"max_ramp_move_prep": 2.0, "num_ramp_lock_prep": 1.5},
        {"surf_share": 0.05},
        {"box_lock_share_prep": 0.9, "num_box_lock_prep": 5},
    ]
    for stage, changes in zip(STAGES, situations, strict=True):
        for _ in range(60):
            detector.add(calm | changes)
        assert stage in detector.present()
