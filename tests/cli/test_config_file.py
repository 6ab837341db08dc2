"""Config files: what `--print-config` prints can be fed back, flags win, and every value has its source."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import srl
from srl.base.config import from_data
from srl.cli.main import main
from srl.experiments.options.config_file import gather, read_config
from srl.experiments.options.keywords import make_options

QUICK = {"scheduler": "inline", "steps": 64, "lanes": 2, "horizon": 16, "batch": 32, "sinks": []}
TOML = """
env = "Pendulum-v1"
steps = 1_000

[workers]
lanes = 4
max-lag = 0

[algorithm]
gamma = 0.95
hidden_sizes = [32, 32]
"""


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["train", *words, "--print-config"]) == 0
    return capsys.readouterr().out


def sources(text: str) -> dict[str, str]:
    """Name of each option -> the comment after its value."""
    rows = [line.partition("  # ") for line in text.splitlines() if " =" in line]
    return {left.strip("# ").partition(" =")[0]: right for left, _, right in rows}


def test_flags_win_over_the_file_and_the_file_over_the_recipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.toml").write_text(TOML)
    text = printed(capsys, "--config", str(tmp_path / "run.toml"), "--steps", "2000", "--algo.epochs", "2")
    config = read_config_text(text, tmp_path)
    assert (config["run"]["steps"], config["workers"]["lanes"], config["workers"]["max_lag"]) == (2000, 4, 0)
    assert (config["algorithm"]["gamma"], config["algorithm"]["epochs"]) == (0.95, 2)
    found = sources(text)
    wanted = {"steps": "flag", "epochs": "flag", "lanes": "file run.toml", "gamma": "file run.toml", "seed": "default"}
    assert {name: found[name] for name in wanted} == wanted
    assert found["env"] == "file run.toml"
    assert found["num_minibatches"].startswith("recipe pendulum: ")
    assert found["actors"].startswith("chosen for this environment and machine (")


def read_config_text(text: str, tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "printed.toml").write_text(text)
    return read_config(tmp_path / "printed.toml")[0]


@pytest.mark.parametrize(
    "words",
    [
        ["CartPole-v1", "--steps", "5000"],
        ["Pendulum-v1", "--lanes", "3", "--name", "mine"],
        ["Pendulum-v1", "--algo", "a2c", "--algo.hidden-sizes", "8", "8", "--sinks"],
        ["Pendulum-v1", "--algo", "sac", "--algo.replay-size", "5000"],
        ["CliffWalking-v1", "--env-arg", "is_slippery=true", "--recipe", "toy-text"],
    ],
    ids=" ".join,
)
def test_a_printed_config_can_be_used_as_input(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = printed(capsys, *words)
    (tmp_path / "again.toml").write_text(first)
    second = printed(capsys, "--config", str(tmp_path / "again.toml"))
    (tmp_path / "second.toml").write_text(second)
    assert read_config(tmp_path / "again.toml") == read_config(tmp_path / "second.toml")


def test_a_run_from_a_file_has_its_options(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"env": "CartPole-v1", "name": "filed", **QUICK, "seed": 3}))
    assert main(["train", "--config", str(tmp_path / "run.json"), "--root", str(tmp_path), "--seed", "4"]) == 0
    options = from_data(json.loads((tmp_path / "filed" / "config.json").read_text())["options"])
    assert (options.run.steps, options.run.seed, options.workers.lanes) == (64, 4, 2)
    run = srl.train(config=tmp_path / "run.json", root=tmp_path, name="python", steps=32)
    options = from_data(json.loads((run.path / "config.json").read_text())["options"])
    assert (run.name, options.run.steps, options.run.seed) == ("python", 32, 3)


def test_the_config_of_a_run_starts_another_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = srl.train("Pendulum-v1", root=tmp_path, name="first", config=QUICK, batch=64, lr=1e-4)
    text = printed(capsys, "--config", str(first.path / "config.json"), "--seed", "4")
    found = sources(text)
    assert (found["env"], found["seed"]) == ("file config.json", "flag")
    assert (
        main(["train", "--config", str(first.path / "config.json"), "--root", str(tmp_path), "--name", "second"]) == 0
    )
    again = json.loads((tmp_path / "second" / "config.json").read_text())
    assert again["options"] == json.loads((first.path / "config.json").read_text())["options"]


def test_chosen_sizes_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "CartPole-v1", "--actors", "3")
    assert "# lanes = " in text
    assert "# horizon = " in text
    assert "# batch = " in text
    words = ["--scheduler", "inline", "--steps", "10", "--lanes", "4", "--horizon", "16", "--sinks"]
    assert main(["train", "CartPole-v1", *words, "--root", str(tmp_path), "--name", "short"]) == 0
    shown = capsys.readouterr().out
    assert "sizes: 1 actor x 4 lanes, horizon 16, batch 64" in shown
    (steps,) = re.findall(r"srl resume \S*short --steps (\d+)", shown)
    assert int(steps) > 64, "the suggested run trains longer"


def test_the_files_settings_are_for_the_algorithm_that_a_flag_chooses() -> None:
    found = gather({"algorithm": {"gamma": 0.9}}, {"algo": "a2c"}, "flag")
    assert found.options.algorithm == srl.A2CConfig(gamma=0.9)
    other = gather({"algo": "ppo", "algorithm": {"clip": 0.3}}, {"algo": "a2c"}, "flag")
    assert other.options.algorithm == srl.A2CConfig()
    assert "algo.clip" not in other.sources


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps = 'many'", "file run.toml: steps must be an integer"),
        ("stepz = 5", "no option 'stepz'; did you mean 'steps'"),
        ("num_envs = 5", "`lanes` x `ring` x `actors`"),
        ("[workers]\nsteps = 5", "no option 'steps' in 'workers'"),
        ("[algorithm]\ngamma = 'high'", "gamma must be a number"),
        ("steps = = 5", "is not valid TOML"),
        ("lr = 1e-3\n[algorithm]\nlearning_rate = 1e-4", "lr and algorithm.learning_rate set the same option"),
        ("max-lag = 1\nmax_lag = 0", "max-lag and max_lag set the same option"),
    ],
)
def test_a_mistake_in_a_file_is_named(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.toml").write_text(text)
    assert main(["train", "CartPole-v1", "--config", str(tmp_path / "run.toml")]) == 2
    assert message in capsys.readouterr().err
    assert main(["train", "CartPole-v1", "--config", str(tmp_path / "none.toml")]) == 2
    assert "no config file" in capsys.readouterr().err


def test_sections_and_flat_names_mean_the_same() -> None:
    assert make_options(workers={"lanes": 4}, run={"steps": 5}) == make_options(lanes=4, steps=5)
