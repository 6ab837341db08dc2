"""Help: it fits on two screens, shows defaults and choices, and flows to the width of the terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from srl.cli.flags import run_options
from srl.cli.help import COMMON, TOPICS
from srl.cli.main import COMMANDS, command_class, main
from srl.cli.parser import options_of
from srl.cli.sweep import Sweep
from srl.cli.topics import ALSO, PAGES
from srl.cli.train import Train
from srl.experiments.options.algorithms import ALGORITHMS, BUILT_IN, option_names
from srl.experiments.options.train_options import SECTIONS, TrainOptions


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_the_help_of_train_fits_on_two_screens(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = shown(capsys, "train", "--help").splitlines()
    assert len(lines) <= (92 if columns < 100 else 77)
    assert max(map(len, lines)) <= columns
    assert any(len(line) > columns - 12 for line in lines), "it uses the width"
    for text in ("ENV", "--steps N", "--algo NAME", "--config FILE", "--algo.learning-rate X", "srl help cluster"):
        assert any(text in line for line in lines), text


def test_the_long_help_shows_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "train", "--help-all")
    missing = [option.flag for option in run_options(TrainOptions(), "ppo") if f"  {option.flag}" not in text]
    assert missing == []


@pytest.mark.parametrize(
    ("algo", "hidden", "kept"),
    [
        ("sac", "memory memory-size chunk burn-in network towers box std", "initial-std global-keys update-threads"),
        ("td3", "memory network initial-std", "tau"),
        ("dqn", "memory memory-size chunk burn-in towers box std initial-std global-keys", "network body"),
        ("r2d2", "network box update-threads", "memory chunk burn-in"),
        ("qmix", "box std initial-std towers", "memory network global-keys"),
        ("bc", "memory network std n-step gamma", "box initial-std"),
        ("iql", "memory network std", "box initial-std"),
        ("ppo", "", "memory chunk burn-in network towers box std initial-std global-keys"),
    ],
)
def test_the_help_leaves_out_what_an_algorithm_does_not_use(
    algo: str, hidden: str, kept: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(capsys, "help", algo).splitlines()
    flags = {line.split()[0].removeprefix("--algo.") for line in lines if line.startswith("  --algo.")}
    assert not flags & set(hidden.split())
    assert set(kept.split()) <= flags


def test_the_options_that_an_algorithm_does_not_use_exist() -> None:
    for kind in BUILT_IN.values():
        assert set(kind.UNUSED) <= set(vars(kind())), kind


def test_every_option_is_explained() -> None:
    kinds = {name: run_options(TrainOptions(), name) for name in ALGORITHMS}
    silent = {f"{algo}: {option.name}" for algo, options in kinds.items() for option in options if not option.text}
    for command in COMMANDS:
        silent |= {f"{command}: {option.name}" for option in options_of(command_class(command)) if not option.text}
    assert silent == set()


def test_defaults_are_shown_in_one_form(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["train", "--help-all"], *([command, "--help"] for command in COMMANDS)):
        assert "Default:" not in shown(capsys, *words)


def test_the_help_of_resume_leaves_out_what_only_a_new_run_can_set(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--help"], ["--help-all"]):
        assert "--recipe " not in shown(capsys, "resume", *words)


def test_the_help_of_sweep_shows_seeds_and_not_the_one_seed_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "sweep", "--help")
    assert "--seeds SEEDS" in text
    assert "--seed " not in text


def test_common_options_exist() -> None:
    known = {option.name for option in (*options_of(Train), *options_of(Sweep))}
    known |= {option.name for algo in ("ppo", "sac") for option in run_options(TrainOptions(), algo)}
    assert {name for names in COMMON.values() for name in names} <= known


@pytest.mark.parametrize(
    ("topic", "texts"),
    [
        ("", ["check-env", "srl help cluster"]),
        ("ppo", ["--algo.clip X", "(default: 0.2)", "one of", "Proximal policy optimization"]),
        ("impala", ["--algo.rho-clip X"]),
        ("cluster", ["--hosts N", "--join-file FILE"]),
        ("evaluation", ["--eval-every N", "default: yes; --no-eval-greedy for no"]),
        ("self-play", ["--self-play-share X", "--roles PATTERN=POLICY"]),
        ("workers", ["--lanes N", "--scheduler NAME"]),
        ("replay", ["--replay NAME", "--algo.replay-size N", "--save-replay", "docs/howto/replay.md"]),
        ("network", ["--algo.hidden-sizes N ...", "--algo.network FUNCTION", "docs/howto/networks.md"]),
        ("offline", ["--data DATASET ...", "--algo.expert EXPERT", "`srl collect`", "docs/howto/offline.md"]),
        ("lanes", ["--lanes N Environment copies", "in the group workers: `srl help workers`, docs/options.md"]),
        ("seed", ["--seed N", "`srl help run`"]),
        ("hidden-sizes", ["--algo.hidden-sizes N ...", "64 64 (ppo,", "256 256 (dqn,", "`srl help network`"]),
        ("utd", ["--algo.updates-per-decision X", "Option of dqn,", "0.5 (dqn,", "`srl help replay`"]),
        ("algo.clip", ["--algo.clip X", "Option of ppo,", "(default: 0.2)"]),
        ("double", ["default: yes; --no-algo.double for no"]),
        ("seeds", ["--seeds SEEDS", "Option of `srl sweep`"]),
        ("recipes", ["pendulum", "hide-and-seek"]),
        ("pendulum", ["algo.gamma 0.9"]),
        ("resume", ["usage: srl resume RUN"]),
        ("help", ["TOPIC"]),
    ],
)
def test_a_topic_is_explained(topic: str, texts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(shown(capsys, "help", *([topic] if topic else [])).split())  # whatever the terminal's width
    for expected in texts:
        assert expected in text


def test_every_topic_and_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for topic in (*TOPICS, *SECTIONS, *ALGORITHMS, *COMMANDS):
        assert len(shown(capsys, "help", topic)) > 50
    for command in COMMANDS:
        assert shown(capsys, command, "--help").startswith(f"usage: srl {command}")


def test_help_without_a_command_lists_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    for text in (*COMMANDS, "SRL_DEBUG=1"):
        assert text in shown(capsys, "--help")


def test_an_unknown_topic_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "clusters"]) == 2
    assert "no help on 'clusters'; did you mean 'cluster'?" in capsys.readouterr().err
    assert main(["help", "lanse"]) == 2
    assert "no help on 'lanse'; did you mean 'lanes'?" in capsys.readouterr().err
    assert main(["help", "quux"]) == 2
    assert "no help on 'quux'; `srl help` lists the topics" in capsys.readouterr().err
    assert main(["help", "num-envs"]) == 2
    assert "no option --num-envs: --lanes counts the copies in one lane group" in capsys.readouterr().err


def test_words_are_looked_for_in_the_names_of_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--algo.learning-rate X" in shown(capsys, "help", "learning", "rate")
    found = shown(capsys, "help", "entropy")
    assert "--algo.entropy-coefficient" in found
    assert "--algo.entropy-final" in found
    assert "--algo.learning-rate" not in found
    assert "--checkpoint-seconds" in shown(capsys, "help", "seconds", "checkpoint")


def test_every_option_has_help_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    others = {*COMMANDS, *SECTIONS, *TOPICS, *ALSO, *ALGORITHMS}
    for option in {option.name for algo in ALGORITHMS for option in run_options(TrainOptions(), algo)} - others:
        name = option.replace("_", "-")
        assert f"  --{name} " in shown(capsys, "help", name).replace("\n", " ")


def test_the_page_about_networks_says_which_algorithms_take_one() -> None:
    text = (Path(__file__).parents[2] / "docs/howto/policy.md").read_text()
    rows = [line.split(" | ") for line in text.partition("| `--algo` |")[2].splitlines() if line.startswith("| `")]
    listed = {name: not row[1].startswith("no;") for row in rows for name in row[0].split("`")[1::2]}
    taking = {name: "network" in option_names(kind) for name, kind in BUILT_IN.items()}
    assert {name: listed[name] for name in taking} == taking


def test_pages_named_by_the_help_exist() -> None:
    assert all((Path(__file__).parents[2] / "docs" / page).is_file() for page in PAGES.values())


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_the_help_with_an_off_policy_algorithm_shows_its_replay(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(capsys, command, "--algo", "sac", "--help")
    for flag in ("replay-size N", "updates-per-decision X", "learning-starts N", "hidden-sizes N"):
        assert f"--algo.{flag}" in text
    assert "--algo.memory" not in text
    text = shown(capsys, command, "--help")
    assert "--algo.hidden-sizes N" in text
    assert "--algo.replay-size" not in text


def test_help_needs_neither_torch_nor_gymnasium() -> None:
    program = (
        "import sys; from srl.cli.main import main; main(['train', '--help']); main(['--help']);"
        "assert not {'torch', 'gymnasium', 'psutil', 'rich'} & set(sys.modules), 'help imports too much'"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_the_help_shows_the_options_of_the_users_own_algorithm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\nfrom srl import PPOConfig\n\n"
        "@dataclass(frozen=True)\nclass Config(PPOConfig):\n"
        '    """Mine."""\n\n    temperature: float = 0.7\n    """Temperature of my softmax."""\n'
    )
    text = shown(capsys, "train", "--algo", f"{tmp_path}/mine.py:Config", "--help")
    assert "--algo.temperature X      Temperature of my softmax. (default: 0.7)" in text
    assert "--algo.kl-coefficient" not in text  # PPO's own options are in --help-all


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        ([], ["acrobot", "continuous-image", "`srl recipes ENV`"]),
        (["mujoco"], ["Recipe mujoco:", "algo.normalize_return running"]),
        (["Pendulum-v1"], ["Recipe pendulum:", "algo.gamma 0.9", "a swing pays off within about ten steps"]),
        (["srl.testing.environments:Tracer"], ["Recipe default:"]),
    ],
)
def test_recipes_are_listed_and_found_by_environment(
    words: list[str], texts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(capsys, "recipes", *words)
    assert all(each in text for each in texts)
