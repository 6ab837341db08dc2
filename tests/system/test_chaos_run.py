"""`srl chaos` on a running job: it recovers from all faults, and no update in its journal is lost or repeated."""

import signal

import pytest
from support.terminals import SLEEPY, Terminal

RUN = (*SLEEPY, "--actors", "2", "--steps", "1000000000", "--inference", "remote", "--journal")


def test_a_run_recovers_from_faults_and_its_invariants_hold(terminal: Terminal) -> None:
    command = terminal.train(*RUN, "--checkpoint-seconds", "0.5")
    command.wait_for_steps(500)
    nonsense = terminal.call("chaos", "run", "--faults", "floods")
    assert nonsense.code == 2
    assert "choose from kill, stop, slow, partition, slow-link, freeze-host, freeze-zygote, flood" in nonsense.err
    chaos = terminal.run(
        *("chaos", "run", "--faults", "kill,slow,partition,slow-link,flood,freeze-host,full-disk,corrupt-checkpoint"),
        *("--every", "0.7", "--count", "8", "--seconds", "0.5"),
    )
    assert chaos.code == 0, chaos.text
    assert "all invariants hold" in chaos.out
    assert "updates, checked" in chaos.out
    assert {"full-disk", "corrupt-checkpoint"} <= set(chaos.out.split())
    assert "skipping freeze-host: it needs a run with agents (--scheduler hosts)" in chaos.out
    command.signal(signal.SIGINT)
    ended = command.end()
    assert ended.code == 130
    assert "the disk is full" in ended.text


@pytest.mark.slow
def test_a_run_over_hosts_recovers_from_faults_of_its_hosts(terminal: Terminal) -> None:
    needs = ("--resources", "trainers=cpu:0.2", "policies=cpu:0.2", "actors=cpu:0.2")
    command = terminal.train_over_hosts(*RUN, *needs)
    command.wait_for_steps(500)
    for faults, count in (("freeze-zygote", "1"), ("freeze-host,slow-link,flood", "4")):
        plan = ("--faults", faults, "--count", count, "--every", "1", "--seconds", "6")
        chaos = terminal.run("chaos", "run", *plan, "--patience", "150")  # a new zygote imports torch
        assert chaos.code == 0, chaos.text
    command.signal(signal.SIGINT)
    ended = command.end()
    assert ended.code == 130
    assert ": the zygote, from which workers are forked, does not answer; it is replaced" in ended.text


@pytest.mark.slow
def test_a_stopped_process_is_detected_long_before_a_step_counts_as_hung(terminal: Terminal) -> None:
    command = terminal.train(*RUN)
    command.wait_for_steps(500)
    chaos = terminal.run("chaos", "run", "--faults", "stop", "--every", "2", "--count", "3", "--patience", "40")
    assert chaos.code == 0, chaos.text  # a step may take 60 s
    command.signal(signal.SIGINT)
    assert command.end().code == 130
