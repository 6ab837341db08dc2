import importlib.util
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from support.trees import leaf

from srl.environments import hide_and_seek
from srl.environments.hide_and_seek import HideAndSeekConfig, TransferTask, parallel_env
from srl.environments.hide_and_seek.lanes import HideAndSeekLanes
from srl.environments.hide_and_seek.rendering.renderer import Camera, NoCamera, Renderer
from srl.environments.hide_and_seek.scripted_players import BusyPlayers
from srl.environments.registry import lanes_config
from srl.testing.env_checks.environment import check_environment, has_errors


def test_ids_lead_to_games_with_their_options():
    config = lanes_config("hide-and-seek/quadrant", horizon=12, num_hiders=1)
    assert config == HideAndSeekConfig("quadrant", {"horizon": 12, "num_hiders": 1})
    lanes = config.build(2)
    assert [team.agents for team in lanes.spec.teams] == [("hider_0",), ("seeker_0",), ("seeker_1",)]
    assert lanes.spec.environment == "hide-and-seek/quadrant"
    lanes.close()


def test_wrong_names_and_options_are_refused_with_the_nearest_valid_one():
    with pytest.raises(ValueError, match="no game hide-and-seek/quadrent; did you mean 'quadrant'"):
        lanes_config("hide-and-seek/quadrent")
    with pytest.raises(ValueError, match="hide-and-seek/full has no option 'num_box'; did you mean 'num_boxes'"):
        lanes_config("hide-and-seek/full", num_box=3)
    with pytest.raises(ValueError, match="horizon must be an integer"):
        lanes_config("hide-and-seek/full", horizon=0)


def test_a_missing_package_of_the_game_is_named_with_its_command(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "mujoco" else found(name))
    with pytest.raises(
        ImportError, match=r"hide-and-seek/full needs mujoco, .*pip install \"srl-rl\[hide-and-seek\]\""
    ):
        lanes_config("hide-and-seek/full")
    with pytest.raises(ImportError, match="needs mujoco"):
        parallel_env("full")


def test_without_pettingzoo_its_environments_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    monkeypatch.delitem(sys.modules, "srl.environments.hide_and_seek.pettingzoo_env", raising=False)
    for make in (parallel_env, hide_and_seek.env):
        with pytest.raises(ImportError, match=r"needs pettingzoo.*pip install \"srl-rl\[hide-and-seek,pettingzoo\]\""):
            make("quadrant")
    assert lanes_config("hide-and-seek/quadrant")


def test_check_env_finds_nothing_wrong():
    assert not has_errors(check_environment("hide-and-seek/quadrant", {"horizon": 20}, steps=60))


def test_pettingzoos_own_test_is_passed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of PettingZoo about itself
        from pettingzoo.test import parallel_api_test, parallel_seed_test

    parallel_api_test(parallel_env("quadrant", horizon=20), num_cycles=50)
    parallel_seed_test(lambda: parallel_env("quadrant", horizon=20), num_cycles=30)


def test_the_pettingzoo_environment_is_the_same_game_as_the_lanes():
    lanes = lanes_config("hide-and-seek/quadrant", horizon=30).build(1)
    assert isinstance(lanes, HideAndSeekLanes)
    time_steps = lanes.reset(3)
    game = parallel_env("quadrant", horizon=30)
    observations, _ = game.reset(seed=lanes._seeds[0])
    assert game.agents == ["hider_0", "hider_1", "seeker_0", "seeker_1"]
    random = np.random.default_rng(0)
    for step in range(30):
        for name, value in observations["seeker_1"].items():
            np.testing.assert_array_equal(value, leaf(time_steps[3].observation, name)[0])
        actions = random.integers(0, (11, 11, 11, 2, 2), (4, 5))
        time_steps = lanes.step(tuple(actions[:, None]))
        observations, rewards, _, truncations, infos = game.step(dict(zip(game.agents, actions, strict=True)))
        assert rewards["hider_0"] == time_steps[0].reward[0]
        assert truncations["hider_0"] == (step == 29)
    assert game.agents == []
    assert infos["seeker_0"]["hider_return"] == time_steps[0].facts["hider_return"][0]
    lanes.close()
    game.close()


