"""Simulators of games, their lanes, and what is refused."""

from __future__ import annotations

import importlib.util
import itertools
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import pytest

from srl.api.simulator import Moves, Simulator, SimulatorConfig, SimulatorSpec
from srl.api.spaces import Box
from srl.base.tree import Array, ArraySpec
from srl.environments.games.boards import RowGameConfig
from srl.environments.games.cartpole import CartPoleConfig
from srl.environments.games.checks import check_simulator
from srl.environments.random_actions import some_actions
from srl.environments.registry import lanes_config

BOARDS = {
    "tic-tac-toe": RowGameConfig(),
    "connect-four": RowGameConfig(6, 7, 4, gravity=True),
    "wide": RowGameConfig(4, 5, 3),
}
OTHERS = ["openspiel:tic_tac_toe", "pettingzoo:classic.tictactoe_v3"]


def won(board: Array, stone: int, length: int) -> bool:
    """Look for a row of stones [rows, columns] the slow way: at every cell, in every direction."""
    rows, columns = board.shape
    for r in range(rows):
        for c in range(columns):
            for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
                cells = [(r + k * down, c + k * right) for k in range(length)]
                if all(0 <= y < rows and 0 <= x < columns and board[y, x] == stone for y, x in cells):
                    return True
    return False


@pytest.mark.parametrize("name", BOARDS)
def test_board_games_follow_their_rules(name: str) -> None:
    config = BOARDS[name]
    simulator, random = config.build(), np.random.default_rng(0)
    wins = draws = 0
    for _ in range(60):
        state, board = simulator.begin(1, random), np.zeros((config.rows, config.columns), int)
        for ply in range(config.rows * config.columns):
            stone = 1 if ply % 2 == 0 else -1
            free = board[0] == 0 if config.gravity else (board == 0).ravel()
            assert np.array_equal(simulator.legal(state)[0], free)
            assert simulator.ply(state)[0] == ply
            assert simulator.to_play(state)[0] == ply % 2
            seen = simulator.observe(state)[0]
            assert np.array_equal(seen[0] - seen[1], board * stone)
            action = random.choice(np.flatnonzero(free))
            if config.gravity:
                board[np.flatnonzero(board[:, action] == 0).max(), action] = stone
            else:
                board.flat[action] = stone
            moves = simulator.step(state, np.array([action]))
            has_won = won(board, stone, config.length)
            assert moves.reward[0] == has_won
            assert moves.ended[0] == (has_won or np.all(board != 0))
            state = moves.state
            if moves.ended[0]:
                wins, draws = wins + has_won, draws + (not has_won)
                break
        assert not simulator.legal(state).any()
    assert wins > 20
    assert draws or name != "tic-tac-toe"


@pytest.mark.parametrize("name", BOARDS)
def test_a_changed_position_has_the_changed_moves(name: str) -> None:
    simulator, random = BOARDS[name].build(), np.random.default_rng(1)
    assert len(simulator.symmetries()) == {"tic-tac-toe": 7, "connect-four": 1, "wide": 3}[name]
    for symmetry in simulator.symmetries():
        state = simulator.begin(8, random)
        changed = state.copy()
        for _ in range(6):
            legal = simulator.legal(changed)
            assert np.array_equal(legal, simulator.legal(state)[:, symmetry.actions])
            seen = simulator.observe(state).reshape(len(state), 2, -1)
            assert np.array_equal(simulator.observe(changed).reshape(seen.shape), seen[:, :, symmetry.cells])
            action = np.array([random.choice(np.flatnonzero(row)) for row in legal])
            moves, original = simulator.step(changed, action), simulator.step(state, symmetry.actions[action])
            assert np.array_equal(moves.reward, original.reward)
            changed, state = moves.state[~moves.ended], original.state[~moves.ended]


