import importlib.metadata
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from support import tracers
from support.trees import leaf

import srl
from srl.api.spaces import Discrete
from srl.base.config import from_data, to_data
from srl.environments.adapters.gymnasium import GymnasiumConfig
from srl.environments.adapters.minigrid import BABY_WORDS
from srl.environments.adapters.vector import VectorConfig
from srl.environments.mujoco.lanes import MujocoConfig
from srl.environments.registry import LanesFunctionConfig, lanes_config

OWN = """
import gymnasium
import numpy as np

class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size=2):
        self.size = size

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.ones(2, np.float32), 1.0, False, False, {}

def make(size=2):
    return Mine(size)

if __name__ == "__main__":
    from srl.environments.registry import lanes_config
    config = lanes_config(make, size=3)
    print(config.name)
    print(config.build(2).reset(0)[0].observation.shape)
"""


def several(num_copies: int, length: int = 2):
    return lanes_config(tracers.next_step, length=length).build(num_copies)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("CartPole-v1", VectorConfig),
        ("Acrobot-v1", GymnasiumConfig),
        ("HalfCheetah-v5", MujocoConfig),
        ("HalfCheetah-v4", GymnasiumConfig),
        ("HalfCheetah", MujocoConfig),
        ("support.tracers:next_step", VectorConfig),
        ("support.tracers:echo_box", GymnasiumConfig),
        ("srl.testing.environments:Tracer", GymnasiumConfig),
    ],
)
def test_the_best_adapter_is_chosen(name, kind):
    if kind is MujocoConfig or "Cheetah" in name:
        pytest.importorskip("mujoco")
    assert type(lanes_config(name)) is kind


@pytest.mark.parametrize(
    "name", ["CartPole-v1", "Acrobot-v1", "HalfCheetah-v5", "ALE/Pong-v5", "support.tracers:next_step"]
)
def test_a_config_survives_the_conversion_to_json(name):
    if "Cheetah" in name or "ALE" in name:
        pytest.importorskip("mujoco")
        pytest.importorskip("ale_py")
    config: Any = lanes_config(name)
    again: Any = from_data(json.loads(json.dumps(to_data(config))))
    assert again == config
    lanes = again.build(2)
    assert leaf(lanes.reset(0)[0].observation).shape[0] == 2
    lanes.close()


def test_functions_are_named_where_workers_find_them():
    assert lanes_config(tracers.echo_box).environment_name() == "support.tracers:echo_box"
    assert lanes_config(several, length=3) == LanesFunctionConfig("test_registry:several", {"length": 3})
    assert lanes_config(several).build(3).spec.num_copies == 3


def test_an_environment_that_only_this_process_has_registered_is_named_by_its_entry_point():
    gymnasium.register("Mine-v0", entry_point="support.tracers:echo_discrete", max_episode_steps=2)
    try:
        config = lanes_config("Mine-v0")
    finally:
        del gymnasium.registry["Mine-v0"]  # as it is in a worker process
    lanes = config.build(1)
    lanes.reset(0)
    assert [bool(lanes.step((np.ones(1, np.int64),))[0].truncated[0]) for _ in range(3)] == [False, True, False]


def test_the_vocabulary_of_missions_has_the_colors_of_minigrid():
    """The tests of MiniGrid itself need the package, which is not among the development tools."""
    assert {"red", "green", "blue", "purple", "yellow", "grey"} <= set(BABY_WORDS)


class Grid(gymnasium.Env):
    def __init__(self, size, goal="far", seen=None):
        self.size, self.goal, self.seen = size, goal, seen


@pytest.mark.parametrize(
    ("instance", "call"),
    [
        (Grid(3), "Grid: srl.train(Grid, env_args={'size': 3, 'goal': 'far'})"),
        (gymnasium.Env(), "Env: srl.train(Env)"),
    ],
)
def test_an_instance_in_place_of_its_class_is_refused(instance, call):
    with pytest.raises(ValueError) as error:
        srl.train(instance, scheduler="inline")
    assert str(error.value) == f"pass the class or a function, not an instance of {call}"


def test_a_made_environment_is_refused_with_its_id():
    made = gymnasium.make("CartPole-v1")
    with pytest.raises(ValueError, match=r"not an instance of \w+: srl.train\('CartPole-v1'\)"):
        lanes_config(made)
    made.close()


