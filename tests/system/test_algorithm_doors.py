"""Every algorithm that learns from replay or recorded data, through every door of a user: one table of algorithms, one
test for each kind of door."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.terminals import Terminal
from support.trained_runs import latest_checkpoint

import srl
from srl.api.spaces import Dict
from srl.cli.main import main
from srl.dashboard.detail import league_of
from srl.storage.run_directory import RunDirectory

pytest.importorskip("h5py")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")  # here, because it opens files of its own

CART_POLE, PENDULUM = "CartPole-v1", "Pendulum-v1"
TWO_STEP = "pettingzoo:srl.testing.probe_environments:two_step"
TICTACTOE = "pettingzoo:pettingzoo.classic.tictactoe_v3"
DUEL = f"pettingzoo:{Path(__file__).parents[1] / 'support' / 'duel.py'}:duel"
SMALL = ("--algo.hidden-sizes", "8", "--algo.batch-size", "8")
ONLINE = (*SMALL, "--algo.learning-starts", "32", "--algo.updates-per-decision", "0.25")
MEMORY = ("--algo.memory-size", "4", "--algo.chunk", "4")
EXPERT = ("--algo.expert", "support.experts:balances")


@dataclass(frozen=True)
class Kind:
    env: str
    algo: str
    settings: tuple[str, ...] = ONLINE
    is_offline: bool = False

    @property
    def words(self) -> list[str]:
        return [self.env, "--algo", self.algo, "--recipe", "none", *self.settings]


KINDS = {
    "dqn": Kind(CART_POLE, "dqn"),
    "rainbow": Kind(CART_POLE, "rainbow"),
    "apex": Kind(CART_POLE, "apex"),
    "r2d2": Kind(CART_POLE, "r2d2", (*ONLINE, *MEMORY, "--algo.burn-in", "2", "--algo.period", "2")),
    "sac": Kind(PENDULUM, "sac"),
    "sac discrete": Kind(CART_POLE, "sac"),
    "redq": Kind(PENDULUM, "sac", (*ONLINE, "--algo.num-critics", "3", "--algo.target-critics", "2")),
    "droq": Kind(PENDULUM, "sac", (*ONLINE, "--algo.critic-dropout", "0.01", "--algo.critic-layer-norm")),
    "td3": Kind(PENDULUM, "td3"),
    "ddpg": Kind(PENDULUM, "ddpg"),
    "vdn": Kind(TWO_STEP, "vdn", (*ONLINE, *MEMORY)),
    "qmix": Kind(TWO_STEP, "qmix", (*ONLINE, *MEMORY)),
    "dagger": Kind(CART_POLE, "dagger", (*ONLINE, *EXPERT)),
    "bc": Kind(CART_POLE, "bc", SMALL, is_offline=True),
    "iql": Kind(PENDULUM, "iql", SMALL, is_offline=True),
    "td3bc": Kind(PENDULUM, "td3bc", SMALL, is_offline=True),
    "cql": Kind(PENDULUM, "cql", SMALL, is_offline=True),
}
QUICK = ("td3",)
"""Kinds that are not slow. Other tests go through single doors with the other algorithms."""
DEPEND_ON_LENGTH = ("dqn", "rainbow", "apex", "r2d2", "vdn", "qmix", "dagger")
"""Kinds whose exploration, weights or expert depend on the length of the run."""
PLACED = [name for name, kind in KINDS.items() if not kind.is_offline]


def kinds(names: Any) -> Any:
    return pytest.mark.parametrize(
        "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names]
    )


def rows_of(run: Path) -> list[dict[str, Any]]:
    return [row for row in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if row["kind"] == "update"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return a data set for each environment."""
    root = tmp_path_factory.mktemp("recorded")
    found = {}
    for env in (CART_POLE, PENDULUM):
        options: dict[str, Any] = {"recipe": "none", "scheduler": "inline", "sinks": (), "verbose": False}
        run = srl.train(env, steps=128, lanes=4, horizon=16, root=root, name=env, **options)
        srl.collect(run.path, root / f"{env.split('-')[0]}-v0", steps=300, greedy=False)
        found[env] = str(root / f"{env.split('-')[0]}-v0")
    return found


