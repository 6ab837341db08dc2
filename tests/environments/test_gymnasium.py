import re
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from support import tracers
from support.tracers import assert_consecutive, step
from support.trees import leaf

from srl.api.spaces import MultiDiscrete
from srl.environments.adapters.gymnasium import GymnasiumConfig, GymnasiumLanes
from srl.environments.failures import MAX_FAILURES_IN_A_ROW, EnvironmentBroken
from srl.environments.registry import lanes_config
from srl.testing.env_checks.environment import check_environment
from srl.testing.environments import Tracer

TRACER, FAULTY = "srl.testing.environments:Tracer", "support.faulty_environments:Faulty"


def test_the_rows_of_an_episode_and_of_the_next_one_are_as_computed_by_hand():
    lanes = lanes_config(TRACER, length=2).build(1)
    (time_step,) = lanes.reset(0)
    rows = []
    for _ in range(5):
        episode, t = leaf(time_step.observation)[0, 1:].tolist()
        rows.append((episode, t, time_step.reward[0], time_step.terminated[0], time_step.acting[0], time_step.first[0]))
        time_step = step(lanes)
    assert rows == [
        (0, 0, 0, False, True, True),
        (0, 1, 1, False, True, False),
        (0, 2, 2, True, False, False),  # the last observation has its own row, without an action
        (1, 0, 0, False, True, True),
        (1, 1, 1, False, True, False),
    ]
    lanes.close()


def test_truncation_is_not_termination():
    lanes = lanes_config(TRACER, length=2, truncate=True).build(2)
    lanes.reset(0)
    step(lanes)
    time_step = step(lanes)
    assert time_step.truncated.all()
    assert not time_step.terminated.any()


def test_copies_have_different_seeds_and_a_seed_repeats_them():
    lanes = lanes_config(TRACER).build(8)
    seeds = leaf(lanes.reset(5)[0].observation)[:, 0].copy()
    assert len(set(seeds.tolist())) == 8
    assert (leaf(lanes.reset(5)[0].observation)[:, 0] == seeds).all()
    assert not np.isin(leaf(lanes.reset(6)[0].observation)[:, 0], seeds).any()


def test_gymnasiums_wrappers_are_removed_and_the_time_limit_is_kept():
    lanes = lanes_config("Pendulum-v1", max_episode_steps=3).build(2)
    assert isinstance(lanes, GymnasiumLanes)
    assert [type(environment).__name__ for environment in lanes._bare] == ["PendulumEnv"] * 2
    lanes.reset(0)
    marks = []
    for _ in range(8):
        (time_step,) = lanes.step((np.zeros((2, 1), np.float32),))
        marks.append((bool(time_step.truncated.all()), bool(time_step.first.all())))
    ended, began, between = (True, False), (False, True), (False, False)
    assert marks == [between, between, ended, began, between, between, ended, began]
    lanes.close()


def test_a_time_limit_around_the_users_environment_is_kept():
    lanes = lanes_config("support.tracers:echo_limited").build(1)
    lanes.reset(0)
    assert [bool(step(lanes, 1).truncated[0]) for _ in range(6)] == [False, False, False, True, False, False]


def test_observations_are_those_of_the_bare_environment():
    import gymnasium

    bare = gymnasium.make("Acrobot-v1", disable_env_checker=True)
    lanes = lanes_config("Acrobot-v1").build(2)
    assert isinstance(lanes, GymnasiumLanes)
    (time_step,) = lanes.reset(3)
    expected, _ = bare.reset(seed=lanes._seed[1])
    for index in range(50):
        np.testing.assert_array_equal(leaf(time_step.observation)[1], expected)
        time_step = step(lanes, index % 3)
        expected, reward, *_ = bare.step(index % 3)
        assert time_step.reward[1] == reward
    bare.close()
    lanes.close()


def test_box_actions_are_clipped_to_the_bounds_of_the_environment():
    lanes = lanes_config("support.tracers:echo_box").build(2)
    lanes.reset(0)
    (time_step,) = lanes.step((np.array([[-9.0, -9.0], [0.5, 9.0]], np.float32),))
    assert leaf(time_step.observation, "action").tolist() == [[-1.0, 0.0], [0.5, 2.0]]
    assert leaf(time_step.observation, "action").dtype == np.float32