def test_a_file_is_found_by_its_path_and_imported_once(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    config = lanes_config("own.py:make", size=5)
    assert config.environment_name() == f"{tmp_path}/own.py:make"
    monkeypatch.chdir("/")
    lanes = config.build(2)
    assert leaf(lanes.reset(0)[0].observation).tolist() == [[0, 0], [0, 0]]
    assert lanes.step((np.zeros(2, np.int64),))[0].reward.tolist() == [1, 1]
    with pytest.raises(ValueError, match="has no option 'sise'; did you mean 'size'"):
        lanes_config(f"{tmp_path}/own.py:make", sise=5)
    with pytest.raises(ValueError, match="has no 'mak'; did you mean 'make'"):
        lanes_config(f"{tmp_path}/own.py:mak")
    with pytest.raises(ValueError, match=r"own.py has no 'np_'; valid ones: Mine, make$"):  # not what it imports
        lanes_config(f"{tmp_path}/own.py:np_")


def test_a_function_of_the_script_that_runs_is_named_by_its_path(tmp_path):
    script = tmp_path / "own.py"
    script.write_text(OWN)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=200, check=False)
    assert done.stdout.split("\n")[:2] == [f"{script}:make", "(2, 2)"], done.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "highway-fast-v0",
            "no environment 'highway-fast-v0'. `pip install highway-env` has it as highway_env:highway-",
        ),
        ("env.py", "'env.py' is a file; name the function in it that makes the environment: env.py:make"),
        ("CartPole-v7", "no environment 'CartPole-v7'; did you mean CartPole-v1"),
        ("cartpol", "did you mean CartPole-v1"),
        ("HalfCheeta-v5", "did you mean HalfCheetah-v5"),
        ("nosuchmodule:make", "no module 'nosuchmodule'"),
        ("nosuchmodule:Env-v0", "no module 'nosuchmodule'"),
        ("/no/such/file.py:make", "no file /no/such/file.py"),
        ("support.tracers:number", "support.tracers:number is int, not a function"),
    ],
)
def test_wrong_names_are_refused_with_the_nearest_valid_one(name, message):
    with pytest.raises(ValueError, match=message):
        lanes_config(name)


def test_a_misspelled_option_of_a_registered_environment_is_refused():
    with pytest.raises(
        ValueError, match="CartPole-v1 has no option 'sutton_barto'; did you mean 'sutton_barto_reward'"
    ):
        lanes_config("CartPole-v1", sutton_barto=True)


@pytest.mark.parametrize(
    ("package", "name", "command"),
    [
        ("mujoco", "HalfCheetah-v5", 'pip install "srl-rl[mujoco]"'),
        ("ale_py", "ALE/NoSuchGame-v5", 'pip install "srl-rl[atari]"'),
        ("Box2D", "LunarLander-v3", 'pip install "srl-rl[box2d]"'),
        ("envpool", "envpool:Pong-v5", 'pip install "srl-rl[envpool]"'),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, package, name, command):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda wanted: None if wanted == package else find(wanted))
    with pytest.raises(ValueError) as error:
        lanes_config(name)
    assert command in str(error.value)
    assert package.lower() in str(error.value).lower()


def test_the_example_of_the_guide_runs():
    path = Path(__file__).parents[2] / "examples/own_environment.py"
    lanes = lanes_config(f"{path}:make").build(4)
    action = lanes.spec.teams[0].action
    assert isinstance(action, Discrete)
    (time_step,) = lanes.reset(0)
    ended = np.zeros(4, bool)
    random = np.random.default_rng(0)
    for _ in range(300):
        (time_step,) = lanes.step((random.integers(0, action.n, 4),))
        assert not time_step.failures
        ended |= ~time_step.acting
    assert ended.all()


def test_an_unknown_id_suggests_the_installed_packages_that_may_register_it(monkeypatch):
    needs = {"robots": ["gymnasium>=1.0"], "maths": ["numpy"], "logs": ["gymnasium; extra == 'all'"]}
    owners = {"robot_tasks": ["robots"], "mathematics": ["maths"], "logs": ["logs"], "srl": ["robots"]}
    monkeypatch.setattr(importlib.metadata, "packages_distributions", lambda: owners)
    monkeypatch.setattr(importlib.metadata, "requires", needs.get)
    with pytest.raises(ValueError, match=r"name its module, too: robot_tasks:GraspTheCup-v4\. Name"):
        lanes_config("GraspTheCup-v4")
