"""Recipes: the choice for an environment, and that values of the user always win."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from support import PURSUIT
from support.trees import leaf

import srl
from srl.api.lanes import LaneSpec, TeamSpec
from srl.api.spaces import Box, Dict, Discrete
from srl.base.config import from_data
from srl.cli.main import main, parse
from srl.environments.adapters.atari import AtariConfig
from srl.environments.adapters.gymnasium import GymnasiumConfig
from srl.environments.registry import lanes_config
from srl.experiments.graph.environment_probe import EnvironmentProfile
from srl.experiments.graph.preparation import PreparedRun, prepare
from srl.experiments.graph.sizes import choose_sizes
from srl.experiments.options.algorithms import ALGORITHMS
from srl.experiments.options.keywords import make_options, merged
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.recipes.apply import apply, recipe_for
from srl.experiments.recipes.single_agent import RECIPES
from srl.workers.trainer.worker import TrainerWorkerConfig

BY_NAME = {recipe.name: recipe for recipe in RECIPES}
WITH_ATARI = pytest.mark.skipif(importlib.util.find_spec("ale_py") is None, reason="ale_py is not installed")
WITH_BOX2D = pytest.mark.skipif(importlib.util.find_spec("Box2D") is None, reason="Box2D is not installed")
WITH_MPE = pytest.mark.skipif(importlib.util.find_spec("mpe2") is None, reason="mpe2 is not installed")
QUICK: dict[str, Any] = {"scheduler": "inline", "steps": 1, "sinks": ()}


class Continuous(gymnasium.Env[Any, Any]):
    """An environment that no recipe knows by name."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, False, False, {}


class Camera(Continuous):
    """The same environment, observed through a camera and a speed."""

    def __init__(self) -> None:
        super().__init__()
        image = gymnasium.spaces.Box(0, 255, (3, 36, 36), np.uint8)
        self.observation_space = gymnasium.spaces.Dict({"camera": image, "speed": gymnasium.spaces.Box(-9, 9, (1,))})


def prepared(environment: Any, **options: Any) -> PreparedRun:
    return prepare(environment, *merged(TrainOptions(), options))


def gymnasium_config(environment: str, **options: Any) -> GymnasiumConfig:
    config = prepared(environment, **options).environment
    assert isinstance(config, GymnasiumConfig)
    return config


def ppo_of(options: TrainOptions) -> srl.PPOConfig:
    assert isinstance(options.algorithm, srl.PPOConfig)
    return options.algorithm


def saved_options(run: Path) -> TrainOptions:
    options: TrainOptions = from_data(json.loads((run / "config.json").read_text())["options"])
    return options


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ("CartPole-v1", "classic-control"),
        ("Acrobot-v1", "acrobot"),
        ("Pendulum-v1", "pendulum"),
        ("MountainCar-v0", "mountain-car"),
        ("MountainCarContinuous-v0", "mountain-car-continuous"),
        ("HalfCheetah-v5", "half-cheetah"),
        ("pettingzoo:classic.tictactoe_v3", "board-games"),
        pytest.param("pettingzoo:mpe.simple_spread_v3", "mpe-spread", marks=WITH_MPE),
        ("ALE/Pong-v5", "atari"),
        ("PongNoFrameskip-v4", "atari"),
        ("FrozenLake-v1", "toy-text"),
        (Continuous, "continuous"),
        (Camera, "continuous-image"),
    ],
)
def test_an_environment_gets_the_recipe_of_its_family(environment: Any, name: str) -> None:
    found = prepared(environment)
    assert found.options.run.recipe == name
    assert found.recipe.startswith(f"recipe {name}")


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ("Swimmer-v5", "swimmer"),
        ("Walker2d-v5", "mujoco"),
        ("Pusher-v5", "pusher"),
        ("Ant-v5", "ant"),
        ("Humanoid-v5", "ant"),
        pytest.param("CarRacing-v3", "car-racing", marks=WITH_BOX2D),
        pytest.param("BipedalWalkerHardcore-v3", "bipedal-walker", marks=WITH_BOX2D),
    ],
)
def test_a_name_is_enough_to_find_the_recipe(environment: str, name: str) -> None:
    """The spaces are not needed, so the environment is not created."""
    found = recipe_for(lanes_config(environment), LaneSpec(environment, 1, ()))
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    ("observation", "name"),
    [
        (Box((4, 84, 84, 3), "uint8", 0.0, 255.0), "image"),  # stacked frames in color
        (Box((10, 10, 4), "uint8", 0.0, 1.0), "image"),  # small images of bytes
        (Dict({"camera": Box((3, 64, 64), "uint8", 0.0, 255.0), "speed": Box((2,))}), "image"),
        (Box((3, 64, 64)), "default"),  # numbers without bounds: no network treats them as an image
    ],
)
def test_observations_that_networks_treat_as_images_get_the_recipe_for_images(observation: Any, name: str) -> None:
    spec = LaneSpec("unknown", 1, (TeamSpec("agent", ("agent",), observation, Discrete(2)),))
    found = recipe_for(lanes_config(Continuous), spec)
    assert found is not None
    assert found.name == name
    probed = EnvironmentProfile(spec, step_us=1.0)
    assert choose_sizes(TrainOptions(), probed, 2, True).horizon == (128 if name == "image" else 32)


