"""Runs on Slurm, whose commands a script fakes. test_engines.py has tests with a real Slurm."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import psutil
import pytest
from support import fake_slurm
from support.terminals import Terminal, wait_for

from srl.cli.main import main
from srl.storage import checkpoints
from srl.storage.run_ownership import newest
from srl.transports.join_ticket import read_ticket

SMALL = ("--lanes", "8", "--horizon", "16", "--hosts", "2", "--actors", "3", "--checkpoint-seconds", "1")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fake_slurm.install(tmp_path / "slurm")
    monkeypatch.setenv("PATH", f"{tmp_path / 'slurm'}:{os.environ['PATH']}")
    return tmp_path / "slurm"


@pytest.mark.slow
def test_a_job_is_scaled_restarted_after_a_power_failure_and_stopped(terminal: Terminal, engine: Path) -> None:
    root = ("--root", str(terminal.root))
    submitted = terminal.run("submit", "CartPole-v1", *root, "--name", "run", "--steps", "1000000000", *SMALL)
    assert "run is job 7" in submitted.out, submitted.text

    def status() -> str:
        return terminal.run("ps", *root).out

    wait_for(lambda: "trainers/0" in (text := status()) and "running" in text and "n1" in text, "workers on both nodes")
    run = terminal.root / "run"
    secret = read_ticket(run / "cluster" / "join").proof
    assert (run / "cluster" / "controller.pem").stat().st_mode & 0o777 == 0o600
    for process in terminal.processes():
        for what in ("cmdline", "environ"):
            content = Path(f"/proc/{process.pid}/{what}").read_bytes()
            assert secret not in content
            assert base64.b64encode(secret) not in content
    refused = terminal.run("scale", "run", "actors=+9", *root)
    assert refused.code == 2
    assert "no host has room for" in refused.err
    assert "actors: 3 -> 2" in terminal.run("scale", "run", "actors=2", *root).out
    wait_for(lambda: checkpoints.latest(run / "checkpoints"), "a checkpoint")

    terminal.run_program("scancel", "7")  # the power fails; then Slurm starts the job again
    before = checkpoints.latest(run / "checkpoints")
    assert before is not None
    terminal.run_program("sbatch", "--parsable", str(run / "cluster" / "job.sh"))
    wait_for(lambda: checkpoints.latest(run / "checkpoints") != before, "another checkpoint")
    newest = checkpoints.latest(run / "checkpoints")
    assert newest is not None
    assert (
        checkpoints.read(newest)[1]["policies"]["policy"]["version"]
        > checkpoints.read(before)[1]["policies"]["policy"]["version"]
    )
    again = terminal.run("resume", "run", *root)
    assert again.code == 2
    assert "running as a job" in again.err

    stopped = terminal.run("stop", "run", *root)
    assert (stopped.code, stopped.out) == (0, "run has stopped\n"), stopped.text
    wait_for(lambda: (run / "cluster" / "outcome.json").exists(), "the end of the job")
    assert not (run / "cluster" / "join").exists()
    assert not (run / "cluster" / "controller.pem").exists()
    shown = terminal.run("logs", "run", *root).out
    assert "slurm: host n1 joined" in shown
    assert "agent-n1: n1 joined run" in shown
    assert "no log for worker 'actor'" in terminal.run("logs", "run", "actor", *root).err


@pytest.mark.slow
def test_a_requeued_job_continues_from_its_checkpoint(terminal: Terminal, engine: Path) -> None:
    """Preemption, or `scontrol requeue`: SIGTERM without the notice of a time limit."""
    root = ("--root", str(terminal.root))
    shape = ("--hosts", "1", "--actors", "1", "--lanes", "8", "--horizon", "16", "--checkpoint-seconds", "1")
    terminal.run("submit", "CartPole-v1", *root, "--name", "run", "--steps", "1000000000", *shape)
    run = terminal.root / "run"
    wait_for(lambda: checkpoints.latest(run / "checkpoints"), "a checkpoint")
    first = newest(run)[0]
    wait_for(lambda: "trainers/0" in terminal.run("ps", *root).out, "an answer of the run")
    assert terminal.run_program("scontrol", "requeue", "7").code == 0
    wait_for(lambda: newest(run)[0] != first, "a second attempt")
    assert not (run / "cluster" / "outcome.json").exists()
    before = checkpoints.latest(run / "checkpoints")
    wait_for(lambda: checkpoints.latest(run / "checkpoints") != before, "another checkpoint")
    wait_for(lambda: "trainers/0" in terminal.run("ps", *root).out, "an answer of the second attempt")
    assert terminal.run("stop", "run", *root).code == 0
    wait_for(lambda: (run / "cluster" / "outcome.json").exists(), "the end of the job")
    assert not (run / "cluster" / "join").exists()
    assert not (run / "cluster" / "controller.pem").exists()
    assert "SIGTERM: the run resumes from its checkpoint" in (run / "logs" / "slurm.log").read_text()


@pytest.mark.slow
def test_a_requeued_job_continues_from_its_newest_undamaged_checkpoint(terminal: Terminal, engine: Path) -> None:
    root = ("--root", str(terminal.root))
    shape = ("--hosts", "1", "--actors", "1", "--lanes", "8", "--horizon", "16", "--checkpoint-seconds", "1")
    terminal.run("submit", "CartPole-v1", *root, "--name", "run", "--steps", "1000000000", *shape)
    run = terminal.root / "run"
    wait_for(lambda: len(checkpoints.checkpoints(run / "checkpoints")) >= 3, "three checkpoints")
    terminal.run_program("scancel", "7")  # the power fails
    *_, whole, damaged = checkpoints.checkpoints(run / "checkpoints")
    arrays = damaged / "arrays.safetensors"
    content = bytearray(arrays.read_bytes())
    content[len(content) // 2] ^= 1
    arrays.write_bytes(content)
    steps = int(whole.name.rpartition("-")[2])

    assert terminal.run_program("sbatch", "--parsable", str(run / "cluster" / "job.sh")).code == 0
    wait_for(lambda: f'"from step {steps:,}"' in (run / "system.jsonl").read_text(), "a resume from the one before")
    wait_for(lambda: checkpoints.checkpoints(run / "checkpoints")[-1] not in (whole, damaged), "another checkpoint")
    assert terminal.run("stop", "run", *root).code == 0
    wait_for(lambda: (run / "cluster" / "outcome.json").exists(), "the end of the job")
    assert damaged.name in (run / "logs" / "slurm.log").read_text()


NOTING = """
import srl

