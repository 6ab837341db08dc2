"""Commands about an existing run: wrong checkpoints, and options that a resumed run cannot change."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from support.trained_runs import untrained

import srl
from srl.cli.main import COMMANDS, main


@pytest.mark.parametrize(
    ("checkpoint", "text"),
    [
        ("bset", "no checkpoint 'bset'; did you mean 'best'? Use latest, best, a name, a number of steps, or a path"),
        ("xyzzy", "no checkpoint 'xyzzy'. Use latest, best, a name, a number of steps, or a path"),
    ],
)
def test_an_unknown_checkpoint_is_refused_with_the_choices(
    checkpoint: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = untrained(tmp_path, "CartPole-v1")
    assert main(["eval", str(run.path), "--checkpoint", checkpoint]) == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--recipe none", "recipe cannot change in a resumed run: the run keeps the values of its recipe"),
        ("--scale 2", "set batch instead"),
        ("--frame-skip 4", "action_repeat cannot change in a resumed run: the run continues with its environment"),
    ],
)
def test_a_resumed_run_refuses_options_without_effect(
    words: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = untrained(tmp_path, "CartPole-v1")
    assert main(["resume", str(run.path), "--steps", "512", *words.split()]) == 2
    assert text in capsys.readouterr().err


def test_a_run_and_its_policy_describe_themselves(tmp_path: Path) -> None:
    sizes = {"steps": 64, "lanes": 2, "horizon": 16}
    run = srl.train("CartPole-v1", config=sizes, scheduler="inline", root=tmp_path, name="mine", sinks=[])
    assert repr(run).startswith(f"<Run '{tmp_path}/mine': finished, {run.status.steps} steps")
    assert repr(srl.load(run.path)).startswith(f"<TrainedPolicy of step {run.status.steps}: Box(")


@dataclass(frozen=True)
class FailsToClose:
    """A command that is interrupted and then fails to close what it had opened."""

    def run(self) -> int:
        try:
            raise KeyboardInterrupt
        finally:
            raise OSError(9, "Bad file descriptor")


def test_an_error_while_an_interrupt_ends_a_command_is_shown_and_the_exit_code_is_that_of_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(COMMANDS, "fail", f"{__name__}:FailsToClose")
    assert main(["fail"]) == 130
    assert "Bad file descriptor" in capfd.readouterr().err
