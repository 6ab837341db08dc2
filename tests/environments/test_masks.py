"""Masks of actions: from the observation, from infos, of all kinds of actions; and none that forbids everything."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from srl.api.spaces import Box, Dict, Discrete
from srl.environments.ids import lanes_config

HERE = f"{__file__}"


class Narrowing(gymnasium.Env):
    """Only choice t is allowed at step t, and an action that is not raises. With `stuck`, none is after two steps."""

    def __init__(self, stuck: bool = False, where: str = "info", named: bool = False) -> None:
        self.action_space = spaces.Discrete(4)
        self.observation_space = spaces.Box(0, 9, (1,), np.float32)
        if named:
            self.observation_space = spaces.Dict(time=self.observation_space)
        if where == "observation":
            self.observation_space = spaces.Dict(
                observation=spaces.Box(0, 9, (1,), np.float32), action_mask=spaces.Box(0, 1, (4,), np.int8)
            )
        self.stuck, self.where, self.named = stuck, where, named

    def _result(self) -> tuple[Any, dict[str, Any]]:
        mask = np.zeros(4, np.int8)
        if self.t < 4 and not (self.stuck and self.t == 2):
            mask[self.t] = 1
        seen = np.array([self.t], np.float32)
        if self.where == "observation":
            return {"observation": seen, "action_mask": mask}, {}
        return ({"time": seen} if self.named else seen), {"action_mask": mask}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._result()

    def step(self, action):
        if action != self.t:
            raise RuntimeError(f"illegal {action} at {self.t}")
        self.t += 1
        seen, info = self._result()
        return seen, 1.0, self.t == 4, False, info


def narrowing(**options: Any) -> gymnasium.Env:
    return Narrowing(**options)


def narrowing_vector(num_envs: int, **options: Any) -> SyncVectorEnv:
    return SyncVectorEnv([lambda: Narrowing(**options)] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


@pytest.mark.parametrize("function", ["narrowing", "narrowing_vector"])
@pytest.mark.parametrize("where", ["info", "observation"])
def test_masks_stand_beside_what_is_seen(function: str, where: str) -> None:
    lanes = lanes_config(f"{HERE}:{function}", where=where).build(2)
    try:
        observation = lanes.spec.teams[0].observation
        assert isinstance(observation, Dict)
        assert set(observation.items) == {"observation", "action_mask"}
        (arrival,) = lanes.reset(0)
        for t in range(9):
            tree = arrival.observation
            step = t % 5
            np.testing.assert_array_equal(tree["observation"][:, 0], [step, step])
            np.testing.assert_array_equal(tree["action_mask"].sum(1), [step < 4] * 2)
            assert arrival.failed is None
            (arrival,) = lanes.step((np.argmax(tree["action_mask"], axis=1),))
    finally:
        lanes.close()


def test_a_named_observation_gets_one_more_name() -> None:
    lanes = lanes_config(f"{HERE}:narrowing", named=True).build(1)
    mask = Box((4,), "uint8", 0.0, 1.0)
    assert lanes.spec.teams[0].observation == Dict({"time": Box((1,), "float32", 0.0, 9.0), "action_mask": mask})
    assert lanes.reset(0)[0].observation["action_mask"].tolist() == [[1, 0, 0, 0]]
    lanes.close()


@pytest.mark.parametrize("function", ["narrowing", "narrowing_vector"])
@pytest.mark.parametrize("where", ["info", "observation"])
def test_a_mask_that_forbids_everything_is_a_failure_that_names_lane_and_step(function: str, where: str) -> None:
    lanes = lanes_config(f"{HERE}:{function}", where=where, stuck=True).build(2)
    lanes.reset(0)
    lanes.step((np.zeros(2, np.int64),))
    (arrival,) = lanes.step((np.ones(2, np.int64),))
    assert arrival.failed is not None
    report = arrival.failures[0]
    assert "'action_mask' forbids every choice" in report
    assert "narrowing" in report
    assert "step 2" in report
    assert "copy 0" in report or "lane 0" in report
    lanes.close()


def test_an_environment_without_masks_stays_as_it_is() -> None:
    lanes = lanes_config("srl.testing.environments:tracer").build(1)
    assert isinstance(lanes.spec.teams[0].observation, Box)
    lanes.close()


def test_taxi_is_masked_by_its_infos() -> None:
    lanes = lanes_config("Taxi").build(3)
    assert lanes.spec.teams[0].observation.items["observation"] == Discrete(500)
    (arrival,) = lanes.reset(0)
    assert arrival.observation["action_mask"].any(1).all()
    lanes.close()
