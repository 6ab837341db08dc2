import gymnasium
import numpy as np
import pytest
from support.tracers import assert_consecutive, step
from support.trees import leaf

from srl.environments.adapters.autoreset import MAX_UNSEEN_EPISODES
from srl.environments.adapters.vector import VectorLanes
from srl.environments.failures import EnvironmentBroken
from srl.environments.registry import lanes_config


@pytest.mark.parametrize("mode", ["next_step", "disabled", "chosen"])
def test_nothing_is_lost_or_leaks_at_the_end_of_an_episode(mode):
    lanes = lanes_config(f"support.tracers:{mode}").build(3)
    (time_step,) = lanes.reset(0)
    assert assert_consecutive(lanes, time_step, 40, lengths=3) == 30
    lanes.close()


@pytest.mark.parametrize(
    ("mode", "steps", "begins_at"), [("NEXT_STEP", 30, 0), ("DISABLED", 30, 0), ("SAME_STEP", 39, 1)]
)
def test_ends_may_be_integers(mode, steps, begins_at):
    lanes = lanes_config("support.tracers:integer_flags", mode=mode).build(3)
    (time_step,) = lanes.reset(0)
    assert assert_consecutive(lanes, time_step, 40, lengths=3, begins_at=begins_at) == steps
    lanes.close()


def test_same_step_hides_the_first_step_of_each_later_episode_and_counts_it():
    lanes = lanes_config("support.tracers:same_step").build(3)
    (time_step,) = lanes.reset(0)
    assert (leaf(time_step.observation)[:, 2] == 0).all()
    assert assert_consecutive(lanes, time_step, 40, lengths=3, begins_at=1) == 39
    lanes.reset(0)
    returns = []
    for _ in range(9):
        time_step = step(lanes)
        if not time_step.acting[0]:
            returns.append((time_step.facts["return"][0], time_step.facts["length"][0]))
    assert returns == [(6.0, 3)] * 3  # 1 + 2 + 3, the unseen step among them


def test_same_step_refuses_episodes_of_one_step():
    lanes = lanes_config("support.tracers:same_step", length=1).build(2)
    lanes.reset(0)
    time_step = step(lanes)
    assert time_step.terminated.all()
    time_step = step(lanes)  # an episode came and went unseen
    assert not time_step.acting.any()
    assert not time_step.first.any()
    assert not time_step.terminated.any()
    for _ in range(MAX_UNSEEN_EPISODES - 2):
        step(lanes)
    with pytest.raises(EnvironmentBroken, match="ended at their first step"):
        step(lanes)


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_truncation_is_not_termination(mode):
    lanes = lanes_config(f"support.tracers:{mode}", truncate=True).build(2)
    lanes.reset(0)
    step(lanes)
    step(lanes)
    time_step = step(lanes)
    assert time_step.truncated.all()
    assert not time_step.terminated.any()
    assert (leaf(time_step.observation)[:, 2] == 3).all()


def test_cartpole_is_the_native_vector_environment_and_its_arrays_are_not_copied():
    lanes = lanes_config("CartPole-v1").build(64)
    assert isinstance(lanes, VectorLanes)
    (time_step,) = lanes.reset(1)
    bare = gymnasium.make_vec("CartPole-v1", 64)
    expected, _ = bare.reset(seed=lanes._seed)
    actions = np.random.default_rng(0).integers(0, 2, (200, 64))
    for action in actions:
        np.testing.assert_array_equal(time_step.observation, expected)
        ended = ~time_step.acting
        (time_step,) = lanes.step((action,))
        expected, reward, terminated, truncated, _ = bare.step(action)
        np.testing.assert_array_equal(time_step.reward, reward)
        np.testing.assert_array_equal(time_step.acting, ~(terminated | truncated))
        np.testing.assert_array_equal(time_step.first, ended)
    bare.close()
    lanes.close()


def test_the_time_limit_of_cartpole_is_a_truncation():
    lanes = lanes_config("CartPole-v1", max_episode_steps=5).build(4)
    lanes.reset(0)
    marks = [bool(step(lanes, index % 2).truncated.all()) for index in range(12)]
    assert marks == [index in (4, 10) for index in range(12)]


@pytest.mark.parametrize(
    ("fault", "message"), [("raise", "the vector is broken"), ("nan", "lane 1: observation is not finite")]
)
def test_a_vector_environment_that_fails_is_replaced_as_a_whole(fault, message):
    lanes = lanes_config("support.tracers:BreakingVector", fault=fault).build(3)
    lanes.reset(0)
    for _ in range(3):
        assert step(lanes).failed is None
    time_step = step(lanes)
    assert leaf(time_step.failed).all()
    assert time_step.first.all()
    assert time_step.acting.all()
    assert (leaf(time_step.observation)[:, 2] == 0).all()
    (report,) = time_step.failures
    assert message in report
    assert "step 4" in report
    assert step(lanes).failed is None


def test_copies_of_a_vector_environment_differ():
    (time_step,) = lanes_config("CartPole-v1").build(16).reset(0)
    assert len(np.unique(leaf(time_step.observation)[:, 0])) == 16


@pytest.mark.parametrize("native", [True, False], ids=["vectorized", "copies"])
def test_an_attribute_of_a_vector_environment_changes(native):
    mode = "vector_entry_point" if native else "sync"
    lanes = VectorLanes("CartPole-v1", lambda: gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode=mode))
    lanes.reset(0)
    lanes.set_option("x_threshold", -1.0)  # every position is outside, so that each episode ends at once
    assert step(lanes).terminated.all()
    with pytest.raises(AttributeError, match="treshold"):
        lanes.set_option("x_treshold", 1.0)
    lanes.close()
