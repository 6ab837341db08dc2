"""MuZero for two players: signs at every ply, in targets, in searches and in runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import srl
from srl.algorithms.muzero.config import MuZeroConfig
from srl.algorithms.muzero.targets import for_movers, windows
from srl.api.block import BlockMemory, BlockSpec
from srl.api.dataflow import SequenceBatch
from srl.api.spaces import array_spec
from srl.base.tree import leaves
from srl.cli.main import main
from srl.environments.games.boards import RowGameConfig
from srl.environments.games.config import GameConfig
from srl.replay.memory import ReplayMemory
from srl.testing.solved_games import perfect_play

TIC_TAC_TOE = GameConfig(RowGameConfig()).with_joint_seats()
SMALL: dict[str, Any] = {
    "hidden_sizes": (8,),
    "latent_size": 8,
    "num_bins": 11,
    "bin_width": 0.25,
    "simulations": 4,
    "unroll": 3,
    "n_step": 2,
    "gamma": 0.5,
    "learning_starts": 0,
    "batch_size": 64,
}
GAMES = {
    "player 0 wins": ([0, 3, 1, 4, 2], 0),
    "player 1 wins": ([1, 0, 2, 3, 4, 6], 1),
    "draw": ([0, 1, 2, 4, 3, 5, 7, 6, 8], None),
}


def replayed(moves: list[int], horizon: int = 16, **options: Any) -> tuple[Any, SequenceBatch]:
    """Play one game in a lane, and return windows that begin at its rows. Searches found 0.25 for each mover."""
    config, lanes = MuZeroConfig(**{**SMALL, **options}), TIC_TAC_TOE.build(1)
    team = lanes.spec.teams[0]
    trainer = config.build_trainer(team.observation, team.action, 0)
    spec = BlockSpec(horizon, 1, array_spec(team.observation), config.decision_spec(team.observation, team.action))
    memory = ReplayMemory(config.dataflow(), spec, seed=0)
    blocks = BlockMemory.create("muzero-test", spec, 1)
    arrays: Any = blocks.blocks[0].arrays
    (now,) = lanes.reset(0)

    def arrive(row: int, step: int) -> None:
        for path, value in leaves(now.observation):
            arrays[f"observation/{path}"][row] = value
        arrays["acting"][row], arrays["first"][row] = now.acting & (step < len(moves)), step == 0
        for name in ("reward", "terminated", "truncated"):
            arrays[name][row] = 0

    arrive(0, 0)
    for step in range(horizon):
        arrays["decision/policy"][step], arrays["decision/value"][step] = 1 / 9, 0.25
        if now.acting[0] and step < len(moves):
            arrays["decision/action"][step] = moves[step]
            (now,) = lanes.step((np.array([moves[step]]),))
            arrays["reward"][step], arrays["terminated"][step] = now.reward, now.terminated
        arrive(step + 1, step + 1)
    memory.insert(arrays, "lane", 0)
    drawn = memory.draw(1, 0.0, 200).batch
    blocks.close()
    assert isinstance(drawn, SequenceBatch)
    return trainer, drawn


def by_ply(trainer: Any, batch: SequenceBatch) -> dict[int, tuple[list[float], list[float]]]:
    """Return the targets of values and of rewards of the window that begins at each ply."""
    window = trainer.minibatch(batch, 0, torch.device("cpu"))
    values, rewards = trainer.value_targets(window).numpy(), window.reward.numpy()
    observation: Any = batch.observation
    plies = observation["observation"][0, 0].reshape(batch.first.shape[2], -1).sum(1).astype(int)
    found: dict[int, tuple[list[float], list[float]]] = {}
    for lane, ply in enumerate(plies.tolist()):
        if window.has_policy[0, lane]:
            own = values[:, lane].round(5).tolist(), rewards[:, lane].round(5).tolist()
            assert found.setdefault(ply, own) == own
    return found


@pytest.mark.parametrize("game", GAMES)
def test_windows_that_begin_at_every_ply_have_the_sign_of_the_player_to_move(game: str) -> None:
    """The network values each position with 0.1 for whoever is to move. Results are discounted by 0.5 per move."""
    moves, winner = GAMES[game]
    trainer, batch = replayed(moves)
    target = trainer.learner.targets["model"]
    target.prediction.layers[-1].weight.data.zero_()
    place = (np.sqrt(1.1) - 1 + 0.0001) / 0.25
    bias = target.prediction.layers[-1].bias.data
    bias[9:20] = -1e9
    bias[9 + 5], bias[9 + 6] = np.log(1 - place), np.log(place)
    found, last = by_ply(trainer, batch), len(moves) - 1
    assert sorted(found) == list(range(len(moves)))

    def value(ply: int) -> float:
        if ply > last:
            return 0.0
        if last - ply < 2:
            return 0.0 if winner is None else 0.5 ** (last - ply) * (1.0 if ply % 2 == winner else -1.0)
        return 0.25 * 0.1  # two moves later the same player is to move

    def reward(ply: int) -> float:
        return 0.0 if ply != last or winner is None else 1.0 if ply % 2 == winner else -1.0

    for ply, (values, rewards) in found.items():
        assert values == pytest.approx([value(ply + k) for k in range(4)], abs=1e-4), ply
        assert rewards == pytest.approx([reward(ply + k) for k in range(3)]), ply


@pytest.mark.parametrize(("n_step", "expected"), [(1, -0.5 * 0.25), (2, 0.25 * 0.25), (3, -0.125 * 0.25)])
def test_a_root_value_is_bootstrapped_with_the_sign_of_who_found_it(n_step: int, expected: float) -> None:
    found = by_ply(*replayed(GAMES["draw"][0], n_step=n_step, bootstrap="search"))
    for ply in range(4):
        assert found[ply][0][0] == pytest.approx(expected, abs=1e-5)


def test_signs_follow_who_moves_also_if_a_player_moves_twice() -> None:
    """Rows of players 0, 0, 1, 1, 0; player 0 earns 1 in each row."""
    flags, ones = np.zeros((5, 1), bool), np.ones((5, 1), bool)
    reward, to_play = np.ones((5, 1), np.float32), np.array([[0], [0], [1], [1], [0]])
    action, random = np.zeros((5, 1), np.int64), np.zeros((2, 1), np.int64)
    cut = for_movers(windows(action, reward, flags, flags, ones, flags, ones, random, 2, 2, 0.5), to_play)
    assert cut.reward[:, 0].tolist() == [1.0, 1.0]
    assert cut.total[:, 0].tolist() == [1.5, 1.5, -1.5]
    assert cut.discount[:, 0].tolist() == [-0.25, -0.25, -0.25]


@pytest.mark.parametrize("search", ["gumbel", "puct"])
def test_a_search_turns_the_sign_with_every_move(search: Any) -> None:
    """All positions are worth 0.5 for the player to move, so that a move is worth -0.5 * gamma."""
    lanes = TIC_TAC_TOE.build(2)
    team = lanes.spec.teams[0]
    config = MuZeroConfig(**{**SMALL, "search": search, "num_bins": 3, "bin_width": 1.0})
    network: Any = config.build_network(team.observation, team.action, 0)[0]
    assert network.takes_turns
    policy: Any = config.build_policy(team.observation, team.action, 1)
    trainer: Any = config.build_trainer(team.observation, team.action, 0)
    bias = trainer._network.prediction.layers[-1].bias.data
    place = np.sqrt(1.5) - 1 + 0.0005
    bias[9:12] = torch.tensor([-1e9, np.log(1 - place), np.log(place)])
    bias[12:15] = torch.tensor([-1e9, 0.0, -1e9])
    policy.load(trainer.parameters(), 0)
    (now,) = lanes.reset(0)
    found = policy.search(now.observation, noise=False)
    np.testing.assert_allclose(found.q[found.visits == 1], -0.25, atol=1e-3)


def test_a_game_of_one_player_has_no_turns() -> None:
    team = srl.lanes_config("game:cartpole").with_joint_seats().build(1).spec.teams[0]
    network: Any = MuZeroConfig().build_network(team.observation, team.action, 0)[0]
    assert not network.takes_turns
    assert network.model.discount == 0.997


def test_a_run_trains_evaluates_and_plays_against_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options: dict[str, Any] = {**SMALL, "n_step": 5, "batch_size": 16, "learning_starts": 200}
    run = srl.train(
        "game:tic-tac-toe", algo="muzero", steps=600, scheduler="inline", root=tmp_path, lanes=8, muzero=options
    )
    assert set(srl.evaluate(run.path, episodes=10).returns) <= {-1.0, 0.0, 1.0}
    assert len(srl.evaluate(run.path, episodes=10, simulations=0).returns) == 10
    for simulations in ("", "--simulations 0", "--simulations 3"):
        assert main(["league", str(run.path), "--versions", "1", "--games", "4", "--json", *simulations.split()]) == 0
        assert "random" in capsys.readouterr().out
    result = perfect_play(srl.load(run.path).policy, TIC_TAC_TOE)
    assert min(result.positions) > 10


def test_a_sweep_varies_the_number_of_simulations(tmp_path: Path) -> None:
    options: dict[str, Any] = {**SMALL, "batch_size": 16, "learning_starts": 32}
    del options["simulations"]
    srl.sweep(
        "CartPole-v1",
        seeds=1,
        grid={"simulations": [2, 3]},
        algo="muzero",
        muzero=options,
        steps=128,
        lanes=4,
        scheduler="inline",
        recipe="none",
        root=tmp_path,
        jobs=1,
        name="mine",
    )
    for number in (2, 3):
        policy: Any = srl.load(tmp_path / "mine" / f"mine-simulations-{number}-0").policy
        assert policy._search.num_simulations == number


@pytest.mark.slow
def test_tic_tac_toe_is_played_almost_without_a_mistake_after_minutes(tmp_path: Path) -> None:
    run = srl.train("game:tic-tac-toe", algo="muzero", steps=60_000, scheduler="inline", root=tmp_path)
    assert sum(perfect_play(srl.load(run.path).policy, TIC_TAC_TOE).mistakes) < 5