@pytest.mark.parametrize("name", BOARDS)
@pytest.mark.parametrize("plies", [1, 2])
def test_foresight_knows_what_the_rules_decide(name: str, plies: int) -> None:
    """Compiled, tried move by move, and looked up in the tree of all moves."""
    simulator, random = BOARDS[name].build(), np.random.default_rng(2)

    def winning(state: Array) -> list[int]:
        legal = np.flatnonzero(simulator.legal(state[None])[0])
        return [int(a) for a in legal if simulator.step(state[None], np.array([a])).reward[0] == 1]

    state, counts = simulator.begin(24, random), [0, 0, 0]
    while len(state):
        found, tried = simulator.foresee(state, plies), Simulator.foresee(simulator, state, plies)
        assert np.array_equal(found.moves, tried.moves)
        assert np.array_equal(found.value, tried.value, equal_nan=True)
        legal = simulator.legal(state)
        for row, one in enumerate(state):
            best, value = np.flatnonzero(legal[row]).tolist(), np.nan
            if wins := winning(one):
                best, value = wins, 1.0
            elif plies == 2:
                safe = [a for a in best if not winning(simulator.step(one[None], np.array([a])).state[0])]
                best, value = (safe, np.nan) if safe else (best, -1.0)
            assert np.flatnonzero(found.moves[row]).tolist() == best
            assert np.array_equal(found.value[row], np.float32(value), equal_nan=True)
            counts[int(np.nan_to_num(value))] += 1
        moves = simulator.step(state, np.array([random.choice(np.flatnonzero(row)) for row in legal]))
        ended = simulator.foresee(moves.state[moves.ended], plies)
        assert not ended.moves.any()
        assert np.isnan(ended.value).all()
        state = moves.state[~moves.ended]
    assert counts[1] > 20
    assert (counts[-1] > 2) == (plies == 2)


def test_cartpole_moves_as_gymnasiums() -> None:
    simulator, env = CartPoleConfig().build(), gymnasium.make("CartPole-v1")
    env.reset(seed=3)
    state = simulator.begin(1, np.random.default_rng(0))
    env.unwrapped.state = tuple(state[0, :4])
    for action in [0, 1, 1, 0, 1] * 20:
        seen, reward, terminated, _, _ = env.step(action)
        moves = simulator.step(state, np.array([action]))
        state = moves.state
        assert np.allclose(simulator.observe(state)[0], seen, atol=1e-6)
        assert (moves.reward[0], moves.ended[0]) == (reward, terminated)
        if terminated:
            break
    assert terminated
    env.close()


