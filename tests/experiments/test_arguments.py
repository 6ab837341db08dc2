"""`--algo.x` on the command line means an option of the algorithm that was chosen."""

from __future__ import annotations

import pytest

from srl.cli.main import main
from srl.cli.words import chosen_algorithm, spell_out


@pytest.mark.parametrize(
    ("given", "spelled"),
    [
        ("train E --algo.gamma 0.5", "train E --ppo.gamma 0.5"),
        ("train E --algo.gamma=0.5 --algo impala", "train E --impala.gamma=0.5 --algo impala"),
        ("train E --algo=a2c --algo.no-normalize-observation", "train E --algo=a2c --a2c.no-normalize-observation"),
        (
            "train E --algo f.py:C --algo.step-size 3 --algo.x=a=b",
            "train E --algo f.py:C --algo-arg step_size=3 --algo-arg x=a=b",
        ),
        (
            "train E --algo f.py:C --algo.flag --algo.sizes 64 -3 --algo.x 1 E",
            "train E --algo f.py:C --algo-arg flag=true --algo-arg sizes=[64,-3] --algo-arg x=1 E",
        ),
        ("train E --ppo.gamma 0.5 --steps 5", "train E --ppo.gamma 0.5 --steps 5"),
        ("ps --json", "ps --json"),
    ],
)
def test_options_are_spelled_out(given: str, spelled: str) -> None:
    assert spell_out(given.split()) == spelled.split()


def test_the_last_algorithm_counts() -> None:
    assert chosen_algorithm([]) == "ppo"
    assert chosen_algorithm(["--algo", "a2c", "--algo=impala"]) == "impala"
    assert chosen_algorithm(["--algo"]) == "ppo"


def test_help_shows_the_options_of_the_chosen_algorithm_only(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--algo", "impala", "--help"])
    shown = capsys.readouterr().out
    assert "--impala.rho-clip" in shown
    assert "│ --ppo." not in shown  # among the options; an example may have one
    assert "--steps" in shown


def test_options_of_another_algorithm_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "CartPole-v1", "--algo", "impala", "--ppo.gamma", "0.5"]) == 2
    assert "option of ppo, but the algorithm is impala: --algo.gamma" in capsys.readouterr().err
