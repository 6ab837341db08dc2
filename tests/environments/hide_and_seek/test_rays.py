import mujoco
import numpy as np
import pytest
from support.hide_and_seek_scenes import DOWN, LEFT, RIGHT, UP, Stage

from srl.environments.hide_and_seek.lanes import HideAndSeekConfig
from srl.environments.hide_and_seek.perception.rays import LIDAR_RANGE, NUM_RAYS
from srl.environments.hide_and_seek.scripted_players import BusyPlayers

ANGLES = 2 * np.pi * np.arange(NUM_RAYS) / NUM_RAYS
LEVEL = np.stack((np.cos(ANGLES), np.sin(ANGLES), np.zeros(NUM_RAYS)), axis=1)


def busy_lanes(variant, num, steps, **options):
    """Return lanes after some steps of busy play, in which objects are rotated and agents are on top of them."""
    lanes = HideAndSeekConfig(variant, options).build(num)
    lanes.reset(5)
    players = BusyPlayers(lanes.game, 5)
    for _ in range(steps):
        actions = players.act().transpose(1, 0, 2)
        lanes.step(tuple(actions))
        yield lanes


def compare_with_mujoco(lanes):
    """Compare every lidar ray and line of sight with mj_multiRay; return the number of rays."""
    game = lanes.game
    worlds, count = game.worlds, 0
    hit_geoms, hit_far = np.zeros(NUM_RAYS, np.int32), np.zeros(NUM_RAYS)
    for world in range(worlds.num):
        model, data = worlds.simulation(world)
        mujoco.mj_kinematics(model, data)
        for agent in np.flatnonzero(worlds.present[world, : worlds.num_agents]):
            body = 1 + worlds._bodies[world, agent]
            origin = data.xpos[body].copy()
            mujoco.mj_multiRay(
                model, data, origin, LEVEL.reshape(-1), None, True, body, hit_geoms, hit_far, None, NUM_RAYS, 1e9
            )
            expected = np.where(hit_geoms < 0, LIDAR_RANGE, hit_far)
            np.testing.assert_allclose(game.observation.lidar[agent, world, :, 0], expected, atol=2e-6)
            others = [e for e in np.flatnonzero(worlds.present[world]) if e != agent]
            targets = 1 + worlds._bodies[world, others]
            points = data.geom_xpos[model.body_geomadr[targets]]
            geoms, far = np.zeros(len(others), np.int32), np.zeros(len(others))
            rays = np.ascontiguousarray(points - origin).reshape(-1)
            mujoco.mj_multiRay(model, data, origin, rays, None, True, body, geoms, far, None, len(others), 1e9)
            offset = worlds.q[world, others, :2] - worlds.q[world, agent, :2]
            heading = worlds.q[world, agent, 3] - np.pi / 2
            angle = np.arctan2(offset[:, 1], offset[:, 0]) - heading
            inside = np.abs(np.remainder(angle + np.pi, 2 * np.pi) - np.pi) <= 3 / 8 * np.pi
            seen = inside & (geoms >= 0) & (model.geom_bodyid[geoms] == targets)
            np.testing.assert_array_equal(game.perception.sees[world, agent, others], seen)
            count += NUM_RAYS + len(others)
    return count


@pytest.mark.parametrize(
    ("variant", "options"),
    [
        ("quadrant", {}),
        ("full", {"num_hiders": 3, "num_seekers": 3}),
        ("reproduce", {"scale": 1.5}),
        ("shelter", {}),
    ],
)
def test_the_kernel_agrees_with_mujoco_on_a_hundred_thousand_rays(variant, options):
    count = 0
    for step, lanes in enumerate(busy_lanes(variant, 24, 60, **options)):
        if step % 6 == 5:
            count += compare_with_mujoco(lanes)
    lanes.close()
    assert count > (5_000 if variant == "shelter" else 25_000)


def test_walls_block_sight_but_a_low_wall_does_not_block_a_high_agent():
    wall = (3.0, 3.0, 0.05, 1.0, 0.25)
    stage = Stage([(2, 3)], [(4, 3)], walls=[wall], yaws=[RIGHT, LEFT])
    assert not stage.sees(0, 1)
    stage.put(0, height=1.0)
    stage.put(1, height=1.0)
    assert stage.sees(0, 1)


def test_agents_see_what_is_in_a_cone_of_135_degrees():
    for degrees, seen in ((0, True), (66, True), (-66, True), (69, False), (-69, False), (180, False)):
        stage = Stage([(2, 3)], [(4, 3)], yaws=[RIGHT + np.deg2rad(degrees)])
        assert stage.sees(0, 1) == seen, degrees


def test_the_cone_to_a_cube_is_measured_between_corners():
    # The cube's center is straight above the agent; its corner is 0.1 to the left of the agent's corner.
    side = 3 / 8 * np.pi
    for turned, seen in ((side, True), (-side, False)):
        stage = Stage([(3, 3)], boxes=[(3, 3.5)], yaws=[UP + turned])
        assert stage.sees(0, 1) == seen


def test_objects_and_other_agents_block_sight():
    assert not Stage([(2, 3)], [(4, 3)], boxes=[(3, 3)], yaws=[RIGHT]).sees(0, 1)
    assert Stage([(2, 3)], [(4, 3)], boxes=[(3, 3.5)], yaws=[RIGHT]).sees(0, 1)
    assert not Stage([(2, 3), (3, 3)], [(4, 3)], yaws=[RIGHT]).sees(0, 2)


@pytest.mark.parametrize(("turned", "seen"), [(DOWN, False), (UP, True)])
def test_arms_block_sight(turned, seen):
    # The ray to food on the floor passes an agent's body at 4 cm: there is an arm if it faces that way.
    stage = Stage([(2.856, 2.35), (3, 3)], food=[(3.356, 3.283)], yaws=[2.65, turned], variant="food")
    assert stage.game.perception.sees_food[0, 0, 0] == seen


def test_the_lidar_does_not_turn_with_the_agent_and_does_not_end_at_six_meters():
    wall = (12.05, 3.0, 0.05, 1.0, 0.25)
    for yaw in (0.0, 1.0):
        stage = Stage([(3, 3)], walls=[wall], yaws=[yaw])
        lidar = stage.game.observation.lidar[0, 0, :, 0]
        assert lidar[0] == pytest.approx(9.0)
        assert set(lidar[1:].tolist()) == {6.0}
