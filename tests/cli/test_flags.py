"""Words of the command line: options of the chosen algorithm, names from other libraries, values of every type."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest

import srl
from srl.algorithms.ppo.config import PPOConfig
from srl.cli.flags import chosen_algorithm
from srl.cli.main import main, parse
from srl.experiments.options.algorithms import BUILT_IN
from srl.experiments.options.aliases import ADVICE, SAME
from srl.experiments.options.keywords import make_options
from srl.experiments.options.train_options import SECTION_OF


def given(words: str) -> dict[str, Any]:
    """The options that `srl train` takes from these words."""
    return dict(parse(["train", "E", *words.split()]).keywords)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("--algo.gamma 0.5", {"algorithm": {"gamma": 0.5}}),
        ("--gamma 0.5", {"algorithm": {"gamma": 0.5}}),
        ("--ppo.gamma=0.5 --steps 5", {"algorithm": {"gamma": 0.5}, "steps": 5}),
        ("--algo.gamma=0.5 --algo impala", {"algo": "impala", "algorithm": {"gamma": 0.5}}),
        ("--algo=a2c --a2c.no-normalize-observation", {"algo": "a2c", "algorithm": {"normalize_observation": False}}),
        ("--no-normalize-observation", {"algorithm": {"normalize_observation": False}}),
        ("--hidden-sizes 64 32 --max_lag 0", {"algorithm": {"hidden_sizes": (64, 32)}, "max_lag": 0}),
        ("--steps 1e6 --until-return -3.5", {"steps": 1_000_000, "until_return": -3.5}),
        ("--algo dqn --no-algo.double", {"algo": "dqn", "algorithm": {"double": False}}),
        ("--algo dqn --no-dqn.double", {"algo": "dqn", "algorithm": {"double": False}}),
        ("--no-eval-greedy --team-reward False", {"eval_greedy": False, "team_reward": False}),
        ("--algo dqn --algo.double false --steps 5", {"algo": "dqn", "algorithm": {"double": False}, "steps": 5}),
        ("--actors none --team-reward", {"actors": None, "team_reward": True}),
        ("--sinks --scheduler inline", {"sinks": (), "scheduler": "inline"}),
        ("--sinks wandb mlflow", {"sinks": ("wandb", "mlflow")}),
    ],
)
def test_flags_become_options(words: str, wanted: dict[str, Any]) -> None:
    assert given(words) == wanted


@pytest.mark.parametrize("algo", BUILT_IN)
def test_every_negated_flag_that_the_help_shows_is_accepted(algo: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--algo", algo, "--help-all"]) == 0
    shown = re.findall(r"(--no-[a-z.-]+) for no", " ".join(capsys.readouterr().out.split()))
    assert "--no-eval-greedy" in shown
    assert ("--no-algo.double" in shown) == getattr(BUILT_IN[algo], "double", False)
    for flag in shown:
        name = flag.removeprefix("--no-").replace("-", "_")
        wanted = {"algorithm": {name[5:]: False}} if name.startswith("algo.") else {name: False}
        assert given(f"--algo {algo} {flag}") == {"algo": algo, **wanted}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--buffer-size 100", "ppo has no option --replay-size; these have: dqn, rainbow, apex, r2d2, sac, td3, ddpg,"),
        ("--algo.replay-size 100", "Choose one of them with --algo"),
        ("--sac.tau 0.1", "ppo has no option --tau; these have: dqn,"),
        ("--algo sac --memory gru", "sac has no option --memory; these have: ppo, a2c, impala, ppg, ippo, mappo, r2d2"),
        ("--algo dqn --box squashed", "dqn has no option --box; these have: ppo,"),
    ],
)
def test_an_option_of_other_algorithms_is_refused_with_their_names(
    words: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "CartPole-v1", *words.split()]) == 2
    assert text in capsys.readouterr().err


def test_python_names_the_algorithms_that_have_an_option() -> None:
    wanted = r"ppo has no option 'replay_size'; these have: dqn, .*\. Choose one of them with `algo`"
    for keywords in ({"buffer_size": 9}, {"replay_size": 9}, {"ppo": {"replay_size": 9}}):
        with pytest.raises(ValueError, match=wanted):
            make_options(**keywords)
    with pytest.raises(ValueError, match="sac has no option 'memory'; these have: ppo"):
        make_options(algo="sac", memory="gru")


@dataclass(frozen=True)
class OwnConfig(PPOConfig):
    """An algorithm of a user, given by this file and its name."""

    step_size: int = 1
    flag: bool = False
    sizes: tuple[int, ...] = ()
    label: str = ""
    width: float = 1.0


def test_options_of_a_users_algorithm_have_its_types(capsys: pytest.CaptureFixture[str]) -> None:
    algo = f"{__file__}:OwnConfig"
    words = "--algo.step-size 3 --algo.label=a=b --algo.flag --algo.sizes 64 -3 --width .5 --lr 1e-3"
    settings = {"step_size": 3, "label": "a=b", "flag": True, "sizes": (64, -3), "width": 0.5, "learning_rate": 1e-3}
    assert given(f"--algo {algo} {words}") == {"algo": algo, "algorithm": settings}
    assert main(["train", "E", "--algo", algo, "--algo.step-sise", "3"]) == 2
    assert "no option --algo.step-sise; did you mean '--step-size'?" in capsys.readouterr().err
    assert main(["train", "--algo", algo, "--help-all"]) == 0
    assert "--algo.step-size N" in capsys.readouterr().out


def test_the_last_algorithm_counts() -> None:
    assert chosen_algorithm("train", []) == "ppo"
    assert chosen_algorithm("train", ["--algo", "a2c", "--algo=impala"]) == "impala"
    assert chosen_algorithm("check-algo", ["--probe", "memory", "a2c"]) == "a2c"


def test_options_of_another_algorithm_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "CartPole-v1", "--algo", "impala", "--ppo.gamma", "0.5"]) == 2
    assert (
        "option of ppo, but the algorithm is impala; to set it for impala, use --algo.gamma" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("--total-timesteps 1000", {"steps": 1000}),
        (
            "--lr 1e-3 --ent-coef 0.01 --n-epochs 3",
            {"algorithm": {"learning_rate": 1e-3, "entropy_coefficient": 0.01, "epochs": 3}},
        ),
        ("--num-workers 3 --n-steps 64", {"actors": 3, "horizon": 64}),
        ("--algo.lr 1e-3 --ppo.ent-coef 0", {"algorithm": {"learning_rate": 1e-3, "entropy_coefficient": 0.0}}),
        ("--policy-workers 2", {"policies": 2}),
        ("--device cpu --clip-range 0.1", {"algorithm": {"device": "cpu", "clip": 0.1}}),
        ("--train-batch-size 2048 --eval-freq 1000", {"batch": 2048, "eval_every": 1000}),
    ],
)
def test_names_of_other_libraries_that_mean_the_same_are_accepted(words: str, wanted: dict[str, Any]) -> None:
    assert given(words) == wanted


def test_environment_and_directory_may_have_their_names_of_other_libraries() -> None:
    command = parse(["train", "--env", "CartPole-v1", "--output-dir", "elsewhere", "--exp-name", "mine"])
    assert (command.env, str(command.root), command.name) == ("CartPole-v1", "elsewhere", "mine")
    assert parse(["train", "--env-id=CartPole-v1"]).env == "CartPole-v1"


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        (["--num-envs", "8"], ["no option --num-envs", "--lanes", "--actors"]),
        (["--batch-size", "64"], ["--batch counts decisions per update", "--num-minibatches"]),
        (["--num-steps", "64"], ["--steps", "--horizon"]),
        (["--use-lstm"], ["--memory to gru or lstm"]),
        (["--lanse", "1"], ["no option --lanse; did you mean '--lanes'?"]),
        (["--steps", "many"], ["--steps must be an integer, found 'many'"]),
        (["--scheduler", "proceses"], ["must be one of processes, inline", "did you mean 'processes'"]),
        (["--steps"], ["--steps needs a value"]),
        (["Pong-v5"], ["unexpected argument 'Pong-v5'"]),
    ],
)
def test_other_names_and_values_are_refused_with_the_right_option(
    capsys: pytest.CaptureFixture[str], words: list[str], texts: list[str]
) -> None:
    assert main(["train", "CartPole-v1", *words]) == 2
    error = capsys.readouterr().err
    for text in texts:
        assert text in error
    assert "srl train --help" in error


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--lr 1e-3 --learning-rate 1e-4", "--lr and --learning-rate set the same option"),
        ("--algo.gamma 0.9 --ppo.gamma 0.8", "--algo.gamma and --ppo.gamma set the same option"),
        ("--steps 5 --total-timesteps 6", "--steps and --total-timesteps set the same option"),
        ("--gamma 0.9 --algo-arg gamma=0.8", "--algo.gamma and --algo-arg gamma set the same option"),
    ],
)
def test_an_option_under_two_names_is_refused(capsys: pytest.CaptureFixture[str], words: str, text: str) -> None:
    assert main(["train", "CartPole-v1", *words.split()]) == 2
    assert text in capsys.readouterr().err


def test_the_last_value_of_a_flag_counts() -> None:
    assert given("--steps 5 --steps 6 --team-reward --no-team-reward") == {"steps": 6, "team_reward": False}


def test_all_unknown_options_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "CartPole-v1", "--lanse", "4", "--num-envs=8", "--xyzzy", "--gama", "1", "--steps", "x"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.removeprefix("srl: ").partition(";")[0].partition(":")[0] for line in lines[:4]] == [
        "no option --lanse", "no option --num-envs", "no option --xyzzy", "no option --gama",
    ]  # fmt: skip
    assert "--steps must be an integer, found 'x'" in lines[4]
    with pytest.raises(ValueError, match=r"no option 'lanse'; did you mean 'lanes'\?\nno option 'xyzzy'$"):
        make_options(lanse=4, xyzzy=1)


@pytest.mark.parametrize("words", ["--verbose", "--save-path x", "--policy MlpPolicy", "--xyzzy 1"])
def test_only_similar_names_are_suggested(capsys: pytest.CaptureFixture[str], words: str) -> None:
    assert main(["train", "CartPole-v1", *words.split()]) == 2
    assert "did you mean" not in capsys.readouterr().err


def test_a_missing_algorithm_is_not_replaced_by_a_similar_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "Pendulum-v1", "--algo", "sacc", "--lr", "1e-3"]) == 2
    shown = capsys.readouterr().err
    assert "unknown algorithm 'sacc'; name your own as path/file.py:Config. SRL has\n  ppo     most tasks" in shown
    assert all(f"\n  {name} " in shown for name in BUILT_IN)


@pytest.mark.parametrize(
    ("written", "meant"), [("SAC", "sac"), ("TD3", "td3"), ("td3-bc", "td3bc"), ("Ape-X", "apex"), ("PPO", "ppo")]
)
def test_an_algorithm_in_another_spelling_is_suggested(
    written: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "Pendulum-v1", "--algo", written]) == 2
    error = capsys.readouterr().err
    assert error == f"srl: unknown algorithm {written!r}; did you mean {meant!r}? (see `srl train --help-all`)\n"
    with pytest.raises(ValueError, match=f"did you mean {meant!r}"):
        make_options(algo=written)


def test_the_reference_to_the_help_follows_a_list_on_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "Pendulum-v1", "--algo", "sacc"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "See `srl train --help-all`."


def test_errors_refer_to_a_help_that_shows_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    for command, flag in (("train", "--keep-every"), ("check-algo", "--algo.epochs"), ("logs", "--root")):
        assert main([command, "E", flag]) == 2
        (written,) = re.findall(r"see `srl (.*)`", capsys.readouterr().err)
        assert main(written.split()) == 0
        assert f"  {flag} " in capsys.readouterr().out


def test_an_unknown_command_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian", "CartPole-v1"]) == 2
    assert "no command 'trian'; did you mean 'train'?" in capsys.readouterr().err


def test_python_accepts_the_same_names() -> None:
    options = make_options(total_timesteps=1e5, lr=1e-3, num_workers=2, gamma=0.9)
    assert options == make_options(steps=100_000, algorithm={"learning_rate": 1e-3, "gamma": 0.9}, actors=2)
    for door in ("ppo", "algo", "algorithm"):
        assert make_options(**{door: {"lr": 1e-3}}).algorithm == srl.PPOConfig(learning_rate=1e-3)
    for twice in ({"lr": 1e-3, "ppo": {"learning_rate": 1e-3}}, {"steps": 5, "run": {"steps": 6}}):
        with pytest.raises(ValueError, match="set the same option"):
            make_options(**twice)
    with pytest.raises(ValueError, match="no option 'output_dir': set `root`"):
        make_options(output_dir="x")
    with pytest.raises(ValueError, match="lanes must be an integer, found 'abc'"):
        make_options(lanes="abc")
    with pytest.raises(ValueError, match="`lanes` x `ring` x `actors`"):
        make_options(num_envs=8)
    with pytest.raises(ValueError, match="an actor has `lanes` x `ring` copies"):
        make_options(num_envs_per_worker=8)
    with pytest.raises(ValueError, match="steps must be an integer, found 'many'"):
        make_options(steps="many")


def test_tables_of_names_agree_with_the_options() -> None:
    options = [set(vars(kind())) for kind in BUILT_IN.values()]
    fields = set().union(*options)
    arguments = {"env", "name", "root", "env_arg", "algo"}
    assert not fields & SECTION_OF.keys(), "an algorithm's option must be distinct from an option of the run"
    assert set(SAME.values()) <= fields | SECTION_OF.keys() | arguments
    assert not SAME.keys() & (fields | SECTION_OF.keys() | ADVICE.keys())
    assert not ADVICE.keys() & (set.intersection(*options) | SECTION_OF.keys())
