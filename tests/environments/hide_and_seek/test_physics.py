import mujoco
import numpy as np
import pytest
from support.hide_and_seek_scenes import DOWN, LEFT, RIGHT, STILL, UP, Stage

from srl.environments.hide_and_seek.physics.layout import CUBE, LONG_X, LONG_Y, draw_layout
from srl.environments.hide_and_seek.physics.random_draws import RandomDraws
from srl.environments.hide_and_seek.physics.scene import Scene, compile_scene, scene_kind
from srl.environments.hide_and_seek.variants import VARIANTS

PUSH_X = (10, 5, 5, 0, 0)


def test_full_force_leads_to_8_meters_per_second_with_a_time_constant_of_a_tenth():
    stage = Stage([(-5, 3)])
    speeds = []
    for _ in range(8):
        stage.step(PUSH_X)
        speeds.append(stage.game.worlds.v[0, 0, 0])
    times = 0.075 * np.arange(1, 9)
    np.testing.assert_allclose(speeds, 8 * (1 - np.exp(-times / 0.1)), rtol=0.04)
    before = stage.place(0)
    stage.step(PUSH_X)
    assert stage.place(0)[0] - before[0] == pytest.approx(0.6, rel=0.02)


def test_the_first_step_from_rest_covers_18_centimeters():
    stage = Stage([(3, 3)])
    stage.step(PUSH_X)
    assert stage.center(0)[0] - 3 == pytest.approx(0.18, abs=0.02)


def test_forces_act_along_the_axes_of_the_world():
    for yaw in (UP, DOWN, LEFT, -2.0):
        stage = Stage([(3, 3)], yaws=[yaw])
        stage.steps(4, PUSH_X)
        moved = stage.center(0) - (3, 3, 0.15)
        assert moved[0] > 1
        assert abs(moved[1]) < 0.01


def test_full_torque_turns_by_nine_radians_per_second_at_once():
    stage = Stage([(3, 3)])
    stage.step((5, 5, 10, 0, 0))
    assert stage.game.worlds.v[0, 0, 3] == pytest.approx(9.0, rel=0.01)
    before = stage.place(0)[3]
    stage.step((5, 5, 10, 0, 0))
    assert stage.place(0)[3] - before == pytest.approx(0.675, rel=0.01)


@pytest.mark.parametrize(
    ("kind", "half", "yaw"), [(CUBE, 0.25, LEFT), (LONG_X, 0.825, LEFT), (LONG_Y, 0.075, LEFT + 0.8)]
)
def test_a_pulled_box_comes_along(kind, half, yaw):
    # The cone is measured between lower corners, which decides where one has to look to see a long box.
    start = (3, 3)
    stage = Stage([(3 + half + 0.2, 3)], boxes=[start], kinds=[kind], yaws=[yaw])
    assert stage.sees(0, 1)
    stage.steps(3, (10, 5, 5, 1, 0))
    assert stage.held == [0]
    assert stage.center(1)[0] - start[0] > 0.4
    stage.step((10, 5, 5, 0, 0))
    assert stage.held == [-1]
    stage.steps(8)
    there = stage.center(1)[0]
    stage.steps(2, (10, 5, 5, 0, 0))
    assert stage.center(1)[0] == pytest.approx(there, abs=1e-3)  # left behind


def test_a_locked_box_yields_by_millimeters_only():
    stage = Stage([(2.5, 3)], boxes=[(3, 3)], yaws=[RIGHT])
    stage.step((5, 5, 5, 0, 1))
    assert stage.locked == [True]
    there = stage.center(1)
    stage.steps(12, (10, 5, 5, 0, 1))
    assert np.abs(stage.center(1) - there).max() < 0.003
    stage.steps(4, (10, 5, 5, 0, 0))  # not pressed: unlocked, and pushed away
    assert stage.locked == [False]
    assert stage.center(1)[0] - there[0] > 0.3


def test_an_agent_climbs_a_ramp():
    # Tall at -y: it is climbed from +y.
    stage = Stage([(3, 4)], ramps=[(3, 3)], boxes=[(3, 2.5)])
    heights = []
    for _ in range(12):
        stage.step((5, 0, 5, 0, 0))
        heights.append(stage.place(0)[2])
    assert max(heights) > 0.45