def test_pettingzoo_makes_it_by_its_id():
    import pettingzoo

    if not hasattr(pettingzoo, "make"):
        pytest.skip("this PettingZoo has no registry")
    game = pettingzoo.make("parallel", "hide-and-seek/quadrant-v0", horizon=5)
    game.reset(seed=0)
    assert len(game.agents) == 4
    game.close()


def test_absent_agents_are_not_in_the_pettingzoo_environment():
    game = parallel_env("reproduce")
    sizes = set()
    for seed in range(12):
        observations, _ = game.reset(seed=seed)
        sizes.add(len(game.agents))
        assert list(observations) == game.agents
    assert len(sizes) > 1
    assert len(game.possible_agents) == 6
    game.close()


def test_wrong_actions_are_refused():
    game = parallel_env("quadrant")
    game.reset(seed=0)
    still = dict.fromkeys(game.agents, np.array([5, 5, 5, 0, 0]))
    with pytest.raises(ValueError, match="no action for agent 'seeker_1'"):
        game.step({agent: action for agent, action in still.items() if agent != "seeker_1"})
    with pytest.raises(ValueError, match="integers from 0 to below"):
        game.step({**still, "seeker_1": np.array([11, 5, 5, 0, 0])})
    game.close()


def test_the_game_has_a_turn_based_version():
    game = hide_and_seek.env("quadrant", horizon=3)
    game.reset(seed=0)
    assert game.agent_selection == "hider_0"
    game.close()


def test_tasks_of_one_agent_are_gymnasium_environments():
    task = gymnasium.make("srl.environments.hide_and_seek.gymnasium_env:hide-and-seek/blueprint-v0", horizon=5)
    observation, _ = task.reset(seed=1)
    assert task.observation_space.contains(observation)
    for step in range(1, 6):
        _, reward, terminated, truncated, info = task.step(task.action_space.sample())
        assert isinstance(reward, float)
        assert truncated == (step == 5)
    assert not terminated
    assert "max_box_move" in info
    task.close()
    with pytest.raises(ValueError, match="'full' is not a task with one agent"):
        TransferTask("full")


@pytest.mark.parametrize("variant", ["quadrant", "full", "food", "blueprint", "shelter"])
def test_a_map_shows_every_game(variant):
    game = parallel_env(variant, "rgb_array", image_size=200)
    game.reset(seed=2)
    players = BusyPlayers(game._world.game, 2)
    first = leaf(game.render())
    for _ in range(6):
        actions = players.act()[0]
        game.step({agent: actions[game.possible_agents.index(agent)] for agent in game.agents})
    second = leaf(game.render())
    assert first.shape == second.shape == (200, 200, 3)
    assert first.dtype == np.uint8
    assert len(np.unique(first.reshape(-1, 3), axis=0)) > 20
    assert not np.array_equal(first, second)
    game.close()


def test_lanes_render_frames():
    lanes = lanes_config("hide-and-seek/full", image_size=100).build(1)
    lanes.reset(0)
    assert lanes.render().shape == (100, 100, 3)
    lanes.close()
    with pytest.raises(ValueError, match="image_size must be from 64 to 1280"):
        lanes_config("hide-and-seek/full", image_size=10).build(1)


def test_without_a_render_mode_there_is_no_frame():
    game = parallel_env("quadrant")
    game.reset(seed=0)
    assert game.render() is None
    game.close()
    with pytest.raises(ValueError, match="render_mode must be 'rgb_array'"):
        parallel_env("quadrant", "human")
    with pytest.raises(ValueError, match="no view 'mapp'; did you mean 'map'"):
        Renderer("mapp")


def test_rendering_does_not_change_the_game():
    ends = []
    for looks in (False, True):
        game = parallel_env("quadrant", "rgb_array", image_size=64)
        game.reset(seed=4)
        for _ in range(5):
            game.step(dict.fromkeys(game.agents, np.array([9, 2, 7, 1, 0])))
            if looks:
                game.render()
        ends.append(game._world.game.worlds.q.copy())
        game.close()
    np.testing.assert_array_equal(ends[0], ends[1])


def test_the_camera_renders_the_world():
    game = parallel_env("quadrant")
    game.reset(seed=0)
    camera = Camera(96)
    try:
        image = camera.render(game._world.game, 0)
    except NoCamera:
        pytest.skip("this machine cannot draw off screen")
    finally:
        camera.close()
        game.close()
    assert image.shape == (96, 96, 3)
    assert len(np.unique(image.reshape(-1, 3), axis=0)) > 20
