"""Bad input: one clear message, the right exit code, no leftovers."""

import os
import re
import resource
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from support import faulty_environments
from support.terminals import GENTLE, Ended, Terminal, wait_for

import srl
from srl.cli.main import main
from srl.experiments.graph.child_process import may_fork
from srl.experiments.session.run import RunFailed
from srl.storage import checkpoints, update_journal
from srl.storage.run_directory import RunDirectory, create

BROKEN = faulty_environments.__file__
FAULTY = "support.faulty_environments:Faulty"
SMALL = ("--lanes", "4", "--horizon", "16", "--actors", "1", "--recipe", "none", "--ppo.num-minibatches", "1")


def refused(ended: Ended, *texts: str, code: int = 2) -> None:
    """Check the exit code and that the error contains the texts and no traceback."""
    assert ended.code == code, ended.text
    assert "Traceback" not in ended.text, ended.text
    for text in texts:
        assert text in ended.err, ended.text


def call(capfd: pytest.CaptureFixture[str], *arguments: str) -> Ended:
    """Run a command in this process, which is faster than a new one."""
    capfd.readouterr()
    try:
        code = main(list(arguments))
    except SystemExit as left:  # options that do not exist
        code = int(left.code or 0)
    return Ended(code, *capfd.readouterr())


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (["CartPol-v1"], ["no environment 'CartPol-v1'", "did you mean CartPole-v1"]),
        (["no_such_module:make"], ["no module 'no_such_module'"]),
        ([f"{BROKEN}:mak"], ["has no 'mak'", "'make'"]),
        ([f"{BROKEN}:unsupported"], ["Graph", "Discrete"]),
        (["CartPole-v1", "--env-arg", "gravty=1"], ["gravty"]),
        (["CartPole-v1", "--env-arg", "gravity"], ["NAME=VALUE"]),
        (["CartPole-v1", "--actors", "0"], ["actors must be at least 1"]),
        (["CartPole-v1", "--batch", "1000"], ["the nearest is --batch"]),
        (["CartPole-v1", "--algo", "ppoo"], ["ppo"]),
        (["CartPole-v1", "--learning-rate", "-1"], ["learning_rate"]),
        (["CartPole-v1", "--lanse", "1"], ["--lanes"]),
        (["CartPole-v1", "--name", "a/b"], ["cannot name a run"]),
        (["CartPole-v1", "--roles", "seeker=x"], ["agent", "seeker"]),
        (["support.faulty_environments:Faulty", "--env-arg", "fault=exit"], ["exited with code 3"]),
        (["support.faulty_environments:Faulty", "--env-arg", "fault=hang", "--hang-timeout", "1"], ["within 5 s"]),
        (["support.faulty_environments:Faulty", "--env-arg", "fault=raise_in_reset"], ["failed on purpose", "seed"]),
    ],
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, list) else "",
)
def test_bad_input_is_refused_before_anything_is_created(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], texts: list[str]
) -> None:
    wait_for(may_fork, lambda: f"the end of earlier tests' threads {threading.enumerate()}: the probe needs a fork")
    ended = call(capfd, "train", *arguments, "--root", str(tmp_path / "runs"))
    assert ended.code == 2, ended
    for text in texts:
        assert text in ended.err, ended.err
    assert "Traceback" not in ended.err or "fault=raise_in_reset" in arguments  # the environment's own
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param(["CartPol-v1"], "did you mean CartPole-v1", marks=pytest.mark.slow),
        (["support.faulty_environments:Faulty", "--env-arg", "fault=segfault"], "killed by SIGSEGV"),
    ],
    ids=["misspelled", "segfault"],
)
def test_the_error_of_a_command_is_one_line(terminal: Terminal, arguments: list[str], text: str) -> None:
    ended = terminal.run("train", *arguments)
    refused(ended, text)
    assert ended.out == ""
    assert len(ended.err.splitlines()) == 1


def test_a_broken_environment_is_counted_and_restarted_alone(terminal: Terminal, tmp_path: Path) -> None:
    arguments = ("--env-arg", "fault=raise nan shape", "--env-arg", f"once={tmp_path}", "--steps", "2000")
    ended = terminal.train(f"{BROKEN}:make", *SMALL, *arguments).end()
    assert ended.code == 0, ended.text
    assert "0 worker restarts, 3 failed lanes" in ended.out, ended.out
    for text in ("the simulator lost its mind", "not finite", "shape (4,)"):
        assert text in ended.out, ended.out


def test_an_environment_that_hangs_or_ends_its_process_costs_a_restart(terminal: Terminal, tmp_path: Path) -> None:
    faults = ["hang", "exit", "system_exit", "segfault"]
    arguments = ("--env-arg", f"fault={' '.join(faults)}", "--env-arg", f"once={tmp_path}", "--hang-timeout", "3")
    ended = terminal.train(f"{BROKEN}:make", *SMALL, *arguments, "--steps", "2000").end()
    assert ended.code == 0, ended.text
    assert f"{len(faults)} worker restarts, 0 failed lanes" in ended.out, ended.out
    for text in ("stuck in phase env", "exited with code 0", "exited with code 1", "SIGSEGV"):
        assert text in ended.out, ended.out


