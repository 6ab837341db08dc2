import multiprocessing
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from support.faulty_environments import Faulty

from srl.testing.environments import SEED_MODULUS, Tracer


def episode(environment: gymnasium.Env, seed: int | None = None) -> list[tuple]:
    observation, _ = environment.reset(seed=seed)
    rows = [(observation.tolist(), 0.0, False, False)]
    while not (rows[-1][2] or rows[-1][3]):
        observation, reward, terminated, truncated, _ = environment.step(0)
        rows.append((observation.tolist(), reward, terminated, truncated))
    return rows


def test_a_tracer_shows_seed_episode_and_time_and_its_reward_is_the_time():
    tracer = Tracer(length=2)
    assert episode(tracer, seed=7) == [
        ([7, 0, 0], 0.0, False, False),
        ([7, 0, 1], 1.0, False, False),
        ([7, 0, 2], 2.0, True, False),
    ]
    assert episode(tracer)[0][0] == [7, 1, 0]
    assert episode(tracer, seed=8)[0][0] == [8, 0, 0]
    assert episode(Tracer(length=1, truncate=True))[-1] == ([-1, 0, 1], 1.0, False, True)


def test_seeds_survive_float32():
    observation, _ = Tracer().reset(seed=2**31 - 1)
    assert observation[0] == (2**31 - 1) % SEED_MODULUS


@pytest.mark.filterwarnings("ignore")
def test_gymnasium_finds_nothing_wrong_with_a_tracer():
    check_env(Tracer(), skip_render_check=True)


def test_a_fault_occurs_at_its_step_of_its_episode():
    faulty = Faulty(fault="raise", after=2, every=2)
    episode(faulty)
    with pytest.raises(RuntimeError, match="step 2 of episode 1"):
        episode(faulty)


def test_a_fault_in_reset():
    with pytest.raises(RuntimeError, match="step 0 of episode 0"):
        Faulty(fault="raise_in_reset").reset()


def test_faults_that_return_nonsense():
    def second_step(fault: str) -> tuple:
        faulty = Faulty(fault=fault, after=2)
        faulty.reset()
        faulty.step(0)
        return faulty.step(0)

    assert np.isnan(second_step("nan")[0]).all()
    assert np.isnan(second_step("nan_reward")[1])
    assert second_step("shape")[0].shape == (4,)
    assert second_step("dtype")[0].dtype == np.float64


def test_a_fault_with_a_flag_file_occurs_once(tmp_path: Path):
    flag = str(tmp_path / "flag")
    with pytest.raises(RuntimeError):
        episode(Faulty(once=flag))
    assert len(episode(Faulty(once=flag))) == 6


@pytest.mark.parametrize(("fault", "exitcode"), [("exit", 3), ("segfault", -signal.SIGSEGV)])
def test_faults_that_end_the_process(fault: str, exitcode: int):
    process = multiprocessing.get_context("spawn").Process(target=run_to_death, args=(fault,))
    process.start()
    process.join(30)
    assert process.exitcode == exitcode


def run_to_death(fault: str) -> None:
    episode(Faulty(fault=fault))


def test_a_misspelled_fault_is_refused():
    with pytest.raises(ValueError, match="unknown fault 'nann'"):
        Faulty(fault="nann")


def game_module() -> Any:
    pytest.importorskip("pettingzoo")
    from support import games

    return games


@pytest.mark.filterwarnings("ignore")
def test_pettingzoo_finds_nothing_wrong_with_its_environments(capsys):
    games = game_module()
    from pettingzoo.test import api_test, parallel_api_test

    parallel_api_test(games.DyingTeam(), num_cycles=50)
    api_test(games.TurnGame(num_agents=3, length=9, deaths=(0, 2, 0)), num_cycles=50)


def test_a_dying_team_dies_at_known_times():
    games = game_module()
    team = games.DyingTeam(deaths=(1, 2))
    team.reset(seed=5)
    observations, rewards, terminations, *_ = team.step({"agent_0": 0, "agent_1": 0})
    assert observations["agent_1"].tolist() == [5, 0, 1, 1]
    assert (rewards, terminations) == ({"agent_0": 1.0, "agent_1": 101.0}, {"agent_0": True, "agent_1": False})
    assert team.agents == ["agent_1"]
    assert team.step({"agent_1": 0})[2] == {"agent_1": True}
    assert team.agents == []


def test_every_move_of_a_turn_game_rewards_all_agents():
    games = game_module()
    game = games.TurnGame(length=3)
    game.reset(seed=5)
    seen = []
    for agent in game.agent_iter():
        observation, reward, terminated, _, _ = game.last()
        seen.append((agent, observation.tolist(), reward, terminated))
        game.step(None if terminated else 0)
    assert seen == [
        ("agent_0", [5, 0, 0, 0], 0, False),
        ("agent_1", [5, 0, 1, 1], 10, False),
        ("agent_0", [5, 0, 2, 0], 11, False),
        ("agent_0", [5, 0, 3, 0], 1, True),
        ("agent_1", [5, 0, 3, 1], 11, True),
    ]
