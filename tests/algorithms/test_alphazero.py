"""AlphaZero's targets, losses, searches and runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import srl
from srl.algorithms.alphazero.config import AlphaZeroConfig
from srl.algorithms.alphazero.network import losses
from srl.algorithms.alphazero.policy import AlphaZeroPolicy
from srl.algorithms.alphazero.trainer import AlphaZeroTrainer
from srl.api.block import BlockMemory, BlockSpec
from srl.api.dataflow import TransitionBatch
from srl.api.policy import Decision, Policy
from srl.api.spaces import array_spec
from srl.base.tree import Array, leaves, map_tree
from srl.environments.games.boards import RowGameConfig
from srl.environments.games.cartpole import CartPoleConfig
from srl.environments.games.config import GameConfig
from srl.replay.memory import ReplayMemory
from srl.testing.solved_games import perfect_play, solved

TIC_TAC_TOE = GameConfig(RowGameConfig()).with_states()
SMALL: dict[str, Any] = {"hidden_sizes": (8,), "simulations": 4, "batch_size": 16, "learning_starts": 0}


def config_for(environment: GameConfig, **options: Any) -> AlphaZeroConfig:
    return AlphaZeroConfig(**{**SMALL, **options}).for_simulator(environment.game)


def built(environment: GameConfig, **options: Any) -> tuple[Any, Any, Any]:
    """Return a policy with the parameters of a new trainer, the trainer, and lanes of 2 copies."""
    config, lanes = config_for(environment, **options), environment.build(2)
    team = lanes.spec.teams[0]
    config.check(team.observation, team.action)
    trainer = config.build_trainer(team.observation, team.action, 0)
    policy = config.build_policy(team.observation, team.action, 1)
    policy.load(trainer.parameters(), 0)
    return policy, trainer, lanes


def replayed(moves: list[int], horizon: int, num_blocks: int) -> tuple[AlphaZeroTrainer, TransitionBatch]:
    """Play one game in a lane, and return 400 decisions of its blocks as a minibatch. The lane rests after the game."""
    _, trainer, _ = built(TIC_TAC_TOE, symmetries=False)
    lanes = TIC_TAC_TOE.build(1)
    team, config = lanes.spec.teams[0], trainer.config
    spec = BlockSpec(horizon, 1, array_spec(team.observation), config.decision_spec(team.observation, team.action))
    memory = ReplayMemory(config.dataflow(), spec, seed=0)
    blocks = BlockMemory.create("alphazero-test", spec, 1)
    arrays: Any = blocks.blocks[0].arrays
    (now,) = lanes.reset(0)

    def arrive(row: int, step: int) -> None:
        for path, value in leaves(now.observation):
            arrays[f"observation/{path}"][row] = value
        arrays["acting"][row], arrays["first"][row] = now.acting, step == 0
        for name in ("reward", "terminated", "truncated"):
            arrays[name][row] = 0

    arrive(0, 0)
    for step in range(horizon * num_blocks):
        row = step % horizon
        arrays["decision/policy"][row], arrays["decision/value"][row] = 1 / 9, 0.0
        if now.acting[0] and step < len(moves):
            arrays["decision/action"][row] = moves[step]
            (now,) = lanes.step((np.array([moves[step]]),))
            arrays["reward"][row], arrays["terminated"][row] = now.reward, now.terminated
        arrive(row + 1, step + 1)
        if row + 1 == horizon:
            memory.insert(arrays, "lane", step + 1 - horizon)
            arrive(0, step + 1)
    drawn = memory.draw(1, 0.0, 400).batch
    blocks.close()
    assert isinstance(drawn, TransitionBatch)
    return trainer, drawn


def targets_by_ply(trainer: AlphaZeroTrainer, batch: TransitionBatch) -> dict[int, float]:
    """Return the target of each ply of the game."""
    positions = trainer.minibatch(batch, 0, torch.device("cpu"))
    targets = trainer._targets(positions).numpy()
    plies = RowGameConfig().build().ply(positions.observation["state"].numpy())
    found: dict[int, float] = {}
    for ply, target in zip(plies.tolist(), targets.tolist(), strict=True):
        assert found.setdefault(ply, target) == target
    return found


@pytest.mark.parametrize(
    ("moves", "winner"),
    [([0, 3, 1, 4, 2], 0), ([1, 0, 2, 3, 4, 6], 1), ([0, 1, 2, 4, 3, 5, 7, 6, 8], None)],
    ids=["player 0 wins", "player 1 wins", "draw"],
)
@pytest.mark.parametrize("horizon", [3, 16])
def test_targets_are_the_result_for_the_player_to_move_at_every_ply(
    moves: list[int], winner: int | None, horizon: int
) -> None:
    blocks = -(-(len(moves) + 1) // horizon)
    found = targets_by_ply(*replayed(moves, horizon, blocks))
    expected = {ply: 0.0 if winner is None else 1.0 if ply % 2 == winner else -1.0 for ply in range(len(moves))}
    assert {ply: found[ply] for ply in expected} == expected


@pytest.mark.parametrize("num_moves", [3, 4])
def test_an_unfinished_game_bootstraps_with_the_sign_of_the_player_to_move(num_moves: int) -> None:
    """The network says 0.5 for whoever is to move in the last position, which is -0.5 for the other player."""
    trainer, batch = replayed([0, 3, 1, 4, 8, 5][:num_moves], num_moves, 1)
    target: Any = trainer.learner.targets["alphazero"]
    target.heads.weight.data.zero_()
    target.heads.bias.data.fill_(np.arctanh(0.5))
    found = targets_by_ply(trainer, batch)
    for ply in range(num_moves):
        assert found[ply] == pytest.approx(0.5 if (num_moves - ply) % 2 == 0 else -0.5, abs=1e-6)


def test_losses_are_those_of_the_paper() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25]]))
    policy_loss, value_loss = losses(logits, torch.tensor([0.5]), torch.tensor([[0.5, 0.5, 0.0]]), torch.tensor([-1.0]))
    assert policy_loss.item() == pytest.approx(0.5 * np.log(2) + 0.5 * np.log(4))
    assert value_loss.item() == pytest.approx(2.25)


def test_a_gradient_step_moves_policy_and_value_to_their_targets() -> None:
    trainer, batch = replayed([0, 3, 1, 4, 2], 16, 1)
    policies: Any = batch.decision["policy"]
    policies[...] = np.eye(9, dtype=np.float32)[8]
    found = [trainer.step(batch, 0.0).metrics for _ in range(250)]
    assert found[-1]["policy_loss"] < 0.2 * found[0]["policy_loss"]
    assert found[-1]["value_loss"] < 0.2 * found[0]["value_loss"]
    assert found[0]["search_entropy"] == pytest.approx(0.0, abs=1e-5)


def step_from(share: float, batch: TransitionBatch, **options: Any) -> tuple[dict[str, float], torch.Tensor]:
    """Make a gradient step of a network that gives all actions the same logit and all values the same share. Return its
    metrics and its gradient."""
    _, trainer, _ = built(TIC_TAC_TOE, symmetries=False, **options)
    trainer._network.heads.weight.data.zero_()
    trainer._network.heads.bias.data.zero_()
    trainer._network.heads.bias.data[-1] = np.arctanh(share)
    found: list[torch.Tensor] = []
    trainer.learner.descend = lambda name, *_: found.append(trainer.learner.flat[name].gradients.clone())
    metrics, _ = trainer.gradient_step(trainer.minibatch(batch, 0, torch.device("cpu")), 0.0)
    return {name: float(value.detach()) for name, value in metrics.items()}, found[0]


def test_a_root_value_is_that_of_the_player_to_move() -> None:
    """Both players have found 0.5 for themselves, which the network predicts."""
    trainer, batch = replayed([0, 3, 1, 4, 2], 16, 1)
    root_values: Any = batch.decision["value"]
    root_values[...] = 0.5
    assert step_from(0.5, batch, search_value_share=1.0)[0]["value_loss"] == pytest.approx(0.0, abs=1e-10)
    half = step_from(0.5, batch, search_value_share=0.5)[0]["value_loss"]
    sign = 1 - 2 * np.asarray(trainer.minibatch(batch, 0, torch.device("cpu")).observation["to_play"])
    assert half == pytest.approx(np.mean((0.5 - (0.5 * 0.5 + 0.5 * sign)) ** 2), abs=1e-4)


def test_the_loss_of_policies_knows_only_legal_actions() -> None:
    """The network gives each of the n legal actions 1/n; the search took the last cell."""
    trainer, batch = replayed([0, 3, 1, 4, 2], 16, 1)
    policies: Any = batch.decision["policy"]
    policies[...] = np.eye(9, dtype=np.float32)[8]
    num_legal = trainer.minibatch(batch, 0, torch.device("cpu")).observation["action_mask"].sum(1)
    assert len(num_legal.unique()) == 5
    found = step_from(0.0, batch)[0]["policy_loss"]
    assert found == pytest.approx(float(num_legal.float().log().mean()), rel=1e-4)


def test_weight_decay_is_a_part_of_the_gradient() -> None:
    _, batch = replayed([0, 3, 1, 4, 2], 16, 1)
    plain, decayed = (step_from(0.25, batch, weight_decay=decay)[1] for decay in (0.0, 0.5))
    _, trainer, _ = built(TIC_TAC_TOE, symmetries=False)
    head = trainer._network.num_actions + 1
    parameters = trainer.learner.flat["alphazero"].trainable
    own = (decayed - plain)[: len(parameters) - head * (trainer._network.tower.num_features + 1)]
    torch.testing.assert_close(own, 0.5 * parameters[: len(own)])
    assert own.abs().max() > 0.1


def test_halves_of_a_batch_have_the_gradient_of_the_batch_on_average() -> None:
    """Two trainers (`--trainers 2`) add gradients in this way, with weight decay."""
    _, batch = replayed([1, 0, 2, 3, 4, 6], 16, 1)

    def gradient(rows: slice) -> torch.Tensor:
        parts: dict[str, Any] = {
            name: array[:, rows] for name, array in vars(batch).items() if isinstance(array, np.ndarray)
        }
        trees: dict[str, Any] = {
            name: map_tree(lambda array: array[:, rows], getattr(batch, name))
            for name in ("observation", "next_observation", "decision")
        }
        return step_from(0.25, replace(batch, **parts, **trees), weight_decay=0.1)[1]

    halves = gradient(slice(0, 200)), gradient(slice(200, 400))
    torch.testing.assert_close(gradient(slice(0, 400)), (halves[0] + halves[1]) / 2, rtol=1e-4, atol=1e-6)


def test_changed_positions_have_changed_policies_and_masks() -> None:
    """Every cell of the board, of the mask and of the policy moves to the same place."""
    _, trainer, _ = built(TIC_TAC_TOE)
    board = torch.arange(9.0).view(1, 1, 3, 3).repeat(1, 2, 1, 1)
    flat = torch.arange(9.0)[None]
    seen = set()
    for number in range(100):
        trainer.counters[1] = number
        observation, policy = trainer._changed({"observation": board, "action_mask": flat.byte()}, flat)
        assert torch.equal(observation["observation"][0, 0].flatten(), policy[0])
        assert torch.equal(observation["action_mask"][0].float(), policy[0])
        seen.add(tuple(policy[0].tolist()))
    assert len(seen) == 8


WINS = {"player 0": ([0, 3, 1, 4], 2), "player 1": ([0, 3, 1, 4, 8], 5)}


@pytest.mark.parametrize("search", ["gumbel", "puct"])
@pytest.mark.parametrize("seat", WINS)
def test_an_untrained_network_finds_a_win_and_prevents_one(seat: str, search: str) -> None:
    moves, winning = WINS[seat]
    policy, _, _ = built(TIC_TAC_TOE, simulations=200, search=search)
    lanes = TIC_TAC_TOE.build(1)
    (now,) = lanes.reset(0)
    for move in moves:
        (now,) = lanes.step((np.array([move]),))
    decision = policy.act(now.observation, None, now.first, greedy=True)
    assert decision["action"][0] == winning
    assert decision["value"][0] > 0.3
    # One move earlier the other player has to take the cell, unless it can win itself.
    lanes.reset(0)
    for move in [0, 8, 1]:
        (now,) = lanes.step((np.array([move]),))
    assert policy.act(now.observation, None, now.first, greedy=True)["action"][0] == 2


@pytest.mark.parametrize("search", ["gumbel", "puct"])
@pytest.mark.parametrize(("plies", "simulations"), [(1, 8), (2, 1)])
def test_foresight_finds_a_win_and_prevents_one_with_few_simulations(plies: int, simulations: int, search: str) -> None:
    policy, _, _ = built(TIC_TAC_TOE, simulations=simulations, search=search, foresight=plies)
    lanes = TIC_TAC_TOE.build(1)
    for moves, wanted in (([0, 3, 1, 4], 2), ([0, 3, 1, 4, 8], 5), ([0, 8, 1], 2)):
        (now,) = lanes.reset(0)
        for move in moves:
            (now,) = lanes.step((np.array([move]),))
        decision = policy.act(now.observation, None, now.first)  # with noise
        assert decision["action"][0] == wanted
        if plies == 2 or wanted != 2 or len(moves) > 3:
            assert decision["policy"][0, wanted] == pytest.approx(1.0, abs=1e-6)  # no other move is considered
    # A leaf in which the other player can win at once is a loss, whatever the network says.
    (now,) = lanes.reset(0)
    for move in [0, 8, 1]:
        (now,) = lanes.step((np.array([move]),))
    state: Any = now.observation["state"]
    after = policy.follow((state, np.array([1])), np.array([3]))
    assert (after.value[0], after.legal[0].nonzero()[0].tolist()) == (1.0, [2])


@pytest.mark.parametrize("search", ["gumbel", "puct"])
def test_decisions_are_legal_also_beside_games_that_have_ended(search: Any) -> None:
    policy, _, _ = built(TIC_TAC_TOE, search=search)
    lanes = TIC_TAC_TOE.build(8)
    (now,) = lanes.reset(0)
    ended = 0
    for step in range(40):
        decision = policy.act(now.observation, None, now.first, greedy=step % 2 == 0)
        observation: Any = now.observation
        legal = observation["action_mask"].astype(bool)
        assert legal[np.arange(8), decision["action"]][now.acting].all()
        assert not (decision["policy"] * ~legal)[now.acting].any()
        assert decision["policy"].sum(1) == pytest.approx(np.ones(8), abs=1e-5)
        ended += int((~now.acting).sum())
        (now,) = lanes.step((decision["action"],))
    assert ended > 10


@pytest.mark.parametrize("search", ["gumbel", "puct"])
def test_gradual_decisions_equal_those_of_one_call(search: Any) -> None:
    policy, trainer, lanes = built(TIC_TAC_TOE, search=search, simulations=8)
    other, _, _ = built(TIC_TAC_TOE, search=search, simulations=8)
    other.load(trainer.parameters(), 0)
    policy.load(trainer.parameters(), 0)
    gradual = other.gradual_decisions()
    (now,) = lanes.reset(0)
    lone = map_tree(lambda array: array[:1], now.observation)
    for _ in range(12):  # beyond the end of the games, where rows need no decision
        expected = policy.act(now.observation, None, now.first)
        key = gradual.begin(now.observation, None, now.first)
        found = dict(done for _ in range(8) for done in gradual.step())
        assert list(found) == [key]
        for name, array in expected.items():
            assert found[key][name] == pytest.approx(array, abs=1e-5)
        (now,) = lanes.step((expected["action"],))
    first = gradual.begin(lone, None, now.first[:1])
    gradual.step()
    second = gradual.begin(now.observation, None, now.first)
    assert [[key for key, _ in gradual.step()] for _ in range(16)].index([first]) == 6
    assert second == first + 1


def test_greedy_decisions_repeat_and_others_follow_the_generator() -> None:
    policy, _, lanes = built(TIC_TAC_TOE, simulations=8)
    (now,) = lanes.reset(0)

    def act(greedy: bool) -> list[Array]:
        return list(policy.act(now.observation, None, now.first, greedy=greedy).values())

    assert all(map(np.array_equal, act(True), act(True)))
    saved = policy.state()
    drawn = [act(False) for _ in range(5)]
    policy.restore(saved)
    again = [act(False) for _ in range(5)]
    assert all(
        np.array_equal(a, b) for one, two in zip(drawn, again, strict=True) for a, b in zip(one, two, strict=True)
    )
    assert len({int(action[0]) for action, *_ in drawn}) > 1


def test_without_simulations_the_policy_is_that_of_the_network() -> None:
    policy, trainer, lanes = built(TIC_TAC_TOE)
    (now,) = lanes.reset(0)
    (now,) = lanes.step((np.array([4, 0]),))
    team = lanes.spec.teams[0]
    alone = trainer.config.with_simulations(0).build_policy(team.observation, team.action, 0)
    alone.load(trainer.parameters(), 0)
    decision = alone.act(now.observation, None, now.first, greedy=True)
    inputs = {name: torch.from_numpy(part) for name, part in now.observation.items()}
    logits, value = trainer._network(inputs)
    assert np.allclose(decision["policy"], logits.softmax(1).detach().numpy(), atol=1e-6)
    assert np.allclose(decision["value"], value.detach().numpy(), atol=1e-6)
    assert np.array_equal(decision["action"], decision["policy"].argmax(1))
    assert np.allclose(policy.value(now.observation, None, now.first), value.detach().numpy(), atol=1e-6)


def test_temperature_draws_the_first_moves_of_a_game_only() -> None:
    environment = GameConfig(RowGameConfig(6, 7, 4, gravity=True)).with_states()
    policy, _, _ = built(environment, search="puct", simulations=14, temperature_moves=2)
    lanes = environment.build(64)
    (now,) = lanes.reset(0)
    most = []
    for _ in range(4):
        decision = policy.act(now.observation, None, now.first)
        visited = decision["policy"][np.arange(64), decision["action"]]
        most.append(float(np.mean(visited == decision["policy"].max(1))))
        (now,) = lanes.step((decision["action"],))
    assert max(most[:2]) < 0.9
    assert most[2:] == [1.0, 1.0]


@pytest.mark.parametrize("tower", ["dense", "residual"])
def test_towers_fit_boards_and_tasks(tower: Any) -> None:
    environment = GameConfig(RowGameConfig(4, 5, 3)).with_states()
    policy, _, lanes = built(environment, tower=tower, channels=4, blocks=1)
    (now,) = lanes.reset(0)
    assert policy.act(now.observation, None, now.first)["policy"].shape == (2, 20)
    if tower == "dense":
        policy, _, lanes = built(GameConfig(CartPoleConfig()).with_states(), gamma=0.99, n_step=5)
        (now,) = lanes.reset(0)
        assert 100 < policy.act(now.observation, None, now.first)["value"][0] < 400  # the middle of 0 to 500


class _Solver(Policy):
    """Plays perfectly; with `wrong`, the worst move in some positions."""

    def __init__(self, wrong: float = 0.0) -> None:
        self.simulator, self.wrong = RowGameConfig().build(), wrong
        self.values = solved(self.simulator)

    def act(self, observation: Any, state: Any, first: Array, *, greedy: bool = False) -> Decision:
        actions = []
        for one in observation["state"]:
            gains = {}
            for action in np.flatnonzero(self.simulator.legal(one[None])[0]):
                moves = self.simulator.step(one[None], np.array([action]))
                gains[action] = moves.reward[0] if moves.ended[0] else -self.values[moves.state[0].tobytes()]
            worst = np.random.default_rng(list(one + 1)).random() < self.wrong
            actions.append((min if worst else max)(gains, key=lambda action: gains[action]))
        return {"action": np.array(actions)}

    def load(self, parameters: Array, version: int) -> None:
        pass


def test_the_check_of_small_games_knows_perfect_play_and_finds_every_mistake() -> None:
    result = perfect_play(_Solver(), TIC_TAC_TOE)
    assert result.perfect
    assert min(result.positions) > 40
    values = _Solver().values
    assert values[TIC_TAC_TOE.game.build().begin(1, np.random.default_rng(0)).tobytes()] == 0.0  # a draw
    assert len(values) == 4520  # positions that can occur, without the finished ones
    wrong = perfect_play(_Solver(wrong=0.1), TIC_TAC_TOE)
    assert min(wrong.mistakes) > 0
    assert len(wrong.examples) == 8
    with pytest.raises(ValueError, match="only games of two players"):
        perfect_play(_Solver(), GameConfig(CartPoleConfig()).with_states())


def test_bad_input_is_refused_with_what_to_do(tmp_path: Path) -> None:
    for environment, options, message in (
        ("CartPole-v1", {}, "has no simulator"),
        ("game:tic-tac-toe", {"simulations": 0}, "simulations must be at least 1 in training"),
        ("game:cartpole", {"tower": "residual"}, "needs a board"),
        ("game:tic-tac-toe", {"simulations": 10_000_000}, r"need \d+ MB, more than search_memory_mb=1024"),
        ("game:tic-tac-toe", {"foresight": 3}, "foresight must be 0, 1 or 2 plies"),
        ("game:tic-tac-toe", {"search": "best"}, "search must be one of gumbel, puct"),
    ):
        with pytest.raises(ValueError, match=message):
            srl.train(environment, algo="alphazero", root=tmp_path, steps=100, alphazero=options)
    team = TIC_TAC_TOE.build(1).spec.teams[0]
    with pytest.raises(ValueError, match="needs an environment with a simulator"):
        AlphaZeroConfig().build_policy(team.observation, team.action, 0)


def test_searches_in_bfloat16_value_positions_nearly_as_in_float32() -> None:
    values = {}
    for precision in ("float32", "bfloat16", "auto"):
        policy, _, lanes = built(TIC_TAC_TOE, tower="residual", channels=8, search_precision=precision)
        for parameter in policy._network.heads.parameters():
            parameter.data.add_(torch.linspace(-0.1, 0.1, parameter.numel()).view(parameter.shape))
        (now,) = lanes.reset(0)
        state: Any = now.observation["state"]
        after = policy.follow((state, np.zeros(2, np.int64)), np.array([0, 4]))
        values[precision] = np.concatenate((after.value, after.logits.ravel()))
        decision = policy.act(now.observation, None, now.first)
        assert decision["policy"].dtype == np.float32
    assert values["bfloat16"] == pytest.approx(values["float32"], abs=0.02)
    assert not np.array_equal(values["bfloat16"], values["float32"])
    assert any(np.array_equal(values["auto"], values[name]) for name in ("float32", "bfloat16"))


def test_a_run_trains_resumes_evaluates_and_plays_against_others(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "scheduler": "inline",
        "root": tmp_path,
        "lanes": 16,
        "alphazero": {**SMALL, "learning_starts": 200},
    }
    run = srl.train("game:tic-tac-toe", algo="alphazero", name="run", steps=1000, **options)
    again = srl.train("game:tic-tac-toe", algo="alphazero", name="again", steps=1000, **options)
    one, two = srl.load(run.path), srl.load(again.path)
    assert isinstance(one.policy, AlphaZeroPolicy)
    assert isinstance(two.policy, AlphaZeroPolicy)
    assert np.array_equal(one.policy._flat.values.numpy(), two.policy._flat.values.numpy())
    assert srl.resume(run.path, steps=2000).status.steps >= 2000
    found = srl.evaluate(run.path, episodes=20)
    assert set(found.returns) <= {-1.0, 0.0, 1.0}
    assert len(srl.evaluate(run.path, episodes=20, simulations=0).returns) == 20
    played = srl.league(run.path, versions=1, against=("random", "srl.testing.uct:tic_tac_toe"), games=8)
    assert played.points[0][1] > 0.5  # even a new network finds wins
    assert played.points[0][1] > played.points[0][2]
    observation: Any = TIC_TAC_TOE.build(1).reset(0)[0].observation
    assert one.act({name: part[0] for name, part in observation.items()}) in range(9)


@pytest.mark.slow
def test_tic_tac_toe_is_played_without_a_mistake_after_a_minute(tmp_path: Path) -> None:
    run = srl.train("game:tic-tac-toe", algo="alphazero", name="run", steps=100_000, scheduler="inline", root=tmp_path)
    assert perfect_play(srl.load(run.path).policy, TIC_TAC_TOE).perfect