@kinds(KINDS)
def test_a_trained_policy_goes_through_every_door(
    name: str, tmp_path: Path, recorded: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    kind = KINDS[name]
    data = ["--data", recorded[kind.env], "--batch", "8"] if kind.is_offline else ["--lanes", "2", "--horizon", "4"]
    options = [*kind.words, *data, "--scheduler", "inline", "--seed", "3"]

    def call(*words: str) -> str:
        assert main([*words, "--root", str(tmp_path)]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    long, half = ("64", "32") if kind.is_offline else ("192", "96")
    call("train", *options, "--steps", long, "--name", "whole")
    assert sum("gradient_steps" in row for row in rows_of(tmp_path / "whole")) > 1
    call("train", *options, "--steps", half, "--name", "halved", "--keep-every", "8")
    call("resume", "halved", "--steps", long)
    one, other = (latest_checkpoint(tmp_path / run)[0] for run in ("whole", "halved"))
    if name not in DEPEND_ON_LENGTH:
        assert {path: array.tobytes() for path, array in one.items()} == {
            path: array.tobytes() for path, array in other.items()
        }
    assert json.loads(call("eval", "whole", "--episodes", "1", "--json"))
    call("verify", "whole")
    exported = call("export", "whole")
    assert "the same actions" in exported, exported
    policy = srl.load(tmp_path / "whole")
    assert policy.act(_observation(policy)) is not None
    if kind.env != TWO_STEP:
        call("record", "whole", "--out", str(tmp_path / "video.gif"), "--max-frames", "2")
        call("collect", "whole", "--steps", "20", "--sample", "--out", str(tmp_path / "again-v0"))


def _observation(policy: Any) -> Any:
    space = policy.observation
    if isinstance(space, Dict):
        return {key: 0 if key == "agent_id" else np.zeros(3, np.float32) for key in space.items if key != "state"}
    return np.zeros(space.shape, np.float32)


@kinds(PLACED)
@pytest.mark.parametrize("inference", ["host", "remote"])
def test_every_algorithm_trains_with_policy_workers_replay_workers_and_two_trainers(
    name: str, inference: str, terminal: Terminal
) -> None:
    words = ["--lanes", "2", "--horizon", "8", "--steps", "256", "--trainers", "2", "--inference", inference]
    place = ["--replay", inference, "--replay-workers", "2", "--root", str(terminal.root), "--name", "run"]
    ended = terminal.start("train", *KINDS[name].words, *words, *place).end()
    assert ended.code == 0, ended.text
    rows = rows_of(terminal.root / "run")
    assert rows[-1]["step"] >= 256
    assert rows[-1]["gradient_steps"] == pytest.approx((rows[-1]["step"] - 32) / 4, abs=16)


@kinds(KINDS)
def test_every_algorithm_trains_over_hosts(name: str, terminal: Terminal, recorded: dict[str, str]) -> None:
    kind = KINDS[name]
    data = ["--data", recorded[kind.env], "--batch", "8"] if kind.is_offline else ["--lanes", "2", "--horizon", "4"]
    words = [*kind.words, *data, "--steps", "64", "--scheduler", "hosts"]
    ended = terminal.start("train", *words, "--root", str(terminal.root), "--name", "run").end()
    assert ended.code == 0, ended.text
    assert "gradient_steps" in rows_of(terminal.root / "run")[-1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sac", "dqn", "qmix"])
def test_a_sweep_over_seeds_and_options_learns_from_replay(name: str, terminal: Terminal) -> None:
    words = ["--lanes", "2", "--horizon", "4", "--steps", "64", "--seeds", "2", "--jobs", "2"]
    words += ["--grid", "learning_rate=1e-3,1e-4", "--root", str(terminal.root), "--name", "sweep"]
    ended = terminal.start("sweep", *KINDS[name].words, *words).end()
    assert ended.code == 0, ended.text
    assert len(list(terminal.root.glob("sweep/**/metrics.jsonl"))) == 4


@pytest.mark.parametrize("algo", ["dqn", pytest.param("sac", marks=pytest.mark.slow)])
def test_versions_of_a_policy_play_in_a_league(algo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pettingzoo.classic")
    words = [TICTACTOE, "--algo", algo, "--recipe", "none", *ONLINE, "--scheduler", "inline"]
    words += ["--lanes", "2", "--horizon", "4", "--steps", "128", "--keep-every", "48", "--self-play", "uniform"]
    words += ["--checkpoint-seconds", "0"]
    assert main(["train", *words, "--root", str(tmp_path), "--name", "run"]) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert main(["league", "run", "--root", str(tmp_path), "--games", "2", "--json"]) == 0, capsys.readouterr().err
    players = json.loads(capsys.readouterr().out)["players"]
    assert len(players) > 2
    shown = league_of(RunDirectory(tmp_path / "run"))
    assert shown is not None, "the dashboard shows the table"
    assert shown["names"] == players


@pytest.mark.parametrize("inference", ["inline", pytest.param("host", marks=pytest.mark.slow)])
def test_one_role_learns_with_sac_and_the_other_with_ppo(
    inference: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sac = "archer=archers,algo=sac,hidden_sizes=8,batch_size=8,learning_starts=32,updates_per_decision=0.25"
    ppo = "dodger=dodgers,algo=ppo,num_minibatches=1"
    words = [DUEL, "--roles", sac, ppo, "--recipe", "none", "--scheduler", "inline", "--inference", inference]
    words += ["--lanes", "2", "--horizon", "4", "--steps", "128", "--root", str(tmp_path)]
    assert main(["train", *words, "--name", "run"]) == 0, capsys.readouterr().err
    rows = rows_of(tmp_path / "run")
    last = {policy: [row for row in rows if row["policy"] == policy][-1] for policy in ("archers", "dodgers")}
    assert last["archers"]["archers/gradient_steps"] >= 4
    assert "dodgers/gradient_steps" not in last["dodgers"]
    assert last["dodgers"]["dodgers/update"] > 1
    assert main(["eval", "run", "--root", str(tmp_path), "--episodes", "2"]) == 0, capsys.readouterr().err
    assert main(["resume", "run", "--root", str(tmp_path), "--steps", "192"]) == 0, capsys.readouterr().err
    archer, dodger = (srl.load(tmp_path / "run", policy=policy) for policy in ("archers", "dodgers"))
    assert -1.0 <= float(archer.act(np.zeros(3, np.float32))[0]) <= 1.0
    assert dodger.act(np.zeros(2, np.float32)) in (0, 1)
