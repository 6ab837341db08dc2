import numpy as np
import pytest
from support.hide_and_seek_scenes import LEFT, RIGHT, STILL, Stage

from srl.api.spaces import array_spec
from srl.base.tree import leaves
from srl.environments.hide_and_seek.lanes import HideAndSeekLanes
from srl.environments.hide_and_seek.physics.layout import LONG_X
from srl.environments.registry import lanes_config

LOCK = (5, 5, 5, 0, 1)


def shapes(name, **options):
    lanes = lanes_config(name, **options).build(1)
    found = {key: spec.shape for key, spec in leaves(array_spec(lanes.spec.teams[0].observation))}
    lanes.close()
    return found


def test_shapes_of_the_quadrant_are_those_of_the_original():
    assert shapes("hide-and-seek/quadrant") == {
        "observation_self": (10,),
        "agent_qpos_qvel": (3, 10),
        "box_obs": (2, 12),
        "ramp_obs": (1, 9),
        "lidar": (30, 1),
        "mask_aa_obs": (3,),
        "mask_ab_obs": (2,),
        "mask_ar_obs": (1,),
        "mask_aa_obs_spoof": (3,),
        "mask_ab_obs_spoof": (2,),
        "mask_ar_obs_spoof": (1,),
    }


def test_shapes_of_the_full_game_three_against_three_are_those_of_the_original():
    found = shapes("hide-and-seek/full", num_hiders=3, num_seekers=3)
    assert found["agent_qpos_qvel"] == (5, 10)
    assert found["box_obs"] == (9, 15)
    assert found["ramp_obs"] == (2, 15)
    assert found["mask_ab_obs"] == found["mask_ab_obs_spoof"] == (9,)


def test_every_game_has_a_row_for_each_kind_of_entity():
    for name in ("lock-and-return", "blueprint", "shelter"):
        found = shapes(f"hide-and-seek/{name}")
        assert found["agent_qpos_qvel"] == (1, 10)
        assert found["ramp_obs"][0] == 1
    assert shapes("hide-and-seek/food")["food_obs"] == (4, 4)
    assert shapes("hide-and-seek/blueprint")["construction_site_obs"] == (4, 15)


def test_observations_of_an_agent_and_of_the_others():
    stage = Stage([(1, 1), (2, 1)], [(3, 1), (4, 1)], yaws=[0.1, 0.2, 0.3, 0.4], preparing=True)
    arrays = stage.game.observation.arrays
    np.testing.assert_allclose(arrays["observation_self"][1, 0], [1.85, 0.85, 0, 0.2, 0, 0, 0, 0, 1, 0], atol=1e-6)
    for agent, others in enumerate([(3, 2, 1), (0, 3, 2), (1, 0, 3), (2, 1, 0)]):  # i-1, i-2, ... mod n
        for row, other in enumerate(others):
            np.testing.assert_array_equal(
                arrays["agent_qpos_qvel"][agent, 0, row], arrays["observation_self"][other, 0]
            )
    assert arrays["observation_self"][:, 0, 8].tolist() == [1, 1, 0, 0]
    stage.step()
    assert arrays["observation_self"][:, 0, 9] == pytest.approx(np.full(4, 1 / 96))


def test_preparation_ends_one_step_after_its_last_step():
    stage = Stage([(1, 1)], [(3, 1)], preparing=True, horizon=80)
    shown = []
    for _ in range(34):
        stage.step()
        shown.append(float(stage.game.observation.arrays["observation_self"][0, 0, 9]))
    assert shown[30] == pytest.approx(31 / 32)
    assert 1 - 1e-6 < shown[31] < 1  # 32 / 32.00001
    assert shown[32] == shown[33] == 1


def test_observations_of_a_box():
    stage = Stage([(3, 3), (1, 1)], [(5, 5)], boxes=[(4.025, 3)], kinds=[LONG_X], yaws=[RIGHT, LEFT, LEFT])
    assert stage.sees(0, 3)
    stage.step(LOCK)
    box = stage.game.observation.arrays["box_obs"][:, 0, 0]
    np.testing.assert_allclose(box[0, :9], [3.2, 2.925, 0, 1, 0, 0, 0, 0, 0], atol=2e-3)
    np.testing.assert_allclose(box[0, 9:12], [1.65, 0.15, 0.5], atol=1e-6)
    assert box[:, 12].tolist() == [1, 0, 0]  # you lock
    assert box[:, 13].tolist() == [1, 1, 0]  # your team locks
    assert box[:, 14].tolist() == [1, 1, 1]  # locked
    stage.step(STILL)
    assert not stage.game.observation.arrays["box_obs"][:, 0, 0, 12:].any()


def test_unseen_entities_are_in_the_observation_and_masked():
    stage = Stage([(3, 3)], [(2, 3)], boxes=[(4, 3)], ramps=[(3, 5)], yaws=[RIGHT, RIGHT])
    arrays = stage.game.observation.arrays
    assert arrays["mask_aa_obs"][:, 0].tolist() == [[0], [1]]
    assert arrays["mask_ab_obs"][:, 0].tolist() == [[1], [0]]  # The hider is in front of the seeker.
    assert arrays["mask_ar_obs"][:, 0].tolist() == [[0], [1]]
    assert arrays["mask_aa_obs_spoof"][:, 0].tolist() == [[1], [1]]
    np.testing.assert_array_equal(arrays["agent_qpos_qvel"][0, 0, 0], arrays["observation_self"][1, 0])


def test_absent_boxes_and_agents_are_rows_of_zeros():
    lanes = lanes_config("hide-and-seek/reproduce", num_boxes=[1, 2], num_elongated=0).build(40)
    assert isinstance(lanes, HideAndSeekLanes)
    time_steps = lanes.reset(0)
    worlds, arrays = lanes.game.worlds, lanes.game.observation.arrays
    boxes = arrays["mask_ab_obs_spoof"][0].astype(bool)
    assert set(boxes.sum(axis=1).tolist()) == {1, 2}
    assert not arrays["box_obs"][:, ~boxes].any()
    others = arrays["mask_aa_obs_spoof"].astype(bool)
    assert not arrays["agent_qpos_qvel"][~others].any()
    assert (arrays["agent_qpos_qvel"][others][:, :2] != 0).all()
    present = worlds.present[:, :6].sum(axis=1)
    for agent in range(6):
        here = worlds.present[:, agent]
        assert (others[agent].sum(axis=1)[here] == present[here] - 1).all()
    for agent, time_step in enumerate(time_steps):
        assert np.array_equal(time_step.acting, worlds.present[:, agent])
    lanes.close()
