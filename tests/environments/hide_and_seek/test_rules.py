import numpy as np
import pytest
from support.hide_and_seek_scenes import LEFT, RIGHT, STILL, UP, Stage

PULL, LOCK = (5, 5, 5, 1, 0), (5, 5, 5, 0, 1)


# Grabbing


def test_agents_grab_objects_that_they_see_within_a_quarter_of_a_meter():
    for gap, held in ((0.24, 0), (0.26, -1)):
        stage = Stage([(3, 3)], boxes=[(3 + 0.25 + gap, 3)], yaws=[RIGHT])
        stage.step(PULL)
        assert stage.held == [held]


def test_unseen_objects_cannot_be_grabbed():
    stage = Stage([(3, 3)], boxes=[(3.45, 3)], yaws=[LEFT])
    stage.step(PULL)
    assert stage.held == [-1]


def test_the_nearer_of_two_objects_is_grabbed_even_if_it_is_a_ramp():
    stage = Stage([(3, 3)], boxes=[(3.45, 3)], ramps=[(3, 3.41)], yaws=[(UP + RIGHT) / 2])
    assert stage.sees(0, 1)
    assert stage.sees(0, 2)
    stage.step(PULL)
    assert stage.held == [0]  # Ramps are counted first.


def test_the_cuboid_of_a_ramp_is_the_mis_oriented_one():
    # 0.2357 to the side instead of 0.25: 0.26 m from its true side is 0.2743 from this one.
    stage = Stage([(3, 3)], ramps=[(3.5, 3)], yaws=[RIGHT])
    assert stage.game.perception.reach[0, 0, 0] == pytest.approx(0.5 - 0.2357)


def test_letting_go_or_turning_away_ends_a_hold():
    stage = Stage([(3, 3)], boxes=[(3.45, 3)], yaws=[RIGHT])
    stage.step(PULL)
    assert stage.held == [0]
    stage.step(STILL)
    assert stage.held == [-1]
    stage.step(PULL)
    stage.put(yaws=[LEFT])
    stage.step(PULL)
    assert stage.held == [-1]


def test_several_agents_may_hold_one_object_and_a_locked_one_too():
    stage = Stage([(3, 3)], [(3.9, 3)], boxes=[(3.45, 3)], yaws=[RIGHT, LEFT])
    stage.step(LOCK, STILL)
    assert stage.locked == [True]
    stage.step((5, 5, 5, 1, 1), PULL)
    assert stage.held == [0, 0]
    assert stage.locked == [True]


def test_a_hold_keeps_its_initial_pose():
    stage = Stage([(3, 3)], boxes=[(3.45, 3)], yaws=[RIGHT])
    stage.step(PULL)
    stage.steps(5, (5, 10, 5, 1, 0))
    offset = stage.center(1) - stage.center(0)
    assert np.hypot(*offset[:2]) == pytest.approx(0.45, abs=0.03)


# Locking


def test_a_lock_stays_without_an_agent_near():
    stage = Stage([(3, 3)], boxes=[(3.45, 3)], yaws=[RIGHT])
    stage.step(LOCK)
    assert stage.locked == [True]
    stage.steps(3, (0, 5, 5, 0, 1))
    stage.steps(5, (0, 5, 5, 0, 0))
    assert stage.locked == [True]


def test_the_locker_unlocks_by_not_pressing():
    stage = Stage([(3, 3)], boxes=[(3.45, 3)], yaws=[RIGHT])
    stage.step(LOCK)
    stage.step(STILL)
    assert stage.locked == [False]


