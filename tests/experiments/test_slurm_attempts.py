"""Attempts at a run on Slurm, which is played here, and what is made of the queue."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from srl.api.status import RunStatus
from srl.experiments.session import slurm_run, train
from srl.experiments.session.session import RunFailed
from srl.experiments.session.train import Run
from srl.schedulers.engines import slurm_commands as slurm
from srl.storage.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDirectory]:
    before = signal.getsignal(signal.SIGUSR1)
    (tmp_path / "run" / "cluster").mkdir(parents=True)
    (tmp_path / "run" / "logs").mkdir()
    yield RunDirectory(tmp_path / "run")
    signal.signal(signal.SIGUSR1, before)


def conduct(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, state: str, reason: str, meanwhile: Callable[[], None]
) -> int:
    """An attempt whose run ends so."""

    def conduct_on(run: RunDirectory, ground: Any, on_status: Any) -> Run:
        (run.path / "cluster" / "secret").touch()
        meanwhile()
        return Run(run.path, state, reason, RunStatus("run", "", "", str(run.path)))

    monkeypatch.setattr(train, "conduct_on", conduct_on)
    return slurm_run.conduct(run.path)


def left(run: RunDirectory) -> set[str]:
    return {path.name for path in (run.path / "cluster").iterdir()} - {"attempt"}


def test_a_job_that_slurm_takes_its_nodes_from_leaves_what_the_next_attempt_needs(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued: list[str] = []
    monkeypatch.setattr(slurm_run, "requeue", lambda: queued.append("again"))
    assert conduct(run, monkeypatch, "stopped", "SIGTERM", lambda: None) == 143
    assert left(run) == {"secret"}
    assert queued == []  # Slurm does so itself, if it wants to
    monkeypatch.setattr("os.kill", lambda pid, number: None)  # a real run hears it
    assert conduct(run, monkeypatch, "stopped", "SIGTERM", lambda: signal.raise_signal(signal.SIGUSR1)) == 0
    assert left(run) == {"secret"}
    assert queued == ["again"]


@pytest.mark.parametrize(("state", "reason", "code"), [("stopped", "srl stop", 1), ("finished", "3,000 steps", 0)])
def test_a_run_that_is_over_leaves_its_outcome_alone(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, state: str, reason: str, code: int
) -> None:
    outcome = run.path / "cluster" / "outcome.json"
    outcome.write_text("of an earlier attempt")
    before: list[bool] = []
    assert conduct(run, monkeypatch, state, reason, lambda: before.append(outcome.exists())) == code
    assert before == [False]
    assert left(run) == {"outcome.json"}


def follow(run: RunDirectory, monkeypatch: pytest.MonkeyPatch, states: list[Any]) -> list[str]:
    """Watch a job of which Slurm says this, one after the other; returns what was shown."""
    shown: list[str] = []
    monkeypatch.setattr(slurm_run, "FOLLOW_SECONDS", 0.0)
    monkeypatch.setattr(slurm_run, "QUEUE_SECONDS", 0.0)
    monkeypatch.setattr(slurm_run, "WORD_SECONDS", 0.0)

    def job_state(job: str) -> tuple[str, str]:
        state = states.pop(0) if states else ("CANCELLED", "None")
        if isinstance(state, Exception):
            raise state
        return state  # type: ignore[no-any-return]

    monkeypatch.setattr(slurm, "job_state", job_state)
    with pytest.raises(RunFailed) as failed:
        slurm_run.follow(run, "7", lambda status: shown.extend(status.messages))
    return [*shown, str(failed.value)]


def test_a_slurm_that_does_not_answer_for_a_moment_ends_nothing(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = slurm.SlurmError("squeue: Unable to contact slurm controller")
    shown = follow(run, monkeypatch, [silent, ("RUNNING", "None"), silent, ("FAILED", "NonZeroExitCode")])
    assert shown[0] == "job 7: squeue: Unable to contact slurm controller"
    assert shown[1] == "job 7: running"
    assert "job 7: failed (NonZeroExitCode), before the run was over" in shown[-1]
    monkeypatch.setattr(slurm_run, "SILENT_SECONDS", -1.0)
    with pytest.raises(slurm.SlurmError, match="Unable to contact"):
        follow(run, monkeypatch, [silent])


@pytest.mark.parametrize("reason", ["PartitionTimeLimit", "BadConstraints", "QOSMaxWallDurationPerJobLimit"])
def test_a_job_that_can_never_begin_is_said_at_once_and_taken_back(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    cancelled: list[str] = []
    monkeypatch.setattr(slurm, "cancel", cancelled.append)
    shown = follow(run, monkeypatch, [("PENDING", "Resources"), ("PENDING", "Priority"), ("PENDING", reason)])
    assert shown[:2] == ["job 7: pending (Resources)", "job 7: pending (Priority)"]
    assert f"job 7: pending ({reason}): this will never begin" in shown[-1]
    assert cancelled == ["7"]
    assert b'"failed"' in (run.path / "cluster" / "outcome.json").read_bytes()


def test_a_new_job_is_looked_at_until_slurm_has_done_so(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_run, "SUBMIT_LOOK_SECONDS", 0.0)
    states = [("PENDING", "None"), ("PENDING", "Priority"), ("PENDING", "PartitionTimeLimit")]
    monkeypatch.setattr(slurm, "job_state", lambda job: states.pop(0) if states else ("", ""))
    cancelled: list[str] = []
    monkeypatch.setattr(slurm, "cancel", cancelled.append)
    assert slurm_run.begun_or_waiting(run, "7") == "pending (Priority)"
    assert cancelled == []
    with pytest.raises(RunFailed, match=r"job 7: pending \(PartitionTimeLimit\): this will never begin"):
        slurm_run.begun_or_waiting(run, "7")
    assert cancelled == ["7"]

    def silent(job: str) -> tuple[str, str]:
        raise slurm.SlurmError("squeue: Unable to contact slurm controller")

    monkeypatch.setattr(slurm, "job_state", silent)
    assert slurm_run.begun_or_waiting(run, "7") == ""
