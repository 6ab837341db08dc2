"""`srl chaos` on a running job: it recovers from all faults, and no update in its journal is lost or repeated."""

import signal

import pytest
from support.terminals import SLEEPY, Terminal

RUN = (*SLEEPY, "--actors", "2", "--steps", "1000000000", "--inference", "remote", "--journal")


def test_a_run_recovers_from_faults_and_its_invariants_hold(terminal: Terminal) -> None:
    command = terminal.train(*RUN)
    command.wait_for_steps(500)
    nonsense = terminal.run("chaos", "run", "--faults", "flood")
    assert nonsense.code == 2
    assert "choose from kill, stop, slow, partition" in nonsense.err
    chaos = terminal.run(
        "chaos", "run", "--faults", "kill,slow,partition", *("--every", "0.7", "--count", "6"), *("--seconds", "0.5")
    )
    assert chaos.code == 0, chaos.text
    assert "all invariants hold" in chaos.out
    assert "updates, checked" in chaos.out
    command.signal(signal.SIGINT)
    assert command.end().code == 130


@pytest.mark.slow
def test_a_stopped_process_is_detected_long_before_a_step_counts_as_hung(terminal: Terminal) -> None:
    command = terminal.train(*RUN)
    command.wait_for_steps(500)
    chaos = terminal.run("chaos", "run", "--faults", "stop", "--every", "2", "--count", "3", "--patience", "40")
    assert chaos.code == 0, chaos.text  # a step may take 60 s
    command.signal(signal.SIGINT)
    assert command.end().code == 130