def test_continuous_parts_of_an_action_decide_about_the_recipe() -> None:
    action = Dict({"steer": Box((1,)), "gear": Discrete(5)})
    found = recipe_for(lanes_config(Continuous), LaneSpec("x", 1, (TeamSpec("a", ("a",), Box((2,)), action),)))
    assert found is not None
    assert found.name == "continuous"


def test_every_recipe_sets_options_that_exist_for_every_algorithm() -> None:
    failures = []
    for name, recipe in BY_NAME.items():
        for algo in ALGORITHMS:
            try:
                apply(recipe, make_options(algo=algo), ())
            except (TypeError, ValueError) as error:
                failures.append(f"{name} with {algo}: {error}")
    assert failures == []


@pytest.mark.parametrize(("task", "sizes"), [("FetchReach-v4", (64, 64)), ("FetchPush-v4", (512, 512, 512))])
def test_fetch_tasks_are_learned_in_hindsight(task: str, sizes: tuple[int, ...]) -> None:
    environment = GymnasiumConfig(f"gymnasium_robotics:{task}")
    found: Any = apply(recipe_for(environment, LaneSpec(task, 1, ())), make_options(algo="sac"), ()).algorithm
    assert (found.her, found.hidden_sizes, found.normalize_observation) == ("future", sizes, True)


def test_a_recipe_may_set_the_action_repeat() -> None:
    assert gymnasium_config("MountainCarContinuous-v0").action_repeat == 8
    assert gymnasium_config("MountainCarContinuous-v0", action_repeat=1).action_repeat == 1
    native = prepared("CartPole-v1", recipe="mountain-car-continuous")  # whose copies are stepped together
    assert native.options.run.action_repeat == 1
    assert "action_repeat" not in native.recipe


@pytest.mark.parametrize(
    ("environment", "options", "batch"),
    [
        ("CartPole-v1", {}, 2048),
        ("CartPole-v1", {"recipe": "none", "algo": "impala"}, 2048),
        ("CartPole-v1", {"algo": "a2c"}, 128),  # a batch is one gradient step
        ("CartPole-v1", {"actors": 3}, 3 * 2048),  # actors that were asked for count
        (Camera, {}, 1024),
    ],
)
def test_the_batch_does_not_depend_on_the_number_of_cores(
    environment: Any, options: dict[str, Any], batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for cores in (2, 16):
        monkeypatch.setattr("srl.experiments.graph.standard.num_cores", lambda cores=cores: cores)
        groups = {group.name: group for group in prepared(environment, **options).experiment.groups}
        trainer = groups["trainers"].config
        assert isinstance(trainer, TrainerWorkerConfig)
        found[cores] = trainer.samples.batch
        assert groups["actors"].count >= options.get("actors", cores - 1)
    assert found == {2: batch, 16: batch}


def test_numbers_next_to_images_and_returns_are_normalized(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"lanes": 1, "horizon": 8, "batch": 8}
    run = srl.train(Camera, ppo={"num_minibatches": 1, "epochs": 1}, root=tmp_path, name="run", **sizes, **QUICK)
    ppo = ppo_of(saved_options(run.path))
    assert (ppo.normalize_observation, ppo.normalize_return, ppo.entropy_coefficient) == (True, "running", 0.0)
    assert srl.load(run.path).act(gymnasium.spaces.Dict(Camera().observation_space).sample()).shape == (1,)


def test_an_environment_whose_episodes_may_never_end_gets_a_limit_of_steps() -> None:
    """CliffWalking ends only at its goal, which a policy that avoids the cliff never reaches."""
    assert gymnasium_config("CliffWalking-v1").max_episode_steps == 200
    given = gymnasium_config("CliffWalking-v1", env_args={"max_episode_steps": 50})
    assert (given.max_episode_steps, given.kwargs) == (None, {"max_episode_steps": 50})


@WITH_ATARI
def test_a_recipe_may_set_options_of_the_environment_and_reports_them() -> None:
    found = prepared("BreakoutNoFrameskip-v4")
    assert isinstance(found.environment, AtariConfig)
    assert found.environment.episodic_life
    assert found.options.run.env_args == {"episodic_life": True}, "saved in config.json"
    assert "episodic_life True" in found.recipe
    given = prepared("BreakoutNoFrameskip-v4", env_args={"episodic_life": False})
    assert isinstance(given.environment, AtariConfig)
    assert not given.environment.episodic_life
    assert "episodic_life" not in given.recipe
    assert prepared("ALE/Breakout-v5", env_args={"obs_type": "ram"}).options.run.env_args == {"obs_type": "ram"}


def test_cartpole_keeps_the_defaults() -> None:
    assert prepared("CartPole-v1").options == make_options(recipe="classic-control")


def test_a_run_prints_its_recipe_and_flags_win(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--steps", "1", "--scheduler", "inline", "--root", str(tmp_path), "--name", "run", "--sinks"]
    words += ["--lanes", "2", "--horizon=16", "--batch", "32", "--ppo.epochs", "1", "--ppo.no-normalize-observation"]
    assert main(["train", "Pendulum-v1", "--recipe", "mujoco", *words]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("recipe")]
    assert "recipe mujoco" in line
    assert "num_minibatches 8" in line
    assert "normalize_observation" not in line
    options = saved_options(tmp_path / "run")
    assert (options.run.recipe, *(options.value(name) for name in ("lanes", "horizon", "batch"))) == (
        "mujoco",
        2,
        16,
        32,
    )
    ppo = ppo_of(options)
    assert (ppo.epochs, ppo.num_minibatches, ppo.learning_rate) == (1, 8, 6e-4)
    assert (ppo.normalize_observation, ppo.normalize_return) == (False, "running")


def test_a_given_value_that_equals_the_default_wins_too() -> None:
    """The recipe must not replace a value that the user asked for, even if it is the default."""
    command = parse(["train", "Pendulum-v1", "--ppo.gamma", "0.99"])
    assert ppo_of(prepared(command.env, **command.keywords).options).gamma == 0.99
    assert ppo_of(prepared("Pendulum-v1").options).gamma == 0.9
    assert ppo_of(prepared("Pendulum-v1", ppo={"gamma": 0.99}).options).gamma == 0.99


def test_a_whole_config_from_python_stays_unchanged(tmp_path: Path) -> None:
    config = srl.PPOConfig(num_minibatches=1, epochs=1)
    run = srl.train("Pendulum-v1", algo=config, lanes=3, horizon=8, root=tmp_path, name="run", **QUICK)
    options = saved_options(run.path)
    assert options.run.recipe == "pendulum"
    assert options.algorithm == config
    assert options.workers.batch is None, "the recipe's batch is not made of blocks of 3 x 8"


def test_the_recipe_none_keeps_the_defaults() -> None:
    found = prepared("Acrobot-v1", recipe="none")
    assert found.options == make_options(recipe="none")
    assert "none" in found.recipe


def test_an_unknown_recipe_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "CartPole-v1", "--recipe", "mujco"]) == 2
    assert "no recipe 'mujco'; did you mean 'mujoco'?" in capsys.readouterr().err


