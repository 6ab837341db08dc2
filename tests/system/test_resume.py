"""A run that was interrupted ends, bit for bit, where an uninterrupted one does."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import varied
from support.counting import CountingConfig
from support.terminals import Terminal, wait_for
from support.trained_runs import latest_checkpoint

import srl
from srl.cli.main import main
from srl.experiments.options.algorithms import build_algorithm
from srl.experiments.session.launch import conduct_on
from srl.storage import checkpoints
from srl.storage.run_directory import RunDirectory

GAMES = "pettingzoo:support.games"


def state_of(path: Path) -> dict[str, np.ndarray]:
    return latest_checkpoint(path)[0]


def assert_equal_bits(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert set(one) == set(other)
    for key in one:
        assert one[key].tobytes() == other[key].tobytes(), key


SLOW = pytest.mark.slow
EVERYTHING = {
    "memory": "lstm",
    "memory_size": 8,
    "chunk": 2,
    "normalize_observation": True,
    "normalize_return": "popart",
    "kl_coefficient": 0.1,
    "adapt_kl": 0.01,
}

REPLAY = {"learning_starts": 20, "batch_size": 4, "updates_per_decision": 0.5, "replay_size": 200}
PRIORITIZED = {**REPLAY, "prioritized": True, "n_step": 3, "epsilon": 0.1, "epsilon_final": 0.1, "priority_beta": 1.0}
SHIFTED = {**REPLAY, "epsilon": 0.1, "epsilon_final": 0.1, "random_shift": 4, "body": "lean"}
VARIED = f"{varied.__file__}:Varied"


@pytest.mark.parametrize(
    ("environment", "agents", "options"),
    [
        ("CartPole-v1", 1, {}),
        pytest.param("srl.testing.environments:Tracer", 1, {}, marks=SLOW),
        # Saved all the time: the last checkpoint must hold the last update of each policy.
        (
            f"{GAMES}:TurnGame",
            2,
            {"inference": "host", "roles": ("agent_0=first", "agent_1=second"), "checkpoint_seconds": 0.05},
        ),
        pytest.param("CartPole-v1", 4, {"max_lag": 0, "ring": 2, "actors": 2}, marks=SLOW),
        pytest.param("CartPole-v1", 2, {"inference": "host", "ring": 2}, marks=SLOW),
        pytest.param(f"{GAMES}:TurnGame", 2, {}, marks=SLOW),
        pytest.param(f"{GAMES}:DyingTeam", 2, {}, marks=SLOW),
        # Replay is part of the exact state, with its priorities and random generator.
        ("Pendulum-v1", 1, {"algo": "sac", "sac": REPLAY}),
        pytest.param("CartPole-v1", 1, {"algo": "dqn", "dqn": PRIORITIZED, "save_replay": True}, marks=SLOW),
        # Random shifts of images depend on the number of the update.
        (VARIED, 1, {"algo": "dqn", "dqn": SHIFTED, "env_args": {"observation": "camera"}}),
        # Memory, normalizers and PopArt at once; then each algorithm that keeps something of its own.
        ("CartPole-v1", 1, {"algo": "ppo", "ppo": EVERYTHING}),
        pytest.param(
            "CartPole-v1", 1, {"algo": "ppg", "ppg": {"auxiliary_every": 7, "auxiliary_epochs": 1}}, marks=SLOW
        ),
        pytest.param("CartPole-v1", 1, {"algo": "impala", "max_lag": 3}, marks=SLOW),
        pytest.param("CartPole-v1", 1, {"algo": "a2c"}, marks=SLOW),
        pytest.param("Pendulum-v1", 1, {"algo": "ppo", "ppo": {**EVERYTHING, "memory": "gru"}}, marks=SLOW),
        pytest.param(f"{GAMES}:TurnGame", 2, {"algo": "ppg", "ppg": {"memory": "gru", "memory_size": 8}}, marks=SLOW),
    ],
)
def test_200_updates_after_a_resume_are_those_of_an_uninterrupted_run(
    tmp_path: Path, environment: str, agents: int, options: dict[str, Any]
) -> None:
    """A run that is saved all the time makes 40."""
    if environment.startswith("pettingzoo"):
        pytest.importorskip("pettingzoo")
    batch = 2 * 2 * agents  # lanes x horizon: small updates show as much as large ones
    options = {"scheduler": "inline", "recipe": "none", "seed": 3, "lanes": 2, "horizon": 2, **options}
    options |= {"root": tmp_path, "sinks": ()}
    algo = options.get("algo", "ppo")
    learning = {"epochs": 1, "num_minibatches": 1, "learning_rate_schedule": "constant", "hidden_sizes": (8,)}
    config: Any = build_algorithm(algo)
    known = {field.name for field in fields(config)}
    learning = {name: value for name, value in learning.items() if name in known}
    options = {"checkpoint_seconds": 1.0, **options, algo: {**learning, **options.get(algo, {})}}
    updates = 40 if options["checkpoint_seconds"] < 1.0 else 200
    whole = srl.train(environment, name="whole", steps=(updates + 30) * batch, **options)
    halved = srl.train(environment, name="halved", steps=20 * batch, **options)
    resumed = srl.resume(halved.path, steps=(updates + 30) * batch)
    assert not any("new episodes" in text for text in resumed.status.messages), resumed.status.messages
    assert resumed.status.version >= halved.status.version + updates
    assert_equal_bits(state_of(whole.path), state_of(resumed.path))


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_from_its_last_checkpoint_exactly(terminal: Terminal) -> None:
    options: tuple[str, ...] = (
        "--scheduler",
        "inline",
        "--steps",
        "40000",
        "--lanes",
        "8",
        "--horizon",
        "16",
        "--seed",
        "5",
    )
    options += ("--ppo.epochs", "1", "--ppo.num-minibatches", "1")
    assert terminal.train("CartPole-v1", *options, name="whole").end().code == 0
    command = terminal.train("CartPole-v1", *options, "--checkpoint-seconds", "0.1", name="killed")
    kept = terminal.root / "killed" / "checkpoints"
    wait_for(lambda: len(checkpoints.checkpoints(kept)) >= 2, "two checkpoints")
    command.signal(9)
    assert command.end().code == -9
    ended = terminal.run("resume", str(terminal.root / "killed"))
    assert ended.code == 0, ended.text
    assert_equal_bits(state_of(terminal.root / "whole"), state_of(terminal.root / "killed"))
    status = json.loads((terminal.root / "killed" / "status.json").read_text())
    assert status["steps"] >= 40000
    assert status["episodes"] > 100


def small(root: Path, **options: Any) -> srl.Run:
    sizes = {"steps": 256, "lanes": 4, "horizon": 16, "scheduler": "inline", "name": "run", "root": root}
    return srl.train(options.pop("env", "CartPole-v1"), **{**sizes, **options})


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> srl.Run:
    return small(tmp_path_factory.mktemp("original"))


@pytest.fixture
def run(original: srl.Run, tmp_path: Path) -> srl.Run:
    """A finished run that the test may change."""
    shutil.copytree(original.path, tmp_path / "run")
    return replace(original, path=tmp_path / "run")


def test_an_environment_that_cannot_be_saved_is_reported_and_starts_new_episodes(tmp_path: Path) -> None:
    pytest.importorskip("ale_py")
    run = small(tmp_path, env="ALE/Pong-v5", recipe="none", lanes=2, horizon=8, steps=16)
    assert any("starts new episodes" in text and "ALE/Pong-v5" in text for text in run.status.messages)
    resumed = srl.resume(run.path, steps=32)
    assert any(text.startswith("new episodes start: ALE/Pong-v5") for text in resumed.status.messages)
    assert resumed.status.version > run.status.version


def sizes_of(run: srl.Run) -> tuple[dict[str, int], dict[str, Any]]:
    config = json.loads((run.path / "config.json").read_text())
    return config["sizes"], config["options"]["fields"]["workers"]["fields"]


def test_chosen_sizes_are_kept_and_given_ones_win(tmp_path: Path) -> None:
    run = small(tmp_path, recipe="none")
    sizes, options = sizes_of(run)
    assert sizes == {"actors": 1, "lanes": 4, "ring": 1, "horizon": 16, "batch": 64}
    assert (options["actors"], options["batch"]) == (None, None), "as it was asked for"
    config = json.loads((run.path / "config.json").read_text())
    config["sizes"]["actors"] = 3  # as if another machine, with more cores, had begun it
    (run.path / "config.json").write_text(json.dumps(config))
    resumed = srl.resume(run.path, steps=512)
    assert len([worker for worker in resumed.status.workers if worker.group == "actors"]) == 3
    assert sizes_of(run)[0] == {**sizes, "actors": 3}, "the batch is that of the run, not of the actors there are now"
    assert sizes_of(srl.resume(run.path, steps=768, actors=2))[0] == {**sizes, "actors": 2}
    given = sizes_of(srl.resume(run.path, steps=1024, lanes=8))
    assert given[0] == {"actors": 2, "lanes": 8, "ring": 1, "horizon": 16, "batch": 256}, "other blocks, another batch"
    assert (given[1]["actors"], given[1]["lanes"], given[1]["batch"]) == (2, 8, None)


def test_a_run_with_other_sizes_resumes_but_not_exactly(run: srl.Run) -> None:
    resumed = srl.resume(run.path, steps=512, lanes=8)
    assert resumed.status.messages[0].startswith("new episodes start: workers, streams or their sizes have changed")
    assert resumed.status.version > run.status.version


def contents(run: Path) -> dict[Path, bytes]:
    """Return all files of a run but the record of its owner, which changes with every command that writes."""
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.stem != "owner"}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"ppo": {"hidden_sizes": (32,)}}, r"hidden_sizes was \[64, 64\], now \[32\]"),
        ({"roles": ("agent=other",)}, "has the policies policy; with the given roles it would have other"),
        ({"algo": CountingConfig()}, r"algorithm was ppo, now CountingConfig\("),
    ],
)
def test_an_incompatible_change_names_the_field_and_both_values(
    run: srl.Run, changes: dict[str, Any], text: str
) -> None:
    before = contents(run.path)
    with pytest.raises(ValueError, match=text):
        srl.resume(run.path, steps=512, **changes)
    assert contents(run.path) == before


def test_options_on_the_command_line_change_the_run_and_others_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small(tmp_path, algo="a2c", a2c={"gamma": 0.9})
    words = ["resume", "run", "--root", str(tmp_path)]
    assert main([*words, "--help"]) == 0
    assert re.search(r"--algo.gamma.*?default:\s*0\.9\b", capsys.readouterr().out, re.DOTALL), "the run's own"
    assert main([*words, "--steps", "512", "--algo.learning-rate", "1e-4"]) == 0
    options = json.loads((run.path / "config.json").read_text())["options"]["fields"]
    changed, run_options = options["algorithm"]["fields"], options["run"]["fields"]
    assert (run_options["steps"], changed["learning_rate"], changed["gamma"]) == (512, 1e-4, 0.9)
    assert main([*words, "--steps", "1024", "--a2c.hidden-sizes", "32"]) == 2
    assert "hidden_sizes was [64, 64], now [32]" in capsys.readouterr().err


def test_a_run_that_reached_its_goal_resumes_for_more_steps(tmp_path: Path) -> None:
    still = {"learning_rate": 1e-9, "epochs": 1, "num_minibatches": 1}  # episodes stay short
    run = small(tmp_path, until_return=1.0, steps=1_000_000, ppo=still)
    assert run.reason.endswith("reached the goal of 1")
    resumed = srl.resume(run.path, steps=run.status.steps + 640)
    assert resumed.status.steps >= run.status.steps + 640
    again = srl.resume(run.path, steps=run.status.steps + 100_000, until_return=1.0)
    assert again.reason.endswith("reached the goal of 1")
    assert again.status.episodes >= run.status.episodes + 100, "those before do not count"


def test_an_environment_of_other_spaces_is_refused(run: srl.Run) -> None:
    config = json.loads((run.path / "config.json").read_text())
    config["lanes"]["fields"]["name"] = "Acrobot-v1"
    config["lanes"]["type"] = "gymnasium"
    (run.path / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        ValueError, match=r"trained with action space\.n 2; the environment now has 3|observation space"
    ):
        srl.resume(run.path, steps=512)


def test_harmless_changes_are_allowed(run: srl.Run) -> None:
    assert srl.resume(run.path, steps=512, ppo={"learning_rate": 1e-4}).state == "finished"


def test_a_foreign_or_damaged_checkpoint_is_an_error_and_nothing_is_overwritten(tmp_path: Path, run: srl.Run) -> None:
    newest = checkpoints.latest(run.path / "checkpoints")
    assert newest is not None
    (newest / "arrays.safetensors").write_bytes(b"PK\x03\x04 something of another library")
    before = sorted(path.name for path in (run.path / "checkpoints").iterdir())
    with pytest.raises(checkpoints.CheckpointError, match=r"arrays.safetensors has \d+ bytes instead of"):
        srl.resume(run.path, steps=512)
    with pytest.raises(checkpoints.CheckpointError, match="bytes instead of"):
        srl.load(newest)
    foreign = checkpoints.write(tmp_path / "foreign", 1, {"weights": np.zeros(3)}, {"made": "elsewhere"})
    with pytest.raises(checkpoints.CheckpointError, match="not a checkpoint of a training run"):
        srl.load(foreign)
    shutil.copytree(foreign, newest, dirs_exist_ok=True)
    with pytest.raises(checkpoints.CheckpointError, match="not a checkpoint of a training run"):
        srl.resume(run.path, steps=512)
    assert sorted(path.name for path in (run.path / "checkpoints").iterdir()) == before


def test_a_checkpoint_of_another_environment_is_refused_before_anything_is_written(
    tmp_path: Path, run: srl.Run
) -> None:
    sizes: dict[str, Any] = {"steps": 256, "lanes": 4, "horizon": 8, "recipe": "none"}
    other = srl.train("Pendulum-v1", scheduler="inline", root=tmp_path, sinks=(), **sizes)
    folder = run.path / "checkpoints"
    shutil.rmtree(folder)
    shutil.copytree(other.path / "checkpoints", folder)
    before = contents(run.path)
    with pytest.raises(ValueError, match=r"trained with observation space.shape \[3\]; the environment now has \[4\]"):
        srl.resume(run.path, steps=512)
    for use in (srl.evaluate, srl.record):
        with pytest.raises(checkpoints.CheckpointError, match=r"belongs to another run.*shape \[3\]"):
            use(run.path)
    assert contents(run.path) == before


def conduct_again(path: Path) -> srl.Run:
    """Conduct a run as a requeued job does."""
    directory = RunDirectory(path)
    with directory.locked() as ownership:
        return conduct_on(directory, ownership, lambda *_: None, None)  # type: ignore[arg-type]


def test_a_run_continues_from_the_newest_undamaged_checkpoint(run: srl.Run) -> None:
    folder = run.path / "checkpoints"
    srl.resume(run.path, steps=512)
    good, newest = checkpoints.checkpoints(folder)[-2:]
    (newest / "workers.safetensors").unlink()
    requeued = conduct_again(run.path)
    assert requeued.status.first_steps == checkpoints.step_of(good)
    assert requeued.status.steps >= 512
    (message,) = [text for text in requeued.status.messages if "damaged" in text]
    assert f"{newest.name} is damaged (workers.safetensors is missing)" in message
    assert f"continues from {good.name}; it was renamed to damaged-{newest.name}" in message
    for path in checkpoints.checkpoints(folder):
        (path / "facts.json").write_text("{}")
    before = sorted(path.name for path in folder.iterdir())
    for again in (
        lambda: srl.resume(run.path, steps=1024),
        lambda: conduct_again(run.path),
    ):
        with pytest.raises(checkpoints.CheckpointError, match=r"all checkpoints .* are damaged \(.*facts.json has 2"):
            again()
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_run_continues_from_a_chosen_checkpoint(tmp_path: Path, run: srl.Run) -> None:
    folder = run.path / "checkpoints"
    first = checkpoints.latest(folder)
    assert first is not None
    shutil.copytree(first, tmp_path / "backup")
    srl.resume(run.path, steps=512)
    again = srl.resume(run.path, steps=512, checkpoint=first.name)
    assert again.status.first_steps == checkpoints.step_of(first)
    assert checkpoints.checkpoints(folder)[-1].name == f"0004-step-{again.status.steps}"
    shutil.rmtree(folder)
    restored = srl.resume(run.path, steps=512, checkpoint=tmp_path / "backup")
    assert restored.status.first_steps == checkpoints.step_of(first)
    best = checkpoints.write(folder / "best", 1, *checkpoints.read(tmp_path / "backup"))
    arrays, metadata = checkpoints.read(best)
    del metadata["graph"]
    checkpoints.write(folder / "best", 2, arrays, metadata)
    with pytest.raises(ValueError, match="contains only parameters"):
        srl.resume(run.path, steps=1024, checkpoint="best")


LOAD = """
import sys
import srl
policy = srl.load(sys.argv[1])
assert policy.act([0.0, 0.0, 0.0, 0.0]) in (0, 1)
assert policy.metadata["steps"] >= 256
wrong = [name for name in sys.modules if name.split(".")[:1] in (["zmq"], ["gymnasium"]) or name.split(".")[:2] in
         [["srl", part] for part in ("workers", "schedulers", "controller", "streams", "transports")]]
