import os

import gymnasium
import numpy as np
import pytest
from support.trees import leaf

mujoco = pytest.importorskip("mujoco")

from srl.environments.adapters.gymnasium import GymnasiumLanes  # noqa: E402
from srl.environments.mujoco.callbacks import log_warnings  # noqa: E402
from srl.environments.mujoco.lanes import TASKS, MujocoLanes  # noqa: E402
from srl.environments.registry import lanes_config  # noqa: E402


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield
    assert os.listdir(tmp_path) == []  # no MUJOCO_LOG.TXT


def assert_equal_to_gymnasium(name: str, steps: int, scale: float = 1.0, **kwargs) -> int:
    """Step lane 1 of our task and Gymnasium's from the same states with the same actions; return the number of ends."""
    lanes = lanes_config(name, **kwargs).build(3)
    assert isinstance(lanes, MujocoLanes)
    log_warnings()
    bare = gymnasium.make(name, disable_env_checker=True, **kwargs).unwrapped
    bare.reset(seed=0)
    (time_step,) = lanes.reset(1)
    space = bare.action_space
    actions = np.random.default_rng(0).uniform(scale * space.low, scale * space.high, (steps, 3, *space.shape))
    data = lanes._datas[1]
    ends = 0
    for action in actions.astype(np.float32):
        if time_step.first[1]:
            mujoco.mj_resetData(bare.model, bare.data)
            bare.set_state(data.qpos.copy(), data.qvel.copy())
            np.testing.assert_allclose(leaf(time_step.observation)[1], bare._get_obs(), rtol=1e-6, atol=1e-6)
            assert time_step.reward[1] == 0
        acted = time_step.acting[1]
        (time_step,) = lanes.step((action,))
        if acted:
            observation, reward, terminated, _, _ = bare.step(action[1])
            np.testing.assert_allclose(leaf(time_step.observation)[1], observation, rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(time_step.reward[1], reward, rtol=1e-6, atol=1e-6)
            assert time_step.terminated[1] == terminated
            ends += terminated
        else:
            assert time_step.first[1]
    bare.close()
    lanes.close()
    return ends


@pytest.mark.parametrize("name", sorted(TASKS))
def test_tasks_equal_those_of_gymnasium(name):
    ends = assert_equal_to_gymnasium(name, 220)
    falls = {"Hopper-v5", "Walker2d-v5", "InvertedPendulum-v5", "InvertedDoublePendulum-v5", "Humanoid-v5"}
    assert (ends > 0) == (name in falls) or name == "Ant-v5"


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("HalfCheetah-v5", {"forward_reward_weight": 2.5, "ctrl_cost_weight": 0.3, "frame_skip": 2}),
        ("Hopper-v5", {"terminate_when_unhealthy": False, "healthy_reward": 0.5}),
        ("Walker2d-v5", {"exclude_current_positions_from_observation": False, "healthy_z_range": [0.5, 2.5]}),
        ("Ant-v5", {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.1, "main_body": "torso"}),
        ("Humanoid-v5", {"include_cinert_in_observation": False, "include_cvel_in_observation": False}),
    ],
)
def test_tasks_with_options_equal_those_of_gymnasium(name, kwargs):
    assert_equal_to_gymnasium(name, 60, **kwargs)


def test_the_time_limit_truncates_and_the_next_episode_has_another_start():
    lanes = lanes_config("HalfCheetah-v5", max_episode_steps=3).build(4)
    (time_step,) = lanes.reset(0)
    start = leaf(time_step.observation).copy()
    marks = []
    for _ in range(5):
        (time_step,) = lanes.step((np.zeros((4, 6), np.float32),))
        marks.append((bool(time_step.truncated.all()), bool(time_step.first.all())))
    assert marks == [(False, False), (False, False), (True, False), (False, True), (False, False)]
    assert len(np.unique(start[:, 0])) == 4
    (time_step,) = lanes.reset(0)
    np.testing.assert_array_equal(time_step.observation, start)


def test_options_of_gymnasium_only_use_its_environment():
    lanes = lanes_config("HalfCheetah-v5", camera_name="track").build(1)
    assert isinstance(lanes, GymnasiumLanes)
    lanes.close()


def test_an_unstable_simulation_affects_only_its_lane():
    lanes = lanes_config("HalfCheetah-v5").build(3)
    assert isinstance(lanes, MujocoLanes)
    lanes.reset(0)
    action = np.zeros((3, 6), np.float32)
    lanes.step((action,))
    lanes._datas[1].qvel[:] = 1e12
    (time_step,) = lanes.step((action,))
    assert leaf(time_step.failed).tolist() == [False, True, False]
    assert time_step.first.tolist() == [False, True, False]
    assert time_step.acting.all()
    assert time_step.reward[1] == 0
    assert "HalfCheetah-v5, copy 1" in time_step.failures[0]
    assert "step 2" in time_step.failures[0]
    assert np.abs(leaf(time_step.observation)).max() < 100
    assert lanes.step((action,))[0].failed is None


def test_actions_are_clipped_before_their_cost_is_computed():
    lanes = lanes_config("HalfCheetah-v5").build(2)
    assert isinstance(lanes, MujocoLanes)
    lanes.reset(0)
    for data in lanes._datas:
        data.qpos[:], data.qvel[:] = lanes._datas[0].qpos, lanes._datas[0].qvel
        mujoco.mj_forward(lanes._scene.model, data)
    lanes._gather()
    (time_step,) = lanes.step((np.stack((np.ones(6), np.full(6, 7.0))).astype(np.float32),))
    assert time_step.reward[0] == time_step.reward[1]
