import numpy as np
import pytest
from support.hide_and_seek_scenes import DOWN, LEFT, RIGHT, STILL, Stage

from srl.environments.hide_and_seek.lanes import HideAndSeekConfig
from srl.environments.hide_and_seek.rules.stages import STAGES, stages
from srl.environments.hide_and_seek.scripted_players import BusyPlayers, RandomPlayers
from srl.environments.hide_and_seek.variants import VARIANTS

PULL = (5, 5, 5, 1, 0)


def facts(stage):
    return {name: float(values[0]) for name, values in stage.game.episode_statistics().items()}


def test_movement_and_locks_are_reported_for_preparation_and_for_the_episode():
    stage = Stage(
        [(3, 3)], [(1, 1)], boxes=[(3.45, 3), (5, 5)], ramps=[(5, 1)], yaws=[RIGHT, LEFT], preparing=True, horizon=20
    )
    stage.steps(4, (0, 5, 5, 1, 0), STILL)  # drags it by about a meter
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


def test_returns_and_the_share_of_time_in_which_hiders_are_seen():
    stage = Stage([(3, 3)], [(2, 3)], yaws=[LEFT, RIGHT], preparing=True, horizon=10)
    stage.steps(6)
    found = facts(stage)
    assert (found["hider_return"], found["seeker_return"]) == (-2, 2)
    assert (found["seen_share"], found["never_seen"]) == (1, 0)
    stage = Stage([(3, 3)], [(2, 3)], yaws=[LEFT, LEFT])
    stage.steps(3)
    assert (facts(stage)["seen_share"], facts(stage)["never_seen"]) == (0, 1)


def test_surfing_and_high_agents_are_counted():
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


def test_chasing_and_keeping_a_hider_in_sight_is_counted():
    stage = Stage([(5, 3)], [(1, 3)], yaws=[LEFT, RIGHT])
    stage.steps(6, STILL, (10, 5, 5, 0, 0))  # to the right, where it looks
    found = facts(stage)
    assert found["longest_sight_share"] == 1
    assert 4 < found["approach_speed"] < 8
    stage = Stage([(5, 3)], [(3, 3)], yaws=[LEFT, RIGHT])
    stage.steps(6, STILL, (0, 5, 5, 0, 0))  # away from it
    assert -8 < facts(stage)["approach_speed"] < -4
    stage = Stage([(5, 3)], [(1, 3)], yaws=[LEFT, RIGHT])
    for yaw in (RIGHT, RIGHT, LEFT, RIGHT, RIGHT, RIGHT, LEFT, LEFT):
        stage.put(yaws=[LEFT, yaw])
        stage.step()
    assert facts(stage)["longest_sight_share"] == 3 / 8
    assert facts(stage)["seen_share"] == 5 / 8


def calm_but_for(**changes):
    """Return the statistics of an episode in which nothing else happened."""
    facts = dict.fromkeys(Stage([(3, 3)], [(2, 3)]).game.episode_statistics(), 0.0)
    assert changes.keys() <= facts.keys()
    return {name: np.array([value]) for name, value in {**facts, **changes}.items()}


@pytest.mark.parametrize(
    ("stage", "changes"),
    [
        ("chasing", {"approach_speed": 3.0}),
        ("chasing", {"longest_sight_share": 0.6}),
        ("forts", {"num_box_lock_prep": 1, "never_seen": 1}),
        ("ramp_use", {"seeker_high_share": 0.2}),
        ("ramp_defense", {"num_ramp_lock_prep": 2}),
        ("surfing", {"surf_share": 0.05}),
        ("surf_defense", {"box_lock_share_prep": 0.9}),
        (None, {"num_box_lock_prep": 3, "box_lock_share_prep": 0.5, "num_ramp_lock_prep": 1}),
        (None, {"never_seen": 1, "seen_share": 0.8, "approach_speed": 1.0, "longest_sight_share": 0.4}),
    ],
)
def test_stages_follow_from_the_statistics_of_an_episode(stage, changes):
    found = stages(calm_but_for(**changes), VARIANTS["full"])
    assert [name for name, shows in found.items() if shows] == ([f"stage_{stage}"] if stage else [])
    assert list(found) == [f"stage_{name}" for name in STAGES]


def test_ramps_that_cannot_be_locked_are_carried_away():
    carried = calm_but_for(max_ramp_move_prep=2.5)
    assert stages(carried, VARIANTS["quadrant"])["stage_ramp_defense"] == 1
    assert stages(carried, VARIANTS["full"])["stage_ramp_defense"] == 0


def test_an_episode_of_running_after_hiders_counts_as_chasing():
    stage = Stage([(5, 3)], [(1, 3)], yaws=[LEFT, RIGHT])
    stage.steps(6, STILL, (10, 5, 5, 0, 0))
    found = facts(stage)
    assert {name: value for name, value in found.items() if name.startswith("stage_") and value} == {"stage_chasing": 1}


@pytest.mark.parametrize("players", [RandomPlayers, BusyPlayers])
def test_random_players_show_no_stage_and_busy_ones_chase(players):
    lanes = HideAndSeekConfig("quadrant").build(24)
    lanes.reset(0)
    bots = players(lanes.game, 0)
    for _ in range(80):
        time_steps = lanes.step(tuple(bots.act().transpose(1, 0, 2)))
    lanes.close()
    shares = {name: float(time_steps[0].facts[f"stage_{name}"].mean()) for name in STAGES}
    if players is RandomPlayers:
        assert max(shares.values()) <= 0.2, shares
    else:
        assert shares["chasing"] >= 0.2, shares
