from collections.abc import Callable

import numpy as np
import pytest
from support.trees import leaf

from srl.api.lanes import Lanes, LaneSpec, TeamSpec, TimeStep
from srl.api.spaces import Box, Discrete
from srl.testing.env_checks.lanes import check_lanes

LENGTH = 3  # steps of an episode


class Clock(Lanes):
    """Two correct lanes that count steps; `spoil` may change a time step, given the steps since the reset."""

    def __init__(
        self, spoil: Callable[[TimeStep, int], None] = lambda time_step, time: None, aligned: bool = True
    ) -> None:
        self.spec = LaneSpec("clock", 2, (TeamSpec("agent", ("agent",), Box((1,)), Discrete(2), aligned),))
        self.spoil = spoil
        self.closed = 0

    def reset(self, seed: int) -> tuple[TimeStep, ...]:
        self.time = 0
        return self.arrive()

    def step(self, actions) -> tuple[TimeStep, ...]:
        self.time += 1
        return self.arrive()

    def arrive(self) -> tuple[TimeStep, ...]:
        t = self.time % (LENGTH + 1)
        ended = np.full(2, t == LENGTH)
        time_step = TimeStep(
            observation=np.full((2, 1), t, np.float32),
            reward=np.full(2, min(t, 1), np.float32),
            terminated=ended,
            truncated=np.zeros(2, bool),
            acting=~ended,
            first=np.full(2, t == 0),
        )
        self.spoil(time_step, self.time)
        return (time_step,)

    def close(self) -> None:
        self.closed += 1


def wrong_shape(time_step: TimeStep, time: int) -> None:
    time_step.observation = np.zeros((2, 2), np.float32)


def wrong_dtype(time_step: TimeStep, time: int) -> None:
    time_step.observation = leaf(time_step.observation).astype(np.float64)


def wrong_keys(time_step: TimeStep, time: int) -> None:
    time_step.observation = {"observation": time_step.observation}


def wide_reward(time_step: TimeStep, time: int) -> None:
    time_step.reward = time_step.reward.astype(np.float64)


def integer_end(time_step: TimeStep, time: int) -> None:
    time_step.terminated = time_step.terminated.astype(np.int64)


def nan(time_step: TimeStep, time: int) -> None:
    time_step.reward[1] = np.nan


def acts_on_the_last_observation(time_step: TimeStep, time: int) -> None:
    time_step.acting[:] = True


def same_step_reset(time_step: TimeStep, time: int) -> None:
    time_step.first |= time_step.terminated


def reward_in_reset_row(time_step: TimeStep, time: int) -> None:
    time_step.reward[:] = 1


def first_in_the_middle(time_step: TimeStep, time: int) -> None:
    if time == 2:
        time_step.first[0], time_step.reward[0] = True, 0


def first_forgotten(time_step: TimeStep, time: int) -> None:
    if time > 0:
        time_step.first[:] = False


def ends_twice(time_step: TimeStep, time: int) -> None:
    if time == LENGTH + 1:
        time_step.first[0] = time_step.acting[0] = False
        time_step.terminated[0] = True


def is_idle_in_an_aligned_team(time_step: TimeStep, time: int) -> None:
    if time == 1:
        time_step.acting[0], time_step.reward[0] = False, 0


def is_rewarded_while_idle(time_step: TimeStep, time: int) -> None:
    if time == 1:
        time_step.acting[0] = False


def no_agent_acts(time_step: TimeStep, time: int) -> None:
    if time == 0:
        time_step.first[:] = time_step.acting[:] = False


def fails(time_step: TimeStep, time: int) -> None:
    if time == 2:
        time_step.failed = np.array([True, False])
        time_step.failures = ("copy 0, seed 3: ZeroDivisionError",)
        time_step.first[0], time_step.reward[0] = True, 0


def short_fact(time_step: TimeStep, time: int) -> None:
    time_step.facts = {"return": np.zeros(1)}


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (wrong_shape, "observation to have dtype float32 and shape (2, 1)"),
        (wrong_dtype, "observation to have dtype float32 and shape (2, 1)"),
        (wrong_keys, "observations with the keys ['']"),
        (wide_reward, "reward to have dtype float32"),
        (integer_end, "terminated to have dtype bool"),
        (nan, "reward to be finite"),
        (acts_on_the_last_observation, "no lane to act on the last observation of an episode"),
        (same_step_reset, "no end together with a first observation"),
        (reward_in_reset_row, "reward 0 with a first observation"),
        (first_in_the_middle, "`first` only after an end"),
        (first_forgotten, "`first` where a lane starts to act"),
        (ends_twice, "ends only in open episodes"),
        (is_idle_in_an_aligned_team, "lanes of an aligned team to act until they end"),
        (is_rewarded_while_idle, "rewards to be delayed until a lane acts again"),
        (no_agent_acts, "an agent to act in every copy after a reset"),
        (fails, "environments that do not fail"),
        (short_fact, "statistic 'return' in `facts` to have one value for each lane"),
    ],
)
def test_a_violation_of_the_contract_is_found(spoil: Callable[[TimeStep, int], None], expected: str):
    findings = check_lanes(Clock(spoil), steps=10)
    assert any(expected in finding.expected for finding in findings), findings
    assert all(finding.severity == "error" for finding in findings)


def test_correct_lanes_have_no_findings_and_are_closed_twice():
    clock = Clock()
    assert check_lanes(clock) == []
    assert clock.closed == 2


def test_a_lane_of_a_team_that_is_not_aligned_may_be_idle():
    def be_idle(time_step: TimeStep, time: int) -> None:
        is_idle_in_an_aligned_team(time_step, time)

    assert check_lanes(Clock(be_idle, aligned=False), steps=10) == []


def test_different_first_observations_with_the_same_seed_are_a_warning():
    class Drifting(Clock):
        resets = 0

        def reset(self, seed: int) -> tuple[TimeStep, ...]:
            self.resets += 1
            (time_step,) = super().reset(seed)
            leaf(time_step.observation)[:] += self.resets
            return (time_step,)

    (finding,) = check_lanes(Drifting(), steps=10)
    assert (finding.severity, finding.expected) == ("warning", "the same seed to give the same episode")


def test_lanes_that_raise_or_change_actions_or_do_not_close_are_found():
    class Raising(Clock):
        def step(self, actions):
            raise ZeroDivisionError

    class Changing(Clock):
        def step(self, actions):
            actions[0][:] += 1
            return super().step(actions)

    class Sticking(Clock):
        def close(self) -> None:
            raise OSError("busy")

    for lanes, expected in (
        (Raising, "step to succeed"),
        (Changing, "leave the actions unchanged"),
        (Sticking, "close to succeed"),
    ):
        (finding,) = check_lanes(lanes(), steps=3)
        assert expected in finding.expected
