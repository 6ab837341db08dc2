"""The trial behind `srl train --dry-run`, sizes that do not fit in memory, and endless episodes."""

from __future__ import annotations

from pathlib import Path

import pytest

import srl
from srl.api.status import RunStatus, WorkerStatus
from srl.cli.main import main
from srl.experiments.session import session, trial
from srl.terminal.report import final_report


def test_a_dry_run_prints_options_and_estimates_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(trial, "MEASURED_SECONDS", 0.1)
    words = "train CartPole-v1 --scheduler inline --lanes 8 --horizon 8 --batch 64 --steps 1e9 --dry-run"
    assert main(words.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("steps = 1000000000 ") for line in lines)
    start = lines.index("# Estimate:")
    speed, time, memory = (line.split() for line in lines[start + 1 : start + 4])
    assert (speed[1], speed[2][-2:], speed[3:]) == ("speed", "/s", ["(trained)"])
    assert (time[1], *time[-2:]) == ("time", "1,000,000,000", "steps")
    assert (memory[1], *memory[-3:]) == ("memory", "in", "1", "process")
    assert int(memory[2].replace(",", "")) > 10
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_measures_gradient_steps_and_the_size_of_the_replay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The trial would end before the warm-up if it were as long as in the run."""
    monkeypatch.setattr(trial, "MEASURED_SECONDS", 0.1)
    words = "train CartPole-v1 --algo dqn --recipe none --algo.hidden-sizes 16 --scheduler inline --dry-run"
    words += " --algo.learning-starts 1000000 --algo.replay-size 1000000 --steps 1e9"
    assert main(words.split()) == 0
    out = capsys.readouterr().out
    lines = out[out.index("# Estimate:") :].splitlines()
    speed, replay = lines[1].split(), lines[4].split()
    assert speed[3:] == ["(trained)"]
    assert "learning_starts = 1000000" in out
    assert (replay[1], replay[3:]) == ("replay", ["MB", "in", "addition", "when", "it", "is", "full"])
    assert int(replay[2].replace(",", "")) >= 16  # four float32 per observation


def test_a_dry_run_whose_workers_do_not_start_ends_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trial, "START_SECONDS", 0.0)
    assert main(["train", "CartPole-v1", "--actors", "1", "--lanes", "8", "--dry-run"]) == 0
    assert "# none: the workers had not started after" in capsys.readouterr().out


def test_a_dry_run_without_a_decision_says_what_the_run_was_doing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    doing = "first update: the trainer makes 320,000 gradient steps"
    found = trial.TrialResult(0.0, 0, 300.0, 3, 20.0, doing)
    monkeypatch.setattr(trial, "trial", lambda prepared: found)
    assert main(["train", "CartPole-v1", "--dry-run"]) == 0
    assert f"# speed   0/s (nothing was measured in 20.0 s; {doing})" in capsys.readouterr().out
    measure, worker = trial._Measurement(), WorkerStatus("trainers/0", "trainers", state="running")
    status = RunStatus("trial", "CartPole-v1", "dqn", "/r", "running", bottleneck=doing, workers=[worker])
    measure(status)
    assert (measure.result.activity, measure.result.speed) == (doing, 0.0)


def test_samples_that_do_not_fit_in_memory_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "CartPole-v1", "--lanes", "200000000"]) == 2
    shown = capsys.readouterr().err
    assert "x 200,000,000 lanes x 32 steps need" in shown
    assert "GiB of memory for samples; this machine has" in shown


def test_a_run_in_which_no_episode_ends_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "ENDLESS_STEPS", 20)
    run = srl.train(
        "srl.testing.environments:Tracer",
        env_args={"length": 10**6},
        config={"steps": 400, "lanes": 2, "horizon": 16, "batch": 32},
        scheduler="inline",
        root=tmp_path,
        sinks=[],
    )
    assert [text for text in run.status.messages if "no episode has ended" in text]
    assert " return        none: no episode has ended\n" in final_report(run.status).plain