def test_choices_start_at_the_number_of_the_environment():
    lanes = lanes_config("support.tracers:echo_discrete").build(3)
    lanes.reset(0)
    (time_step,) = lanes.step((np.arange(3),))
    assert leaf(time_step.observation, "action").tolist() == [[-1], [0], [1]]
    assert leaf(time_step.observation, "pair", "0").tolist() == [4, 4, 4]  # 7, counted from 3
    assert leaf(time_step.observation, "pair", "1").tolist() == [[1, 0, 0, 1]] * 3


def test_a_matrix_of_choices_is_flat_for_the_policy_and_a_matrix_for_the_environment():
    lanes = lanes_config("support.tracers:echo_grid").build(1)
    lanes.reset(0)
    assert lanes.spec.teams[0].action == MultiDiscrete((2, 3, 4, 5), native_shape=(2, 2))
    (time_step,) = lanes.step((np.array([[1, 2, 3, 4]]),))
    assert leaf(time_step.observation, "action").tolist() == [[1, 2, 3, 4]]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raise", "Traceback"),
        ("nan", "observation is not finite"),
        ("nan_reward", "reward is not finite"),
        ("shape", r"shape \(4,\), its space says \(3,\)"),
    ],
)
def test_a_failure_of_an_environment_affects_only_its_lane(tmp_path, fault, message):
    once = str(tmp_path / "broke")
    lanes = lanes_config(FAULTY, fault=fault, after=2, once=once, length=4).build(3)
    assert isinstance(lanes, GymnasiumLanes)
    seeds = leaf(lanes.reset(1)[0].observation)[:, 0].copy()
    first_seed = lanes._seed[0]
    step(lanes)
    time_step = step(lanes)  # the first copy to come to step 2 breaks
    assert leaf(time_step.failed).tolist() == [True, False, False]
    (report,) = time_step.failures
    for fact in (FAULTY, "copy 0", f"seed {first_seed},", "episode 0", "step 2"):
        assert fact in report
    assert re.search(message, report)
    assert "srl/environments" not in report, "a traceback of SRL explains nothing"
    assert leaf(time_step.observation)[:, 2].tolist() == [0, 2, 2]
    assert leaf(time_step.observation)[0, 0] not in seeds
    assert time_step.reward.tolist() == [0, 2, 2]
    assert time_step.first.tolist() == [True, False, False]
    assert time_step.acting.all()
    time_step = step(lanes)
    assert time_step.failed is None
    assert leaf(time_step.observation)[:, 2].tolist() == [1, 3, 3]
    assert [bool(mark) for mark in step(lanes).terminated] == [False, True, True]


def test_an_environment_that_raises_in_its_reset_is_replaced(tmp_path):
    config = lanes_config(FAULTY, fault="raise_in_reset", once=str(tmp_path / "broke"))
    assert isinstance(config, GymnasiumConfig)
    lanes = replace(config, info_mask=False).build(2)  # no copy of it has been reset to look for masks
    (time_step,) = lanes.reset(0)
    assert leaf(time_step.failed).tolist() == [True, False]
    assert leaf(time_step.observation)[:, 2].tolist() == [0, 0]


def test_a_replacement_that_fails_raises_an_error_with_both_failures():
    lanes = lanes_config(FAULTY, fault="raise_in_reset").build(2)
    with pytest.raises(EnvironmentBroken, match=rf"{FAULTY}, copy 0, seed \d+.*its replacement failed, too"):
        lanes.reset(0)


def test_an_environment_that_fails_at_every_first_step_raises():
    lanes = lanes_config(FAULTY, fault="raise", after=1).build(1)
    lanes.reset(0)
    for _ in range(MAX_FAILURES_IN_A_ROW - 1):
        assert step(lanes).failed is not None
    with pytest.raises(EnvironmentBroken, match="20 times in a row"):
        step(lanes)