class Noting(srl.Callback):
    def on_update(self, record):
        self.run.log(noted=record["update"])

    def on_end(self, report):
        (self.run.path / "noted").write_text(f"{report.state} {self.run.steps}")
"""


def test_train_on_slurm_waits_for_the_end_of_the_job_which_makes_its_callbacks(
    terminal: Terminal, engine: Path, tmp_path: Path
) -> None:
    (tmp_path / "noting.py").write_text(NOTING)
    sizes = (*SMALL, "--hosts", "1", "--actors", "1")  # tests that take longer have two hosts
    named = ("--callbacks", f"{tmp_path}/noting.py:Noting", "--name", "run")
    ended = terminal.train("CartPole-v1", *sizes, *named, "--scheduler", "slurm", "--steps", "3000").end()
    assert ended.code == 0, ended.text
    assert "finished" in ended.out
    run = terminal.root / "run"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [row["step"] for row in rows if row["kind"] == "update"]
    assert (run / "noted").read_text() == f"finished {steps[-1]}"
    assert [row["noted"] for row in rows if "noted" in row] == [*range(1, len(steps) + 1)]


def test_a_waiting_job_is_listed_stopped_and_not_submitted_twice(
    terminal: Terminal, engine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(terminal.runtime))
    root = ("--root", str(terminal.root))
    (engine / "full").write_text("Resources")
    assert main(["submit", "CartPole-v1", *root, "--name", "run", *SMALL]) == 0
    assert "run is job 7, pending (Resources); see it with" in capsys.readouterr().out
    assert main(["ps", *root]) == 0
    assert "queued (Resources)" in capsys.readouterr().out
    assert main(["ps", "--json", *root]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["run"], status["state"], status["reason"]) == ("run", "queued", "Resources")
    for scheduler in ("slurm", "processes"):
        assert main(["resume", "run", *root, "--scheduler", scheduler]) == 2
        assert "run is job 7 of Slurm, pending (Resources); stop it with `srl stop run`" in capsys.readouterr().err
    assert main(["stop", "ru", *root]) == 0
    assert capsys.readouterr().out == "run has stopped: its job 7, pending (Resources), was canceled\n"
    assert not (engine / "waiting").exists()
    assert main(["ps", "--all", *root]) == 0
    assert "stopped" in capsys.readouterr().out
    assert main(["stop", "run", *root]) == 2
    assert "no run in progress is called 'run'" in capsys.readouterr().err


def test_a_job_that_can_never_start_is_canceled(
    terminal: Terminal, engine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (engine / "full").write_text("BadConstraints")
    assert main(["submit", "CartPole-v1", "--root", str(terminal.root), "--name", "run", *SMALL]) == 1
    assert "job 7: pending (BadConstraints): it can never start" in capsys.readouterr().err
    assert not (engine / "waiting").exists()
    assert not (terminal.root / "run").exists()


def test_errors_are_reported_before_anything_is_submitted(terminal: Terminal, engine: Path) -> None:
    train = ("train", "CartPole-v1", "--root", str(terminal.root), "--name", "run", "--scheduler", "slurm")
    wrong = terminal.call(*train, *SMALL, "--partition", "mian")
    assert wrong.code == 2
    assert "no partition 'mian'; did you mean 'main'" in wrong.err
    assert not (terminal.root / "run").exists()
    script = terminal.call("submit", "CartPole-v1", *SMALL, "--dry-run").out
    assert "#SBATCH --nodes=2\n" in script
    assert "srl.experiments.session.slurm_job" in script
    assert not (engine / "pid").exists()


@pytest.mark.slow
def test_the_jobs_of_a_killed_sweep_continue_and_are_followed_again(terminal: Terminal, engine: Path) -> None:
    root = ("--root", str(terminal.root))
    words = ["sweep", "CartPole-v1", *root, "--name", "mine", "--seeds", "2", "--steps", "1000000000"]
    words += ["--scheduler", "slurm", "--lanes", "8", "--horizon", "16"]
    sweep = terminal.start(*words)
    runs = [terminal.root / "mine" / f"mine-{seed}" for seed in range(2)]
    wait_for(lambda: all((run / "metrics.jsonl").exists() for run in runs), "both jobs train at the same time")
    sweep.process.kill()
    sweep.process.communicate()
    jobs = [(run / "cluster" / "job").read_text() for run in runs]
    assert sorted(jobs) == ["7", "8"]
    again = terminal.start(*words)
    processes = psutil.Process(again.process.pid)
    wait_for(lambda: len(processes.children(recursive=True)) == 3, "a server and a process for each job")
    for run in runs:
        stopped = terminal.run("stop", run.name, *root)
        assert (stopped.code, stopped.out) == (0, f"{run.name} has stopped\n"), stopped.text
    ended = again.end()
    assert ended.code == 130, ended.text
    assert [(run / "cluster" / "job").read_text() for run in runs] == jobs, "no job was submitted again"
    assert [json.loads((run / "status.json").read_bytes())["state"] for run in runs] == ["stopped", "stopped"]
