"""Jobs of Slurm, which is simulated: attempts at a run, and states of the queue."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from srl.api.status import RunStatus
from srl.controller.control_socket import ADDRESS
from srl.experiments.session import slurm_job, slurm_submission
from srl.experiments.session.run import Run, RunFailed
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
    """Conduct an attempt whose run ends with this state and reason."""

    def conduct_on(run: RunDirectory, ownership: Any, site: Any, on_status: Any) -> Run:
        (run.path / "cluster" / ADDRESS).touch()
        meanwhile()
        return Run(run.path, state, reason, RunStatus("run", "", "", str(run.path)))

    monkeypatch.setattr(slurm_job, "conduct_on", conduct_on)
    return slurm_job.conduct(run.path)


def left(run: RunDirectory) -> set[str]:
    return {path.name for path in (run.path / "cluster").iterdir()}


def test_a_preempted_job_has_no_outcome_so_the_next_attempt_continues(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued: list[str] = []
    monkeypatch.setattr(slurm_job, "requeue", lambda: queued.append("again"))
    assert conduct(run, monkeypatch, "stopped", "SIGTERM", lambda: None) == 143
    assert left(run) == set()
    assert queued == []  # Slurm queues it again itself
    monkeypatch.setattr("os.kill", lambda pid, number: None)  # a real run would stop
    assert conduct(run, monkeypatch, "stopped", "SIGTERM", lambda: signal.raise_signal(signal.SIGUSR1)) == 0
    assert left(run) == set()
    assert queued == ["again"]


@pytest.mark.parametrize(("state", "reason", "code"), [("stopped", "srl stop", 1), ("finished", "3,000 steps", 0)])
def test_a_run_that_ended_leaves_only_its_outcome(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, state: str, reason: str, code: int
) -> None:
    outcome = run.path / "cluster" / "outcome.json"
    outcome.write_text("of an earlier attempt")
    before: list[bool] = []
    assert conduct(run, monkeypatch, state, reason, lambda: before.append(outcome.exists())) == code
    assert before == [False]
    assert left(run) == {"outcome.json"}


def follow(run: RunDirectory, monkeypatch: pytest.MonkeyPatch, states: list[Any]) -> list[str]:
    """Follow a job that has these states in Slurm, one after the other. Returns all messages."""
    shown: list[str] = []
    monkeypatch.setattr(slurm_submission, "FOLLOW_SECONDS", 0.0)
    monkeypatch.setattr(slurm_submission, "QUEUE_SECONDS", 0.0)
    monkeypatch.setattr(slurm_submission, "MAX_QUEUE_SECONDS", 0.0)  # however long this takes, each look asks Slurm
    monkeypatch.setattr(slurm_submission, "OUTCOME_SECONDS", 0.0)

    def job_state(job: str) -> tuple[str, str]:
        state = states.pop(0) if states else ("CANCELLED", "None")
        if isinstance(state, Exception):
            raise state
        return state

    monkeypatch.setattr(slurm, "job_state", job_state)
    with pytest.raises(RunFailed) as failed:
        slurm_submission.follow(run, "7", lambda status: shown.extend(status.messages))
    return [*shown, str(failed.value)]


def test_following_continues_while_slurm_does_not_respond_for_a_moment(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreachable = slurm.SlurmError("squeue: Unable to contact slurm controller")
    shown = follow(run, monkeypatch, [unreachable, ("RUNNING", "None"), unreachable, ("FAILED", "NonZeroExitCode")])
    assert shown[0] == "job 7: squeue: Unable to contact slurm controller"
    assert shown[1] == "job 7: running"
    assert "job 7: failed (NonZeroExitCode), before the run ended" in shown[-1]
    monkeypatch.setattr(slurm_submission, "MAX_SILENCE_SECONDS", -1.0)
    with pytest.raises(slurm.SlurmError, match="Unable to contact"):
        follow(run, monkeypatch, [unreachable])


@pytest.mark.parametrize("reason", ["PartitionTimeLimit", "BadConstraints", "QOSMaxWallDurationPerJobLimit"])
def test_a_job_that_can_never_start_is_reported_and_canceled(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    canceled: list[str] = []
    monkeypatch.setattr(slurm, "cancel", canceled.append)
    shown = follow(run, monkeypatch, [("PENDING", "Resources"), ("PENDING", "Priority"), ("PENDING", reason)])
    assert shown[:2] == ["job 7: pending (Resources)", "job 7: pending (Priority)"]
    assert f"job 7: pending ({reason}): it can never start" in shown[-1]
    assert canceled == ["7"]
    assert b'"failed"' in (run.path / "cluster" / "outcome.json").read_bytes()


def test_a_new_job_is_polled_until_slurm_has_considered_it(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_submission, "SUBMIT_POLL_SECONDS", 0.0)
    states = [("PENDING", "None"), ("PENDING", "Priority"), ("PENDING", "PartitionTimeLimit")]
    monkeypatch.setattr(slurm, "job_state", lambda job: states.pop(0) if states else ("", ""))
    canceled: list[str] = []
    monkeypatch.setattr(slurm, "cancel", canceled.append)
    assert slurm_submission.state_of_new_job(run, "7") == "pending (Priority)"
    assert canceled == []
    with pytest.raises(RunFailed, match=r"job 7: pending \(PartitionTimeLimit\): it can never start"):
        slurm_submission.state_of_new_job(run, "7")
    assert canceled == ["7"]

    def unreachable(job: str) -> tuple[str, str]:
        raise slurm.SlurmError("squeue: Unable to contact slurm controller")

    monkeypatch.setattr(slurm, "job_state", unreachable)
    assert slurm_submission.state_of_new_job(run, "7") == ""