ours = [name for name in sys.modules if name.startswith("srl.environments.")]
wrong += [name for name in ours if name != "srl.environments.conversion"]
assert not wrong, wrong
"""


def test_a_copied_checkpoint_is_loaded_without_the_modules_of_training(tmp_path: Path, run: srl.Run) -> None:
    newest = checkpoints.latest(run.path / "checkpoints")
    assert newest is not None
    shutil.copytree(newest, tmp_path / "mine")
    shutil.rmtree(run.path)
    done = subprocess.run([sys.executable, "-c", LOAD, str(tmp_path / "mine")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_checkpoints_are_kept_as_the_options_say(terminal: Terminal) -> None:
    options = ("--steps", "5000", "--checkpoint-seconds", "0", "--keep-last", "1", "--keep-every", "1250")
    sizes = (*("--scheduler", "inline", "--lanes", "8", "--horizon", "16"), *("--ppo.epochs", "1"))
    words = ("train", "CartPole-v1", "--root", str(terminal.root), "--name", "run", "--ppo.num-minibatches", "1")
    ended = terminal.call(*words, *options, *sizes)
    assert ended.code == 0, ended.text
    steps = [checkpoints.step_of(path) for path in checkpoints.checkpoints(terminal.root / "run" / "checkpoints")]
    assert {step // 1250 for step in steps} >= {1, 2, 3}
    assert 4 <= len(steps) <= 6  # three milestones or four, the newest, and the best, which may be one of them
    assert steps[-1] >= 5000
    refused = terminal.call("train", "CartPole-v1", "--root", str(terminal.root), "--name", "none", "--keep-last", "0")
    assert refused.code == 2