def test_sizes_of_the_recipe_that_contradict_the_users_are_dropped() -> None:
    def sizes(options: TrainOptions) -> tuple[int | None, ...]:
        return tuple(options.value(name) for name in ("lanes", "horizon", "batch"))

    recipe = BY_NAME["mujoco"]
    assert sizes(apply(recipe, TrainOptions(), ())) == (8, 128, 2048)
    assert sizes(apply(recipe, make_options(lanes=12), {"lanes"})) == (12, 128, None)
    assert sizes(apply(recipe, make_options(lanes=4), {"lanes"})) == (4, 128, 2048)
    assert sizes(apply(recipe, make_options(batch=500), {"batch"})) == (None, None, 500)
    assert sizes(apply(recipe, make_options(trainers=4), {"trainers"})) == (8, 128, None)


def test_an_unknown_game_of_several_agents_has_a_batch_that_any_of_its_policies_can_fill() -> None:
    roles = ("chaser_*=chasers", "runner_*=runners")  # two and one
    options = prepared(PURSUIT, roles=roles, lanes=2, horizon=4).options
    assert (options.run.recipe, options.workers.batch) == ("default", None)


def test_a_batch_is_made_of_whole_blocks_of_every_policy() -> None:
    roles = ("chaser_*=chasers", "runner_*=runners")  # two and one
    game = PURSUIT
    options = prepared(game, roles=roles, recipe="board-games", lanes=16, horizon=64).options
    assert options.workers.batch is not None
    assert options.workers.batch % (2 * 16 * 64) == 0


def test_other_algorithms_take_only_the_settings_of_the_task() -> None:
    options = apply(BY_NAME["mujoco"], make_options(algo="a2c"), ())
    assert options.algorithm == replace(
        srl.A2CConfig(), normalize_observation=True, normalize_return="running", entropy_coefficient=0.0
    )
    assert (options.workers.lanes, options.workers.batch) == (None, None)
    own = apply(BY_NAME["mujoco"], TrainOptions(algo="file.py:Mine"), ())
    assert own == TrainOptions(algo="file.py:Mine").replace(recipe="mujoco")


def test_minigrid_is_readable_and_has_its_recipe() -> None:
    pytest.importorskip("minigrid")
    found = prepared("minigrid:MiniGrid-Empty-5x5-v0")
    assert found.options.run.recipe == "minigrid"
    lanes = found.environment.build(2)
    observation = leaf(lanes.reset(0)[0].observation)
    lanes.close()
    assert observation.shape == (2, 49 * 21 + 4)
    assert observation.sum(axis=1).tolist() == [49 * 3 + 1] * 2, "one kind, color and state for each cell"
    assert prepared("MiniGrid-Empty-5x5-v0").environment == found.environment, "its ids are known without the module"