def test_an_environment_that_always_breaks_ends_the_run_with_a_report(terminal: Terminal) -> None:
    ended = terminal.train(f"{BROKEN}:make", *SMALL, "--env-arg", "fault=raise").end()
    assert ended.code == 1, ended.text
    for text in ("environments failed 11 times", "seed", "step", "Traceback", "the simulator lost its mind", "logs"):
        assert text in ended.err, ended.err
    saved = checkpoints.checkpoints(terminal.root / "run" / "checkpoints")
    assert not saved[1:]
    assert ": failed" in ended.out
    assert re.search("error         environments failed 11 times .* the simulator lost its mind\n", ended.out), (
        ended.out
    )
    assert "srl logs runs/run\n" in ended.out
    assert ("srl resume runs/run\n" in ended.out) == (" in 0 updates" not in ended.out)


def test_an_environment_that_always_kills_its_actor_ends_the_run(terminal: Terminal) -> None:
    ended = terminal.train(f"{BROKEN}:make", *SMALL, "--env-arg", "fault=segfault", "--env-arg", "after=5").end()
    assert ended.code == 1, ended.text
    assert "SIGSEGV" in ended.err
    assert "another restart would not help" in ended.err
    assert "error         actors/0 died" in ended.out
    assert "srl resume" not in ended.text  # it has learned nothing
    run = RunDirectory(terminal.root / "run")
    assert run.ended_without_update
    assert not list(create(terminal.root, "run").logs.iterdir())  # the name is free


def test_a_port_in_use_is_named_and_no_run_directory_stays(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        options = ("--scheduler", "hosts", "--bind", address)
        root = ("--root", str(tmp_path / "runs"))
        ended = call(capfd, "train", *GENTLE, *options, *root, "--name", "mine")
    port = address.rpartition(":")[2]
    refused(ended, f"port {port} of 127.0.0.1 is in use; choose another")
    assert not list((tmp_path / "runs").iterdir())
    refused(call(capfd, "resume", "latest", *root), "no runs")


OWN = """
from srl.testing.environments import Tracer
OPTIONS = {}

def make(width=3):
    return Tracer(OPTIONS["length"])

def graph(experiment):
    return experiment.grops
"""


@pytest.mark.parametrize(
    ("arguments", "line", "frame"),
    [
        (["{own}:make"], "could not be created: KeyError('length')", "in make"),
        (["CartPole-v1", "--graph", "{own}:graph"], "no attribute 'grops'", "in graph"),
        (["{broken}:make"], "ZeroDivisionError: division by zero", "in <module>"),
    ],
    ids=["environment", "graph", "module"],
)
def test_an_error_in_user_code_is_shown_with_the_traceback_of_that_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], line: str, frame: str
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    names = {"own": f"{tmp_path}/own.py", "broken": f"{tmp_path}/broken.py"}
    ended = call(capfd, "train", *(word.format(**names) for word in arguments), "--root", str(tmp_path / "runs"))
    assert ended.code == 2, ended
    first, second, *_, last = ended.err.splitlines()
    assert first == "Traceback (most recent call last):", ended.err
    assert str(tmp_path) in second
    assert second.endswith(frame)
    assert last.startswith("srl: ")
    assert line in last
    assert not (tmp_path / "runs").exists()


def test_a_config_of_another_program_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sb3").mkdir()
    (tmp_path / "sb3" / "config.json").write_text('{"environment": "CartPole-v1", "policy": "MlpPolicy"}')
    for command in ("resume", "eval"):
        ended = call(capfd, command, str(tmp_path / "sb3"))
        refused(ended, f"{tmp_path}/sb3/config.json was not written by a run of SRL", "it has no 'lanes'")
        assert len(ended.err.splitlines()) == 1
    monkeypatch.setenv("SRL_DEBUG", "1")
    ended = call(capfd, "resume", str(tmp_path / "sb3"))
    assert ended.err.startswith("Traceback")
    assert "in read_config" in ended.err
    assert ended.err.splitlines()[-1].startswith("srl: ")


