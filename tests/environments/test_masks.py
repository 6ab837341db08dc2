"""Action masks in observations and in infos, for every kind of action. A mask must not forbid everything."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from support import masked_games
from support.trees import leaf

import srl
from srl.algorithms.ppo.config import PPOConfig
from srl.api.spaces import Box, Dict, Discrete
from srl.cli.main import main
from srl.environments.random_actions import some_actions
from srl.environments.registry import lanes_config
from srl.experiments.graph.preparation import prepare
from srl.experiments.options.keywords import make_options

HERE = f"{__file__}"


class Narrowing(gymnasium.Env):
    """Only choice t is allowed at step t (`backwards`: 3 - t), and any other action raises. With `stuck`, no choice is
    allowed after two steps."""

    def __init__(
        self,
        stuck: bool = False,
        where: str = "info",
        named: bool = False,
        key: str = "action_mask",
        backwards: bool = False,
    ) -> None:
        self.action_space = spaces.Discrete(4)
        self.observation_space = spaces.Box(0, 9, (1,), np.float32)
        if named:
            self.observation_space = spaces.Dict(time=self.observation_space)
        if where == "observation":
            self.observation_space = spaces.Dict(
                {"observation": spaces.Box(0, 9, (1,), np.float32), key: spaces.Box(0, 1, (4,), np.int8)}
            )
        self.stuck, self.where, self.named, self.key, self.backwards = stuck, where, named, key, backwards

    def _legal(self) -> int:
        return 3 - self.t if self.backwards else self.t

    def _result(self) -> tuple[Any, dict[str, Any]]:
        mask = np.zeros(4, np.int8)
        if self.t < 4 and not (self.stuck and self.t == 2):
            mask[self._legal()] = 1
        seen = np.array([self.t], np.float32)
        if self.where == "observation":
            return {"observation": seen, self.key: mask}, {}
        return ({"time": seen} if self.named else seen), {self.key: mask}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._result()

    def step(self, action):
        if action != self._legal():
            raise RuntimeError(f"illegal {action} at {self.t}")
        self.t += 1
        seen, info = self._result()
        return seen, 1.0, self.t == 4, False, info


def narrowing(**options: Any) -> gymnasium.Env:
    return Narrowing(**options)


def narrowing_vector(num_envs: int, mode: str = "NEXT_STEP", **options: Any) -> SyncVectorEnv:
    return SyncVectorEnv([lambda: Narrowing(**options)] * num_envs, autoreset_mode=AutoresetMode[mode])


@pytest.mark.parametrize("function", ["narrowing", "narrowing_vector"])
@pytest.mark.parametrize("where", ["info", "observation"])
def test_masks_are_added_to_the_observation(function: str, where: str) -> None:
    lanes = lanes_config(f"{HERE}:{function}", where=where).build(2)
    try:
        observation = lanes.spec.teams[0].observation
        assert isinstance(observation, Dict)
        assert set(observation.items) == {"observation", "action_mask"}
        (time_step,) = lanes.reset(0)
        for t in range(9):
            tree = time_step.observation
            mask, step = leaf(tree, "action_mask"), t % 5
            np.testing.assert_array_equal(leaf(tree, "observation")[:, 0], [step, step])
            np.testing.assert_array_equal(mask.sum(1), [step < 4] * 2)
            assert time_step.failed is None
            (time_step,) = lanes.step((np.argmax(mask, axis=1),))
    finally:
        lanes.close()


@pytest.mark.parametrize("mode", ["SAME_STEP", "DISABLED"])
@pytest.mark.parametrize("where", ["info", "observation"])
def test_masks_are_kept_in_every_autoreset_mode(mode: str, where: str) -> None:
    """A forbidden action raises, also in steps that the policy does not decide."""
    lanes = lanes_config(f"{HERE}:narrowing_vector", mode=mode, where=where, backwards=True).build(2)
    (time_step,) = lanes.reset(0)
    ends = 0
    for _ in range(17):
        assert time_step.failed is None, time_step.failures
        tree = time_step.observation
        time, mask = leaf(tree, "observation")[:, 0], leaf(tree, "action_mask")
        assert mask.dtype == (np.uint8 if where == "info" else np.int8)
        np.testing.assert_array_equal(mask.argmax(1)[time_step.acting], 3 - time[time_step.acting])
        ends += int(time_step.terminated.sum())
        (time_step,) = lanes.step((np.argmax(mask, axis=1),))
    assert ends == (8 if mode == "SAME_STEP" else 6)  # 4 steps each, and one more that shows a first observation
    lanes.close()


@pytest.mark.parametrize(("function", "where"), [("narrowing", "observation"), ("narrowing_vector", "info")])
def test_a_mask_may_have_another_name(function: str, where: str) -> None:
    """As with `srl train ... --ppo.mask-key legal`."""
    arguments = {"where": where, "key": "legal"}
    options = make_options(algorithm=PPOConfig(mask_key="legal"), env_args=arguments, scheduler="inline")
    prepared = prepare(f"{HERE}:{function}", options, ())
    lanes = prepared.environment.build(2)
    space = lanes.spec.teams[0].observation
    assert isinstance(space, Dict)
    assert set(space.items) == {"observation", "legal"}
    generator = np.random.default_rng(0)
    time_steps = lanes.reset(0)
    for _ in range(12):
        time_steps = lanes.step(some_actions(lanes.spec, generator, time_steps))
        assert time_steps[0].failed is None, time_steps[0].failures
    lanes.close()
    lanes = lanes_config(f"{HERE}:{function}", where=where, stuck=True, key="legal").with_mask_key("legal").build(2)
    lanes.reset(0)
    lanes.step((np.zeros(2, np.int64),))
    assert "'legal' forbids every choice" in lanes.step((np.ones(2, np.int64),))[0].failures[0]
    lanes.close()


def test_a_dict_observation_gets_one_more_key() -> None:
    lanes = lanes_config(f"{HERE}:narrowing", named=True).build(1)
    mask = Box((4,), "uint8", 0.0, 1.0)
    assert lanes.spec.teams[0].observation == Dict({"time": Box((1,), "float32", 0.0, 9.0), "action_mask": mask})
    assert leaf(lanes.reset(0)[0].observation, "action_mask").tolist() == [[1, 0, 0, 0]]
    lanes.close()


@pytest.mark.parametrize("function", ["narrowing", "narrowing_vector"])
@pytest.mark.parametrize("where", ["info", "observation"])
def test_a_mask_that_forbids_everything_is_a_failure_that_names_lane_and_step(function: str, where: str) -> None:
    lanes = lanes_config(f"{HERE}:{function}", where=where, stuck=True).build(2)
    lanes.reset(0)
    lanes.step((np.zeros(2, np.int64),))
    (time_step,) = lanes.step((np.ones(2, np.int64),))
    assert time_step.failed is not None
    report = time_step.failures[0]
    assert "'action_mask' forbids every choice" in report
    assert "narrowing" in report
    assert "step 2" in report
    assert "copy 0" in report or "lane 0" in report
    lanes.close()


def test_an_environment_without_masks_is_unchanged() -> None:
    lanes = lanes_config("srl.testing.environments:Tracer").build(1)
    assert isinstance(lanes.spec.teams[0].observation, Box)
    lanes.close()


def test_taxi_has_a_mask_in_its_infos() -> None:
    lanes = lanes_config("Taxi").build(3)
    space = lanes.spec.teams[0].observation
    assert isinstance(space, Dict)
    assert space.items["observation"] == Discrete(500)
    (time_step,) = lanes.reset(0)
    assert leaf(time_step.observation, "action_mask").any(1).all()
    lanes.close()


GAMES = f"pettingzoo:{masked_games.__file__}"


@pytest.mark.parametrize("game", ["TogetherInfos", "InTurnInfos"])
def test_masks_in_the_infos_of_games_are_added_to_the_observation(game: str) -> None:
    """An action that is not allowed raises, so that a mask of another agent or step would show as a failure."""
    pytest.importorskip("pettingzoo")
    lanes = lanes_config(f"{GAMES}:{game}").build(2)
    mask = Box((4,), "uint8", 0.0, 1.0)
    observations = {team.name: team.observation for team in lanes.spec.teams}
    if "free" in observations:
        assert observations.pop("free") == Box((1,), "float32", 0.0, 9.0)
    for observation in observations.values():
        assert observation == Dict({"observation": Box((1,), "float32", 0.0, 9.0), "action_mask": mask})
    time_steps = lanes.reset(0)
    episodes = 0
    for _ in range(30):
        for time_step in time_steps:
            assert time_step.failed is None, time_step.failures
            if isinstance(time_step.observation, dict):
                np.testing.assert_array_equal(time_step.observation["action_mask"].sum(1)[time_step.acting], 1)
        episodes += int(time_steps[0].terminated.sum())
        time_steps = lanes.step(
            tuple(
                np.argmax(time_step.observation["action_mask"], axis=1)
                if isinstance(time_step.observation, dict)
                else np.zeros(2, np.int64)
                for time_step in time_steps
            )
        )
    assert episodes >= 4
    lanes.close()


def test_a_game_without_an_expected_mask_fails_and_names_the_agent() -> None:
    pytest.importorskip("pettingzoo")
    lanes = lanes_config(f"{GAMES}:TogetherInfos", forgets=True).build(1)
    lanes.reset(0)
    lanes.step(tuple(np.array([choice]) for choice in (0, 1, 0)))
    report = lanes.step(tuple(np.array([choice]) for choice in (1, 2, 0)))[0].failures[0]
    assert "agent 'first': info has no key 'action_mask', although it had one at the first reset" in report
    lanes.close()


@pytest.mark.parametrize("game", ["TogetherInfos", "InTurnInfos"])
def test_a_policy_is_trained_and_recorded_with_masks_from_infos(
    tmp_path: Path, game: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pettingzoo")
    imageio = pytest.importorskip("imageio.v3")
    sizes: dict[str, Any] = {
        "lanes": 2,
        "horizon": 4,
        "steps": 64,
        "scheduler": "inline",
        "root": tmp_path,
        "name": "run",
    }
    run = srl.train(f"{GAMES}:{game}", **sizes)
    assert run.status.lane_failures == 0
    assert run.status.episodes > 0
    video = tmp_path / "video.gif"
    assert main(["record", str(run.path), "--out", str(video), "--episodes", "1"]) == 0
    assert "7 frames" in capsys.readouterr().out
    assert imageio.imread(video, index=0).shape[:2] == (16, 24)