def test_only_the_team_of_the_owner_can_unlock():
    stage = Stage([(1, 1)], [(3, 3)], boxes=[(3.45, 3)], yaws=[0, RIGHT])
    stage.step(STILL, LOCK)
    assert stage.locked == [True]
    assert stage.game.manipulation.owner[0, 0] == 1
    stage = Stage([(3.9, 3)], [(3, 3)], boxes=[(3.45, 3)], yaws=[RIGHT, RIGHT])
    stage.step(STILL, LOCK)  # The hider, beside it too, looks away.
    stage.put(yaws=[LEFT])
    assert stage.sees(0, 2)
    for hider in (STILL, LOCK, STILL):
        stage.step(hider, LOCK)
        assert stage.locked == [True], "a hider has no say in a seeker's lock"
    stage.step(LOCK, STILL)
    assert stage.locked == [False], "the seeker opens it, whoever else presses"
    stage = Stage([(3, 3)], [(3.9, 3)], boxes=[(3.45, 3)], yaws=[RIGHT, LEFT])
    stage.step(LOCK, STILL)
    assert stage.game.manipulation.owner[0, 0] == 0
    stage.step(LOCK, STILL)  # a seeker next to it that does not press has no effect
    assert stage.locked == [True]


def test_a_teammate_that_does_not_press_prevents_and_opens_a_lock():
    stage = Stage([(3, 3), (3.9, 3)], boxes=[(3.45, 3)], yaws=[RIGHT, LEFT])
    stage.step(LOCK, STILL)
    assert stage.locked == [False]
    stage.step(LOCK, LOCK)
    assert stage.locked == [True]
    stage.step(LOCK, STILL)
    assert stage.locked == [False]


def test_hiders_have_a_veto_on_objects_that_were_never_locked():
    stage = Stage([(3, 3)], [(3.9, 3)], boxes=[(3.45, 3)], yaws=[RIGHT, LEFT])
    stage.step(STILL, LOCK)
    assert stage.locked == [False]
    stage.put(yaws=[LEFT])  # The hider looks away.
    stage.step(STILL, LOCK)
    assert stage.locked == [True]


def test_the_owner_is_drawn_from_the_agents_that_press():
    owners = set()
    for seed in range(20):
        stage = Stage([(3, 3), (3.9, 3)], boxes=[(3.45, 3)], yaws=[RIGHT, LEFT])
        for _ in range(seed):
            stage.draws[0].random()
        stage.step(LOCK, LOCK)
        owners.add(int(stage.game.manipulation.owner[0, 0]))
    assert owners == {0, 1}


@pytest.mark.parametrize("lockable", [True, False])
def test_ramps_are_locked_where_the_options_say_so(lockable):
    stage = Stage([(3, 3)], ramps=[(3.45, 3)], yaws=[RIGHT], lock_ramps=lockable)
    stage.step(LOCK)
    assert stage.locked == [lockable]


# Preparation and reward


def test_seekers_cannot_move_and_rewards_are_zero_in_the_first_forty_percent():
    stage = Stage([(1, 1)], [(3, 3)], boxes=[(3.45, 3)], yaws=[0, RIGHT], preparing=True, horizon=10)
    for step in range(4):
        reward = stage.step(STILL, (0, 5, 5, 1, 1))
        assert reward.tolist() == [0, 0], step
        assert stage.held == [-1, -1]
    assert stage.center(1)[:2] == pytest.approx((3, 3), abs=1e-3)
    assert stage.step(STILL, (0, 5, 5, 0, 0)).tolist() == [1, -1]
    assert stage.center(1)[0] < 2.9


def test_the_preparation_of_240_steps_is_96_and_of_80_is_32():
    assert Stage([(1, 1)], preparing=True, horizon=240).options.num_preparation == 96
    assert Stage([(1, 1)], preparing=True, horizon=80).options.num_preparation == 32


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("joint_zero_sum", [-1, -1, 1, 1]),
        ("selfish", [-1, 1, 1, -1]),
        ("joint_mean", [0, 0, 0, 0]),
    ],
)
def test_rewards_when_one_seeker_sees_one_hider(kind, expected):
    stage = Stage([(3, 3), (1, 1)], [(2, 3), (5, 5)], yaws=[LEFT, LEFT, RIGHT, RIGHT], reward=kind)
    assert stage.step().tolist() == expected


