import numpy as np
import pytest
from support.hide_and_seek_scenes import LEFT, RIGHT, STILL, Stage

LOCK = (5, 5, 5, 0, 1)


def test_locking_is_rewarded_with_five_and_the_remaining_distance_and_unlocking_takes_them_back():
    stage = Stage([(3, 3)], boxes=[(3.45, 3)], yaws=[RIGHT], variant="lock-and-return")
    # It is locked before the agent moves away: the remaining 0.45 m are rewarded, and the agent is at its start.
    assert stage.step(LOCK)[0] == pytest.approx(5 + 0.5 * 0.45 + 1, abs=1e-3)
    assert stage.step(LOCK)[0] == pytest.approx(1, abs=1e-3)
    assert stage.step(STILL)[0] == pytest.approx(-5 - 0.5 * 0.45, abs=1e-3)


def test_approaching_the_box_is_rewarded_with_half_a_point_per_meter():
    stage = Stage([(3, 3)], boxes=[(5, 3)], yaws=[LEFT], variant="lock-and-return")
    before = stage.center(0)[0]
    reward = stage.step((10, 5, 5, 0, 0))[0]
    assert reward == pytest.approx(0.5 * (stage.center(0)[0] - before), abs=1e-6)
    assert reward > 0.05


def test_after_locking_the_distance_to_the_start_counts():
    stage = Stage([(3, 3)], boxes=[(3.45, 3)], yaws=[RIGHT], variant="lock-and-return")
    stage.step(LOCK)
    stage.steps(3, (0, 5, 5, 0, 1))
    away = 3 - stage.center(0)[0]
    assert away > 0.5
    reward = stage.step((0, 5, 5, 0, 1))[0]
    farther = 3 - stage.center(0)[0]
    assert reward == pytest.approx(-0.5 * (farther - away), abs=1e-6)


def test_boxes_can_only_be_locked_in_order():
    boxes = [(3.48, 2.97), (2.97, 3.48), (1, 1), (5, 5)]
    stage = Stage([(3, 3)], boxes=boxes, ramps=[(1, 3), (5, 1), (1, 5)], yaws=[RIGHT + 0.8], variant="sequential-lock")
    first, second = 4, 5  # entities: the agent, three ramps, boxes
    assert stage.sees(0, first)
    assert stage.sees(0, second)
    stage.step(LOCK)
    assert stage.locked[3:] == [True, False, False, False]
    reward = stage.step(LOCK)[0]
    assert stage.locked[3:] == [True, True, False, False]
    assert reward == pytest.approx(5 + 0.5 * 0.48, abs=5e-3)


def test_a_blueprint_is_complete_with_a_cube_on_every_site():
    stage = Stage([(1, 1)], boxes=[(3, 3), (5, 5)], sites=[(3.05, 3)], variant="blueprint", num_sites=1)
    reward = stage.step()
    assert bool(stage.terminated[0])
    # The nearest of eight corners is 0.05 away from each corner of the site, the smooth minimum a little more.
    assert 3 - 0.05 * 1.2 < reward[0] < 3
    stage = Stage([(1, 1)], boxes=[(3, 3), (5, 5)], sites=[(3.15, 3)], variant="blueprint", num_sites=1)
    assert -0.1 < stage.step()[0] < 0
    assert not stage.terminated[0]


def test_the_smooth_minimum_is_the_one_of_the_original():
    stage = Stage([(1, 1)], boxes=[(3, 3)], sites=[(4, 3)], variant="blueprint", num_sites=1)
    corners = np.array([(x, y) for x in (-0.25, 0.25) for y in (-0.25, 0.25)])
    far = np.linalg.norm(corners[:, None] - corners[None] + np.array((1, 0)), axis=2)
    weight = np.exp(-1.5 * far)
    expected = -0.05 * ((far * weight).sum(axis=1) / weight.sum(axis=1)).mean()
    assert stage.step()[0] == pytest.approx(expected, abs=1e-4)


def test_a_shelter_costs_a_thousandth_for_each_ray_that_reaches_the_cylinder():
    stage = Stage([(0.5, 0.5)], boxes=[(5.5, 5.5)], cylinder=(3, 3, 0.8), variant="shelter", num_elongated=0)
    exposed = -stage.step()[0] / 0.001
    assert 80 < exposed < 100  # The agent and the box stand in the way of some of the 100.
    closer = Stage([(0.5, 0.5)], boxes=[(1.9, 3)], cylinder=(3, 3, 0.8), variant="shelter", num_elongated=0)
    assert -closer.step()[0] / 0.001 < exposed