def test_an_agent_surfs_on_a_box_that_it_holds():
    stage = Stage([(3, 3)], boxes=[(3, 3)], yaws=[-np.pi / 4 + DOWN])  # looks along (-1, -1)
    stage.put(0, height=0.5)
    assert stage.sees(0, 1)
    stage.steps(7, (10, 5, 5, 1, 0))
    assert stage.held == [0]
    assert stage.place(0)[2] > 0.45
    assert stage.center(1)[0] - 3 > 1.0
    assert abs(stage.center(1)[0] - stage.center(0)[0]) < 0.2


def test_agents_at_rest_sleep_and_wake_when_their_controls_change():
    moves = [STILL] * 6 + [PUSH_X] * 4 + [STILL] * 20 + [(0, 5, 5, 0, 0)] * 4
    ends = []
    for sleep in (True, False):
        stage = Stage([(3, 3)], [(1, 1)], boxes=[(4.2, 3)], sleep=sleep)
        data = stage.game.worlds.simulation(0)[1]
        awake = []
        for move in moves:
            stage.step(move)
            awake.append(int(data.ntree_awake))
        assert (min(awake) == 0) == sleep
        ends.append(stage.game.worlds.q.copy())
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-3)


def test_an_agent_that_sleeps_at_a_wall_can_leave_it():
    stage = Stage([(3, 3)], walls=[(3.3, 3, 0.05, 1.0, 0.25)])
    stage.steps(30, PUSH_X)
    assert stage.game.worlds.simulation(0)[1].ntree_awake == 0
    stage.steps(3, (0, 5, 5, 0, 0))
    assert stage.center(0)[0] < 2.5


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_a_layout_written_into_a_model_moves_as_one_that_was_compiled(variant):
    options, draws = VARIANTS[variant], RandomDraws(np.random.default_rng(3))
    random = np.random.default_rng(0)
    scene = None
    for _ in range(2):
        layout = draw_layout(options, draws)
        kind = scene_kind(options, len(layout.agents), len(layout.boxes))
        scene = scene if scene is not None and scene.kind == kind else Scene(kind)
        scene.arrange(layout)
        model = compile_scene(kind, layout)
        model.tree_sleep_policy[:] = scene.model.tree_sleep_policy
        data = mujoco.MjData(model)
        data.qpos[:] = scene.qpos
        for _ in range(15):
            data.ctrl[:] = scene.data.ctrl[:] = random.uniform(-0.9, 0.9, model.nu)
            for one, other in ((model, data), (scene.model, scene.data)):
                mujoco.mj_step(one, other, 15)
        np.testing.assert_array_equal(scene.qpos, data.qpos)
        np.testing.assert_array_equal(scene.qvel, data.qvel)
        origin, direction = np.array([3.0, 3.0, 0.2]), np.array([1.0, 0.3, 0.0])
        hits = [
            mujoco.mj_ray(one, other, origin, direction, None, True, -1, np.zeros(1, np.int32), None)
            for one, other in ((model, data), (scene.model, scene.data))
        ]
        assert hits[0] == hits[1]


def test_the_original_s_constants_are_in_the_model():
    options = VARIANTS["quadrant"]
    model = compile_scene(scene_kind(options, 4, 2), draw_layout(options, RandomDraws(np.random.default_rng(0))))
    assert model.opt.timestep == 0.005
    assert model.opt.gravity.tolist() == [0, 0, -50]
    assert (model.opt.integrator, model.opt.solver, model.opt.cone) == (0, 2, 0)  # Euler, Newton, pyramidal
    assert (model.opt.iterations, model.opt.tolerance, model.opt.jacobian) == (100, 1e-8, 0)
    friction = {name: model.geom(name).friction[0] for name in ("floor", "box0", "agent0", "ramp0", "wall0")}
    assert friction == {"floor": 0.2, "box0": 0.2, "agent0": 0.01, "ramp0": 0.01, "wall0": 0.01}
    assert model.body("agent0").mass[0] == model.body("ramp0").mass[0] == model.body("box0").mass[0] == 1
    np.testing.assert_allclose(model.body("agent0").inertia, 0.009)
    np.testing.assert_allclose(model.body("ramp0").ipos, (0, -1 / 12, -1 / 12), atol=1e-9)
    np.testing.assert_allclose(np.sort(model.body("ramp0").inertia), (1 / 36, 1 / 36, 1 / 24), atol=1e-4)
    np.testing.assert_allclose(model.dof_damping[:4], (10, 10, 1, 10))
    assert set(model.actuator_gear[:, 0]) == {100.0}
    rooms = compile_scene(scene_kind(VARIANTS["full"], 4, 6))
    assert rooms.geom("wall0").friction[0] == 1.0