@pytest.mark.parametrize("other", OTHERS)
def test_games_of_other_libraries_play_as_ours(other: str) -> None:
    package = {"openspiel": "pyspiel", "pettingzoo": "pettingzoo"}[other.partition(":")[0]]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    ours, theirs = RowGameConfig().build(), lanes_config(f"game:{other}").simulator().build()
    columns = package == "pettingzoo"  # its cells are numbered down the columns
    random = np.random.default_rng(0)
    here, there = ours.begin(20, random), theirs.begin(20, random)
    for _ in range(9):
        action = np.array([random.choice(np.flatnonzero(row)) for row in ours.legal(here)])
        one, two = ours.step(here, action), theirs.step(there, action % 3 * 3 + action // 3 if columns else action)
        for name in ("reward", "ended"):
            assert np.array_equal(getattr(one, name), getattr(two, name))
        legal = two.legal.reshape(-1, 3, 3).transpose(0, 2, 1).reshape(-1, 9) if columns else two.legal
        assert np.array_equal(one.legal, legal)
        here, there = one.state[~one.ended], two.state[~one.ended]
        assert np.array_equal(ours.to_play(here), theirs.to_play(there))
        if not len(here):
            break


def played(config: Any, num_copies: int, steps: int, seed: int = 5) -> list[Any]:
    """Play random legal moves, the same in each copy whatever their number."""
    lanes = config.build(num_copies)
    randoms = [np.random.default_rng(copy) for copy in range(num_copies)]
    time_steps, found = lanes.reset(seed), []
    for _ in range(steps):
        found.append(time_steps)
        actions = []
        for time_step in time_steps:
            masks = time_step.observation["action_mask"]
            actions.append(np.array([r.choice(np.flatnonzero(m)) for r, m in zip(randoms, masks, strict=True)]))
        time_steps = lanes.step(tuple(actions))
    return found


def test_a_lane_with_joint_seats_alternates_and_counts_rewards_for_player_0() -> None:
    found = played(lanes_config("game:tic-tac-toe").with_states(), 16, 120)
    simulator = RowGameConfig().build()
    results: set[float] = set()
    for (before,), (after,) in itertools.pairwise(found):
        over = after.terminated
        mover = before.observation["to_play"]
        ply = simulator.ply(before.observation["state"])
        acted = before.acting
        assert np.array_equal(mover[acted], ply[acted] % 2)
        assert np.all(after.observation["to_play"][acted & ~over] == 1 - mover[acted & ~over])
        won_now = over & (after.reward != 0)
        assert np.all(after.reward[won_now] == np.where(mover[won_now] == 0, 1.0, -1.0))
        assert not after.reward[~over].any()
        results |= set(after.reward[over].tolist())
    assert results == {1.0, 0.0, -1.0}


def test_seats_get_opposite_returns_and_act_in_turn() -> None:
    found = played(lanes_config("game:connect-four"), 6, 200)
    earned, games = np.zeros((2, 6)), 0
    for one, two in found:
        assert not np.any(one.acting & two.acting)
        assert np.array_equal(one.terminated, two.terminated)
        earned += np.stack((one.reward, two.reward))
        for copy in np.flatnonzero(one.terminated):
            assert sorted(earned[:, copy].tolist()) in ([-1.0, 1.0], [0.0, 0.0])
            earned[:, copy] = 0
            games += 1
        assert not (one.first & ~one.acting).any()
    assert games > 20


def test_a_win_by_the_second_player_is_a_loss_of_the_first() -> None:
    """Player 1 wins the left column of tic-tac-toe in its third move."""
    moves = [1, 0, 2, 3, 4, 6]
    for joint in (True, False):
        config = lanes_config("game:tic-tac-toe")
        lanes = (config.with_joint_seats() if joint else config).build(1)
        time_steps = lanes.reset(0)
        for move in moves:
            time_steps = lanes.step(tuple(np.array([move]) for _ in time_steps))
        rewards = [float(one.reward[0]) for one in time_steps]
        assert rewards == ([-1.0] if joint else [-1.0, 1.0])
        assert all(one.terminated[0] for one in time_steps)


def test_an_illegal_move_loses() -> None:
    lanes = lanes_config("game:tic-tac-toe").with_joint_seats().build(2)
    lanes.reset(0)
    lanes.step((np.array([4, 4]),))
    (time_step,) = lanes.step((np.array([4, 0]),))  # player 1 of the first copy
    assert time_step.terminated.tolist() == [True, False]
    assert time_step.reward.tolist() == [1.0, 0.0]
    (time_step,) = lanes.step((np.array([0, 99]),))  # player 0 of the second copy
    assert time_step.terminated.tolist() == [False, True]
    assert time_step.reward.tolist() == [0.0, -1.0]


@pytest.mark.parametrize("seats", ["joint", "separate"])
def test_openings_are_random_and_do_not_depend_on_the_number_of_copies(seats: str) -> None:
    config = lanes_config("game:connect-four", openings=0.5, opening_moves=3)
    config = config.with_states() if seats == "joint" else config.with_states().with_separate_seats()
    few, many = played(config, 2, 60), played(config, 5, 60)
    for one, other in zip(few, many, strict=True):
        for a, b in zip(one, other, strict=True):
            assert np.array_equal(a.observation["state"], b.observation["state"][:2])
            assert np.array_equal(a.acting, b.acting[:2])
    simulator = RowGameConfig(6, 7, 4, gravity=True).build()
    lanes = config.build(400)
    begun: Any = lanes.reset(1)
    plies = [simulator.ply(one.observation["state"])[one.first] for one in begun]
    counts = np.bincount(np.concatenate(plies), minlength=4) / 400
    assert counts == pytest.approx([0.5, 1 / 6, 1 / 6, 1 / 6], abs=0.08)


def test_an_episode_longer_than_the_limit_is_truncated() -> None:
    lanes = lanes_config("game:cartpole", max_moves=5).with_states().build(3)
    lanes.reset(0)
    for _ in range(5):
        (time_step,) = lanes.step((np.array([0, 1, 0]),))
    assert time_step.truncated.all()
    assert not time_step.terminated.any()
    assert (time_step.reward == 1).all()


def test_saved_lanes_continue_as_they_would_have() -> None:
    for config in (lanes_config("game:tic-tac-toe", openings=0.5), lanes_config("game:cartpole").with_joint_seats()):
        lanes, other = config.build(3), config.build(3)
        random = np.random.default_rng(0)
        time_steps: Any = lanes.reset(2)
        for _ in range(7):
            time_steps = lanes.step(some_actions(lanes.spec, random, time_steps))
        other.restore(lanes.state())
        for _ in range(12):
            actions = some_actions(lanes.spec, random, time_steps)
            again: Any = other.step(actions)
            time_steps = lanes.step(actions)
            for one, two in zip(time_steps, again, strict=True):
                assert np.array_equal(one.reward, two.reward)
                assert np.array_equal(one.acting, two.acting)
                for name, seen in one.observation.items():
                    assert np.array_equal(seen, two.observation[name])


def test_a_board_is_drawn_with_a_color_for_each_player() -> None:
    lanes = lanes_config("game:tic-tac-toe").build(1)
    lanes.reset(0)
    colors = [lanes.render()[24, 24].tolist()]
    for move in (0, 1):
        lanes.step((np.array([move]), np.array([move])))
        colors.append(lanes.render()[24, 24 + 48 * move].tolist())
    assert len({tuple(color) for color in colors}) == 3
    with pytest.raises(ValueError, match="cannot be recorded"):
        lanes_config("game:cartpole").build(1).render()


@dataclass(frozen=True)
class Faulty(SimulatorConfig):
    """A counter that ends at 6, with one fault."""

    fault: str = ""

    def build(self) -> Simulator:
        return Counter(self.fault)

    def title(self) -> str:
        return "counter"


class Counter(Simulator):
    def __init__(self, fault: str) -> None:
        self.spec = SimulatorSpec("counter", 2, Box((1,)), ArraySpec((1,), "int64"), 20)
        self.fault, self.calls = fault, 0
        self.random = np.random.default_rng()

    def begin(self, num: int, random: np.random.Generator) -> Array:
        return np.zeros((num, 1), np.int64)

    def step(self, state: Array, action: Array) -> Moves:
        self.calls += 1
        after = state + 1
        if self.fault == "chance":
            after = after + self.random.integers(0, 2, state.shape)
        if self.fault == "memory":
            after = after + (self.calls > 2)
        if self.fault == "neighbors":
            after = after + (len(state) > 1)
        if self.fault == "changes":
            state += 1
        ended = after[:, 0] >= 6
        reward = np.full(len(state), 3.0 if self.fault == "reward" else 0.5, np.float32)
        legal = np.repeat(~ended[:, None], 2, 1)
        if self.fault == "legal":
            legal[:] = True
        if self.fault == "stuck":
            legal[:] = False
        return Moves(after, reward, ended, np.zeros(len(state), np.int64), legal)

    def legal(self, state: Array) -> Array:
        if self.fault == "stuck":
            return np.zeros((len(state), 2), bool)
        return np.repeat(state < 6, 2, 1) | (self.fault == "legal")

    def observe(self, state: Array) -> Array:
        noise = self.random.random(state.shape) if self.fault == "noise" else 0.0
        return (state + noise).astype(np.float32)

    def ply(self, state: Array) -> Array:
        return state[:, 0]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("chance", r"not deterministic: step \(state\)"),
        ("memory", "not deterministic"),
        ("neighbors", r"not deterministic: step \(state\)"),
        ("changes", "step changes its argument"),
        ("noise", "not deterministic: observe"),
        ("reward", "rewards must be within lowest=-1.0 and highest=1.0, found 3.0"),
        ("legal", "must have no legal action"),
        ("stuck", "must have a legal action"),
    ],
)
def test_simulators_that_break_their_contract_are_refused(fault: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_simulator(Faulty(fault))
    check_simulator(Faulty())


def test_environments_without_a_perfect_simulator_are_refused() -> None:
    with pytest.raises(ValueError, match="has no simulator, which alphazero searches with"):
        lanes_config("CartPole-v1").with_states()
    if importlib.util.find_spec("pyspiel") is not None:
        for name in ("backgammon", "kuhn_poker"):
            with pytest.raises(ValueError, match="is not deterministic"):
                lanes_config(f"game:openspiel:{name}").simulator()
    with pytest.raises(ValueError, match="did you mean 'tic-tac-toe'"):
        lanes_config("game:tictactoe")
    with pytest.raises(ValueError, match="no option 'row'; did you mean 'rows'"):
        lanes_config("game:in-a-row", row=4)
    with pytest.raises(ValueError, match="openings must be a share"):
        lanes_config("game:tic-tac-toe", openings=2.0)
    own = f"{__name__}:Faulty"
    assert lanes_config(f"game:{own}").named_code() == ()
    with pytest.raises(ValueError, match=r"inherits from srl\.api\.simulator\.SimulatorConfig"):
        lanes_config(f"game:{__name__}:Counter")