def test_an_environment_that_cannot_be_created_raises_with_the_reason():
    reason = r"support.tracers:unmakeable could not be created.*no simulator here.*tracers\.py:\d"
    with pytest.raises(EnvironmentBroken, match=reason):
        lanes_config(tracers.unmakeable).build(1)
    with pytest.raises(EnvironmentBroken, match="returned int, not a gymnasium"):
        lanes_config("support.tracers:not_an_environment").build(1)


class WithoutSpaces(gymnasium.Env):
    """An environment that sets no spaces."""


class UnseededReset(Tracer):
    def reset(self):  # type: ignore[override]
        return super().reset()


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (WithoutSpaces, "WithoutSpaces has no `observation_space`; set it to a gymnasium.spaces.Space"),
        (UnseededReset, "`reset` of UnseededReset takes no `seed`; write `def reset(self, *, seed=None"),
    ],
)
def test_an_environment_without_spaces_or_seeds_is_refused_with_what_to_write(kind, reason):
    with pytest.raises(EnvironmentBroken, match=re.escape(reason)):
        lanes_config(kind).build(1)
    assert {finding.severity for finding in check_environment(kind)} == {"error"}


def needy(difficulty):
    return Tracer(difficulty)


def test_an_option_without_a_default_must_be_given():
    with pytest.raises(ValueError, match=r"needs a value for 'difficulty': --env-arg difficulty=VALUE"):
        lanes_config(needy)
    (found,) = check_environment(f"{__name__}:needy")
    assert "needs a value for 'difficulty'" in found.found
    assert lanes_config(needy, difficulty=3).build(1).spec.num_copies == 1


class TwoRewards(Tracer):
    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, [reward, reward], *rest


def test_a_reward_that_is_not_a_number_is_named_and_never_retried():
    lanes = GymnasiumLanes("two", TwoRewards, 1)
    lanes.reset(0)
    with pytest.raises(EnvironmentBroken, match=r"expected the reward to be a number, found list \[1.*PettingZoo"):
        step(lanes)


class OldStep(Tracer):
    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated or truncated, info


class OldReset(Tracer):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


def test_an_environment_of_the_old_api_is_named_and_never_retried():
    lanes = GymnasiumLanes("old", OldStep, 1)
    lanes.reset(0)
    message = r"expected step to return \(observation, reward, .*found a tuple of 4 values; replace `done`"
    with pytest.raises(EnvironmentBroken, match=message):
        step(lanes)
    lanes = GymnasiumLanes("old", OldReset, 1)
    with pytest.raises(EnvironmentBroken, match=r"expected reset to return .*found ndarray; .*return observation, {}"):
        lanes.reset(0)


def test_nothing_leaks_from_one_episode_into_the_next():
    lanes = lanes_config(TRACER, length=3).build(4)
    (time_step,) = lanes.reset(0)
    assert_consecutive(lanes, time_step, 40, lengths=3)


class Adjustable(gymnasium.Env):
    """An environment whose reward is an attribute; it fails in its third step if `fails` is set."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.pay, self.steps, self.fails = 0.0, 0, False

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.fails and self.steps == 3:
            raise RuntimeError("broken")
        return np.zeros(2, np.float32), self.pay, False, False, {}


@pytest.mark.parametrize("make", [Adjustable, lambda: gymnasium.wrappers.TimeLimit(Adjustable(), 100)])
def test_an_attribute_changes_in_every_copy_and_in_those_that_replace_failed_ones(make):
    lanes = GymnasiumLanes("adjustable", make, 2)
    lanes.reset(0)
    lanes.set_option("pay", 2.5)
    lanes.set_option("fails", True)
    rewards = [lanes.step((np.zeros(2, np.int64),))[0].reward.tolist() for _ in range(5)]
    assert rewards == [[2.5, 2.5], [2.5, 2.5], [0.0, 0.0], [2.5, 2.5], [2.5, 2.5]]  # the third failed
    with pytest.raises(AttributeError, match="Adjustable has no attribute 'pya'"):
        lanes.set_option("pya", 1.0)
    lanes.close()