def test_a_run_directory_that_exists_is_left_alone(terminal: Terminal) -> None:
    (terminal.root / "run").mkdir(parents=True)
    (terminal.root / "run" / "mine.txt").write_text("mine")
    refused(terminal.call("train", "CartPole-v1", "--root", str(terminal.root), "--name", "run"), "exists", "--name")
    assert [path.name for path in (terminal.root / "run").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("command", ["eval", "resume"])
def test_a_run_that_does_not_exist_is_named(terminal: Terminal, command: str) -> None:
    (terminal.root / "runner").mkdir(parents=True)
    (terminal.root / "runner" / "config.json").write_text("{}")
    ended = terminal.call(command, "ruxner", "--root", str(terminal.root))
    refused(ended, "no run 'ruxner'", "runner")


def test_a_corrupt_checkpoint_is_named_and_the_last_good_one_used_or_offered(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = srl.train("CartPole-v1", steps=2000, root=tmp_path, name="run", scheduler="inline")
    srl.resume(run.path, steps=4000)
    root = str(tmp_path)
    good, newest = checkpoints.checkpoints(run.path / "checkpoints")[-2:]
    content = bytearray((newest / "arrays.safetensors").read_bytes())
    content[len(content) // 2] ^= 1
    (newest / "arrays.safetensors").write_bytes(content)
    refused(call(capfd, "eval", "run", "--root", root), str(newest), "corrupt", str(good), code=1)
    ended = call(capfd, "resume", "run", "--steps", "6000", "--root", root)
    assert ended.code == 0, ended.text
    assert f"checkpoint {newest.name} is damaged (arrays.safetensors is corrupt" in ended.text
    assert f"the run continues from {good.name}" in ended.text
    assert (good.parent / f"damaged-{newest.name}" / "arrays.safetensors").read_bytes() == content
    chosen = call(capfd, "resume", "run", "--steps", "8000", "--checkpoint", good.name, "--root", root)
    assert f"at step {checkpoints.step_of(good):,}" in chosen.text
    shutil.rmtree(good.parent)
    refused(call(capfd, "resume", "run", "--steps", "20000", "--root", root), "no checkpoint", code=1)
    refused(call(capfd, "eval", "run", "--root", root), "no checkpoint")


def test_insufficient_memory_is_an_error_with_the_amount_and_advice(terminal: Terminal) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))

    # 6.1 GiB fit in the memory of the machine, but not in what its processes may use.
    sizes = ("--actors", "1", "--lanes", "100000", "--horizon", "500")
    ended = terminal.train("CartPole-v1", *sizes, preexec_fn=limit).end()
    refused(ended, "fewer --lanes", "--horizon", code=1)
    assert "srl resume" not in ended.text
    assert re.search(r"\d (MB of shared memory|GiB for an array)", ended.err), ended.err


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_prevents_checkpoints_but_not_a_run_that_prints_and_keeps_a_journal(terminal: Terminal) -> None:
    terminal.root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", terminal.root], check=True)
    try:
        loud = ("support.faulty_environments:Loud", *GENTLE[1:], "--journal", "--log-mb", "1")
        command = terminal.train(*loud, "--steps", "1000000000", "--checkpoint-seconds", "0.5")
        folder = terminal.root / "run" / "checkpoints"
        wait_for(lambda: checkpoints.checkpoints(folder), "a first checkpoint")
        subprocess.run(["dd", "if=/dev/zero", f"of={terminal.root}/filler", "bs=4k"], capture_output=True, check=False)
        status = command.wait(lambda status: "disk is full" in str(status["messages"]), "a message")
        good = checkpoints.last_good(folder)
        assert good is not None
        command.wait_for_steps(status["steps"] + 500)
        held = command.wait(lambda status: "actors-0.log" in status["losses"], "output that cannot be stored")
        assert held["restarts"] == held["lane_failures"] == 0
        (terminal.root / "filler").unlink()
        command.wait(lambda status: "files can be written again" in str(status["messages"]), "a message")
        wait_for(lambda: checkpoints.last_good(folder) != good, "a checkpoint after the repair")
        subprocess.run(["dd", "if=/dev/zero", f"of={terminal.root}/filler", "bs=4k"], capture_output=True, check=False)
        command.wait(lambda status: status["messages"] and "disk is full" in status["messages"][-1], "a message")
        command.signal(2)
        ended = command.end()
        assert ended.code == 130, ended.text
        assert "Traceback" not in ended.text, ended.text
        assert "disk is full" in ended.text, ended.text
        assert checkpoints.last_good(folder) == checkpoints.latest(folder)
        assert "not recorded" in ended.text, ended.text
        assert update_journal.check(update_journal.read(folder.parent / "journal.jsonl"), max_lag=1) == []
    finally:
        subprocess.run(["umount", "-l", terminal.root], check=True)


def test_an_environment_that_always_fails_is_noticed_once_and_its_report_shows_only_its_own_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"steps": 1000, "lanes": 4, "horizon": 16, "scheduler": "inline", "sinks": ()}
    with pytest.raises(RunFailed, match="environments failed 11 times") as caught:
        srl.train(FAULTY, env_args={"after": 20, "length": 30}, root=tmp_path, verbose=True, **options)
    assert "in step\n" in str(caught.value)
    assert "adapters/gymnasium.py" not in str(caught.value)
    shown = capsys.readouterr().out
    assert shown.count("an environment failed and was restarted") == 1
    assert f" check env     srl check-env {FAULTY} --env-arg after=20 --env-arg length=30\n" in shown
