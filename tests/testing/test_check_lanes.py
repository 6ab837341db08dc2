from collections.abc import Callable

import numpy as np
import pytest

from srl.api.lanes import Arrival, Lanes, LaneSpec, TeamSpec
from srl.api.spaces import Box, Discrete
from srl.testing.env_checks.lanes import check_lanes, sample

LENGTH = 3  # steps of an episode


class Clock(Lanes):
    """Two healthy lanes that count; `spoil` may change an arrival, told the time since the reset (0 there)."""

    def __init__(
        self, spoil: Callable[[Arrival, int], None] = lambda arrival, time: None, aligned: bool = True
    ) -> None:
        self.spec = LaneSpec("clock", 2, (TeamSpec("agent", ("agent",), Box((1,)), Discrete(2), aligned),))
        self.spoil = spoil
        self.closed = 0

    def reset(self, seed: int) -> tuple[Arrival, ...]:
        self.time = 0
        return self.arrive()

    def step(self, actions) -> tuple[Arrival, ...]:
        self.time += 1
        return self.arrive()

    def arrive(self) -> tuple[Arrival, ...]:
        t = self.time % (LENGTH + 1)
        ended = np.full(2, t == LENGTH)
        arrival = Arrival(
            observation=np.full((2, 1), t, np.float32),
            reward=np.full(2, min(t, 1), np.float32),
            terminated=ended,
            truncated=np.zeros(2, bool),
            acting=~ended,
            first=np.full(2, t == 0),
        )
        self.spoil(arrival, self.time)
        return (arrival,)

    def close(self) -> None:
        self.closed += 1


def wrong_shape(arrival: Arrival, time: int) -> None:
    arrival.observation = np.zeros((2, 2), np.float32)


def wrong_dtype(arrival: Arrival, time: int) -> None:
    arrival.observation = arrival.observation.astype(np.float64)


def wrong_keys(arrival: Arrival, time: int) -> None:
    arrival.observation = {"observation": arrival.observation}


def wide_reward(arrival: Arrival, time: int) -> None:
    arrival.reward = arrival.reward.astype(np.float64)


def integer_end(arrival: Arrival, time: int) -> None:
    arrival.terminated = arrival.terminated.astype(np.int64)


def nan(arrival: Arrival, time: int) -> None:
    arrival.reward[1] = np.nan


def acts_on_the_last(arrival: Arrival, time: int) -> None:
    arrival.acting[:] = True


def same_step_reset(arrival: Arrival, time: int) -> None:
    arrival.first |= arrival.terminated


def reward_in_reset_row(arrival: Arrival, time: int) -> None:
    arrival.reward[:] = 1


def first_in_the_middle(arrival: Arrival, time: int) -> None:
    if time == 2:
        arrival.first[0], arrival.reward[0] = True, 0


def first_forgotten(arrival: Arrival, time: int) -> None:
    if time > 0:
        arrival.first[:] = False


def ends_twice(arrival: Arrival, time: int) -> None:
    if time == LENGTH + 1:
        arrival.first[0] = arrival.acting[0] = False
        arrival.terminated[0] = True


def rests_in_an_aligned_team(arrival: Arrival, time: int) -> None:
    if time == 1:
        arrival.acting[0], arrival.reward[0] = False, 0


def earns_while_resting(arrival: Arrival, time: int) -> None:
    if time == 1:
        arrival.acting[0] = False


def nobody_acts(arrival: Arrival, time: int) -> None:
    if time == 0:
        arrival.first[:] = arrival.acting[:] = False


def breaks(arrival: Arrival, time: int) -> None:
    if time == 2:
        arrival.failed = np.array([True, False])
        arrival.failures = ("copy 0, seed 3: ZeroDivisionError",)
        arrival.first[0], arrival.reward[0] = True, 0


def short_fact(arrival: Arrival, time: int) -> None:
    arrival.facts = {"return": np.zeros(1)}


@pytest.mark.parametrize(
    ("spoil", "wanted"),
    [
        (wrong_shape, "observation of dtype float32 and shape (2, 1)"),
        (wrong_dtype, "observation of dtype float32 and shape (2, 1)"),
        (wrong_keys, "observations ['']"),
        (wide_reward, "reward of dtype float32"),
        (integer_end, "terminated of dtype bool"),
        (nan, "reward without NaN"),
        (acts_on_the_last, "nobody to act on an episode's last observation"),
        (same_step_reset, "an opening observation to end nothing"),
        (reward_in_reset_row, "reward 0 with an opening observation"),
        (first_in_the_middle, "`first` only after an end"),
        (first_forgotten, "`first` where a lane begins to act"),
        (ends_twice, "ends only of open episodes"),
        (rests_in_an_aligned_team, "lanes of an aligned team to act until they end"),
        (earns_while_resting, "rewards kept until a lane acts again"),
        (nobody_acts, "somebody to act in the arrival after"),
        (breaks, "environments that do not break"),
        (short_fact, "fact 'return' of each lane"),
    ],
)
def test_a_breach_of_the_contract_is_found(spoil: Callable[[Arrival, int], None], wanted: str):
    findings = check_lanes(Clock(spoil), steps=10)
    assert any(wanted in finding.wanted for finding in findings), findings
    assert all(finding.severity == "error" for finding in findings)


def test_healthy_lanes_have_no_findings_and_are_closed_twice():
    clock = Clock()
    assert check_lanes(clock) == []
    assert clock.closed == 2


def test_a_lane_of_a_team_that_is_not_aligned_may_rest():
    def rest(arrival: Arrival, time: int) -> None:
        rests_in_an_aligned_team(arrival, time)

    assert check_lanes(Clock(rest, aligned=False), steps=10) == []


def test_different_openings_under_one_seed_are_a_warning():
    class Drifting(Clock):
        resets = 0

        def reset(self, seed: int) -> tuple[Arrival, ...]:
            self.resets += 1
            (arrival,) = super().reset(seed)
            arrival.observation += self.resets
            return (arrival,)

    (finding,) = check_lanes(Drifting(), steps=10)
    assert (finding.severity, finding.wanted) == ("warning", "the same seed to give the same episode")


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

    for lanes, wanted in ((Raising, "to return"), (Changing, "actions to stay"), (Sticking, "close to work")):
        (finding,) = check_lanes(lanes(), steps=3)
        assert wanted in finding.wanted


def test_sampled_actions_respect_masks_and_bounds():
    rng = np.random.default_rng(0)
    mask = np.array([[0, 1, 0], [1, 0, 0]], np.int8)
    assert sample(rng, Discrete(3), 2, {"action_mask": mask}).tolist() == [1, 0]
    actions = sample(rng, Box((2,), "float32", (-1.0, 5.0), (1.0, 6.0)), 100, {})
    assert actions.shape == (100, 2)
    assert np.abs(actions[:, 0]).max() <= 1
    assert 5 <= actions[:, 1].min() <= actions[:, 1].max() <= 6
