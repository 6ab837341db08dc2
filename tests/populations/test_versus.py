"""The learner plays one agent of each game: seats, opponents, points and records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import PURSUIT
from support.trees import leaf

import srl
from srl.api.policy import Decision, Policy
from srl.base.tree import Array, Tree
from srl.cli.main import main
from srl.environments.registry import lanes_config
from srl.populations.versus import VersusLanes, game_points, versus_spec
from srl.results.league import match, ratings
from srl.storage.checkpoints import checkpoints

TURNS = "pettingzoo:support.games:TurnGame"
TICTACTOE = "pettingzoo:classic.tictactoe_v3"
QUICK: dict[str, Any] = {
    "scheduler": "inline",
    "sinks": (),
    "lanes": 2,
    "horizon": 4,
    "algo": "ippo",
    "steps": 40,
    "recipe": "none",
}


class Fixed(Policy):
    """An opponent that counts its moves and always takes the same action."""

    version = 0

    def __init__(self, action: int = 1) -> None:
        self._action = action
        self.seen: list[float] = []
        self.moves: list[int] = []
        self.greedy: set[bool] = set()

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        count = np.zeros((len(first), 1), np.float32) if state is None else np.where(first[:, None], 0.0, leaf(state))
        self.moves += [int(value) for value in count[:, 0]]
        self.seen += [float(row[3]) for row in np.asarray(observation)]
        self.greedy.add(greedy)
        return {"action": np.full(len(first), self._action), "state": (count + 1).astype(np.float32)}

    def load(self, parameters: Array, version: int) -> None: ...


class FixedOpponents:
    def __init__(self) -> None:
        self.other = Fixed()
        self.drawn = 0
        self.points: list[float] = []

    def draw(self) -> str:
        self.drawn += 1
        return "other"

    def policy(self, name: str) -> Any:
        return self.other

    def add_result(self, name: str, points: float) -> None:
        self.points.append(points)


def played(steps: int, copies: int = 3) -> tuple[FixedOpponents, list[Any], VersusLanes]:
    opponents = FixedOpponents()
    lanes = VersusLanes(lanes_config(TURNS, length=5).build(copies), opponents)
    time_steps = [lanes.reset(1)[0]]
    for _ in range(steps):
        time_steps.append(lanes.step((np.zeros(copies, np.int64),))[0])
    lanes.close()
    return opponents, time_steps, lanes


def test_a_seat_and_an_opponent_are_drawn_for_every_game() -> None:
    opponents, time_steps, _ = played(60)
    games = len(opponents.points)
    assert games >= 20
    assert opponents.drawn in range(games, games + 4)
    seats = {float(seen[3]) for time_step in time_steps for seen in time_step.observation[time_step.acting]}
    assert seats == {0.0, 1.0}
    assert sum(float(time_step.first.sum()) for time_step in time_steps) >= games


def test_players_of_a_match_alternate_seats_and_are_both_greedy_or_neither() -> None:
    """The second player makes two of five moves and wins by its rewards."""
    one, other = Fixed(0), Fixed()
    for greedy in (False, True):
        one.greedy.clear()
        other.greedy.clear()
        points, truncated = match(lanes_config(TURNS, length=5), one, other, 32, greedy, seed=0)
        assert truncated == 0
        assert len(points) >= 32
        assert abs(points.count(0.0) - points.count(1.0)) <= 1, "as often first as second"
        assert one.greedy == other.greedy == {greedy}


def test_a_game_without_end_is_drawn() -> None:
    game = lanes_config(TURNS, length=10**6)
    assert match(game, Fixed(0), Fixed(), 5, greedy=False, seed=0, max_steps=6) == ([0.5] * 5, 5)


def test_ratings_of_drawn_games_are_equal() -> None:
    pytest.importorskip("openskill")
    drawn = ratings(["a", "b"], [("a", "b", 0.5)] * 40)
    assert drawn["a"] == pytest.approx(drawn["b"])
    once = ratings(["a", "b"], [("a", "b", 0.5)] * 40 + [("b", "a", 1.0)])
    assert once["b"] > once["a"]


def test_an_opponent_observes_its_own_seat_and_has_its_memory_for_one_game() -> None:
    opponents, time_steps, _ = played(40, copies=1)
    own = [float(seen[3]) for time_step in time_steps for seen in time_step.observation[time_step.acting]]
    assert set(opponents.other.seen) <= {0.0, 1.0}
    assert max(opponents.other.moves) == 2, "three moves of five at most, counted from 0"
    assert abs(len(own) - len(opponents.other.seen)) <= 12


def test_points_follow_from_returns() -> None:
    """The first player makes three of five moves and earns less: 1 per own move, 10 per move of the other."""
    opponents, _, _ = played(60)
    assert set(opponents.points) == {0.0, 1.0}
    assert game_points(np.array([3.0, 3.0]), 0) == 0.5


def test_self_play_needs_agents_with_the_same_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="'chaser_0' and 'runner_0' differ"):
        versus_spec(lanes_config(PURSUIT).build(1).spec)
    assert main(["train", PURSUIT, "--self-play", "uniform"]) == 2
    assert "'runner_0'" in capsys.readouterr().err
    assert main(["train", TURNS, "--self-play", "uniform", "--roles", "*=all"]) == 2
    assert "leave --roles out" in capsys.readouterr().err
    assert main(["train", "CartPole-v1", "--self-play", "uniform"]) == 2
    assert "needs at least two agents" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("how", "memory"),
    [
        ("uniform", "gru"),
        ("prioritized", "none"),
        pytest.param("uniform", "none", marks=pytest.mark.slow),
        pytest.param("prioritized", "gru", marks=pytest.mark.slow),
    ],
)
def test_a_run_plays_against_its_past_versions(how: str, memory: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "ippo": {"epochs": 1, "memory": memory, "memory_size": 4},
        "self_play_every": 1,
        "self_play_share": 1.0,
    }
    run = srl.train(TICTACTOE, root=tmp_path, name="run", self_play=how, **{**QUICK, **options, "steps": 120})
    assert "points_against_others" in run.status.facts
    assert srl.evaluate(run.path, episodes=2).returns, "both seats by the same policy"
    assert srl.resume(run.path, steps=200).status.steps >= 200


def only_past_versions_played(run: srl.Run, since: int) -> bool:
    """Return whether the learner played past versions, and not itself, in all updates after `since`."""
    episodes = run.episodes()
    later = np.asarray(episodes["update"]) > since
    against = {name: np.asarray(episodes[f"points_against_{name}"])[later] for name in ("others", "self")}
    return bool(np.isfinite(against["others"]).any() and np.isnan(against["self"]).all())


def test_a_resumed_run_loads_its_opponents_again(tmp_path: Path) -> None:
    options = {**QUICK, "ippo": {"epochs": 1}, "self_play_versions": 3, "checkpoint_seconds": 0.0, "steps": 200}
    run = srl.train(TICTACTOE, root=tmp_path, name="run", self_play="uniform", keep_last=1, **options)
    kept = len(checkpoints(run.path / "checkpoints"))
    assert kept >= 2, "as many as the opponents, without the option for it, and the newest"
    again = srl.resume(run.path, steps=260, self_play_share=1.0, self_play_every=10_000)
    assert f"{min(3, kept - 1)} past versions of 'policy' were restored as opponents" in again.status.messages
    assert only_past_versions_played(again, since=run.status.version)


@pytest.mark.slow
def test_a_run_that_is_resumed_over_hosts_loads_its_opponents_there(tmp_path: Path) -> None:
    options = {**QUICK, "ippo": {"epochs": 1}, "self_play_versions": 3, "checkpoint_seconds": 0.0, "steps": 200}
    run = srl.train(TICTACTOE, root=tmp_path, name="run", self_play="uniform", keep_last=1, **options)
    hosts: dict[str, Any] = {"scheduler": "hosts", "actors": 1}
    kept = len(checkpoints(run.path / "checkpoints"))
    again = srl.resume(run.path, steps=1000, self_play_share=1.0, self_play_every=10_000, **hosts)
    assert f"{min(3, kept - 1)} past versions of 'policy' were restored as opponents" in again.status.messages
    assert only_past_versions_played(again, since=run.status.version)


def test_a_league_reports_points_and_ratings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    srl.train(TICTACTOE, root=tmp_path, name="run", self_play="uniform", keep_every=20, ippo={"epochs": 1}, **QUICK)
    result = srl.league(tmp_path / "run", games=8, against=("random", "examples/greedy_opponents.py:tictactoe"))
    size = len(result.players)
    assert result.players[-2:] == ("random", "tictactoe")
    for i in range(size):
        assert np.isnan(result.points[i][i])
        for j in range(i):
            assert result.points[i][j] + result.points[j][i] == pytest.approx(1.0)
    pytest.importorskip("openskill")
    assert result.ratings["tictactoe"] > result.ratings["random"], "a player that wins when it can is rated higher"
    capsys.readouterr()
    (tmp_path / "mine.py").write_text(Path("examples/greedy_opponents.py").read_text())
    both = [
        word
        for file in ("examples/greedy_opponents.py", tmp_path / "mine.py")
        for word in ("--against", f"{file}:tictactoe")
    ]
    assert main(["league", str(tmp_path / "run"), "--games", "2", "--versions", "1", "--json", "--greedy", *both]) == 0
    names = json.loads(capsys.readouterr().out)["players"]
    assert names[1:] == ["examples/greedy_opponents.py:tictactoe", f"{tmp_path / 'mine.py'}:tictactoe"]
    assert main(["league", str(tmp_path / "run"), "--games", "2", *both[:2], *both[:2]]) == 2
    assert "examples/greedy_opponents.py:tictactoe is given twice" in capsys.readouterr().err
    assert main(["league", str(tmp_path / "run"), "--games", "4", "--versions", "1"]) == 0
    assert "rating" in capsys.readouterr().out
    assert main(["league", str(tmp_path / "run"), "--against", "unknown"]) == 2
    assert "no opponent 'unknown'" in capsys.readouterr().err