def test_hiders_are_rewarded_when_unseen_even_if_they_see():
    stage = Stage([(3, 3)], [(2, 3)], yaws=[LEFT, LEFT])
    assert stage.sees(0, 1)
    assert stage.step().tolist() == [1, -1]


def test_an_agent_out_of_bounds_gets_minus_ten_instead():
    stage = Stage([(12.1, 3)], [(2, 3)])
    assert stage.step().tolist() == [-10, -1]
    stage = Stage([(12.1, 3)], [(2, 3)], scale=1.5)
    assert stage.step().tolist() == [1, -1]


def test_an_object_out_of_bounds_is_a_penalty_for_all_with_that_option():
    bounds = (0.1, 0.1, 5.9, 5.9)
    for punished, expected in ((True, [-10, -10]), (False, [1, -1])):
        stage = Stage([(3, 3)], [(2, 1)], boxes=[(6, 3)], bounds=bounds, penalize_objects_out=punished)
        assert stage.step().tolist() == expected


def test_there_are_no_penalties_in_preparation():
    stage = Stage([(12.1, 3)], [(2, 3)], preparing=True)
    assert stage.step().tolist() == [0, 0]


# Food


def eat(**changes):
    situation = {"hiders": [(3, 3)], "seekers": [(1, 1)], "food": [(3.2, 2.9)], "yaws": [RIGHT, LEFT], **changes}
    return Stage(**situation, variant="food")


def test_a_hider_eats_what_it_sees_within_half_a_meter():
    stage = eat()
    assert stage.step().tolist() == [2, -1]
    assert stage.game.food.health[0, 0] == 39
    assert eat(yaws=[LEFT, LEFT]).step().tolist() == [1, -1]  # not seen
    assert eat(food=[(3.6, 2.9)]).step().tolist() == [1, -1]  # 0.75 from the agent's corner
    assert eat(preparing=True).step().tolist() == [0, 0]


def test_an_agent_that_eats_out_of_bounds_gets_food_and_penalty():
    assert eat(bounds=(0.0, 0.0, 2.9, 2.9)).step().tolist() == [-9, -1]


def test_a_seen_hider_eats_nothing_unless_an_option_allows_it():
    seen = {"seekers": [(2, 3)], "yaws": [RIGHT, RIGHT]}
    assert eat(**seen).step().tolist() == [-1, 1]
    assert eat(**seen, eat_when_caught=True).step().tolist() == [0, 1]


def test_bites_are_shared_by_the_team_and_the_last_one_is_split():
    stage = eat(hiders=[(3, 3), (3.5, 3)], yaws=[RIGHT, LEFT, LEFT], food_health=3, food=[(3.2, 2.9)], food_reward=10.0)
    assert stage.step().tolist() == [11, 11, -1]  # a bite each
    assert stage.game.food.health[0, 0] == 1
    assert stage.step().tolist() == [6, 6, -1]  # half a bite each
    assert stage.game.food.health[0, 0] == 0
    stage = eat(hiders=[(3, 3), (5, 5)], yaws=[RIGHT, LEFT, LEFT])
    assert stage.step().tolist() == [1.5, 1.5, -1]  # the mean over the team


def test_food_respawns():
    stage = eat(food_health=1, food_respawn=5)
    stage.step()
    health = []
    for _ in range(7):
        health.append(float(stage.game.food.health[0, 0]))
        stage.step((5, 5, 10, 0, 0) if len(health) == 1 else STILL)  # looks away, so as not to eat again at once
    assert health[:5] == [0.0] * 5
    assert health[5] == 1.0


def test_walls_hide_food():
    stage = eat(walls=[(3.1, 3, 0.02, 0.5, 0.25)], hiders=[(2.9, 3)])
    assert stage.step().tolist() == [1, -1]
