"""Violations of invariants, recovery from faults, and the report of `srl chaos`."""

import contextlib
import socket
from pathlib import Path

import numpy as np
import pytest

from srl.api.status import ReplayStatus, RunStatus, Settings, StreamStatus, WorkerStatus
from srl.api.transport import Message
from srl.checks import chaos, flood
from srl.checks.chaos import Chaos, ChaosPlan, ChaosReport, Fault, InvariantMonitor, describe
from srl.controller.control_socket import FaultRequest, ResultReply, StatusReply
from srl.storage import checkpoints
from srl.storage.run_directory import RunDirectory


def status(version: int = 5, incarnation: int = 0, progress: int = 9, cut: int = 0, **changes: object) -> RunStatus:
    worker = WorkerStatus(
        "actors/0", "actors", state="running", incarnation=incarnation, progress=progress, disturbed_connections=cut
    )
    fields = {"version": version, "steps": 100, "decisions": 200, "max_lag": 1, "workers": [worker], **changes}
    return RunStatus("run", "CartPole-v1", "PPO", "/runs/run", **fields)  # type: ignore[arg-type]


def replayed(size: int = 1000, reached: float | None = 0.5) -> RunStatus:
    memory = ReplayStatus("replay/0", size, 10_000, 1 << 20, wanted=0.5, reached=reached, decisions=1000)
    return status(replay=[memory], settings=Settings(batch=20))


def test_a_sound_run_has_no_violations() -> None:
    monitor = InvariantMonitor()
    for memory in (replayed(), replayed(reached=None), replayed(size=980, reached=0.47)):  # counts may be in flight
        monitor.check(memory)
    for version in (5, 5, 6):
        monitor.check(status(version, streams=[StreamStatus("samples/0", "push", posted=4, consumed=3, dropped=1)]))
    assert monitor.violations == []


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (status(4), "version went back from 5 to 4"),
        (status(steps=99), "steps went back"),
        (status(lag_max=2), "2 versions behind"),
        (status(steps=201), "201 decisions were trained on, but 200 were made"),
        (replayed(size=899), "replay/0 went back from 1000 decisions to 899"),
        (
            replayed(reached=0.46),
            "replay/0 has made 0.46 gradient steps per decision in 1000 decisions, 0.5 are wanted",
        ),
        (replayed(reached=0.54), "0.54 gradient steps"),
        (
            status(streams=[StreamStatus("samples/0", "push", posted=4, consumed=5)]),
            "delivered 5 blocks",
        ),
    ],
)
def test_a_violation_is_reported_once(after: RunStatus, message: str) -> None:
    monitor = InvariantMonitor()
    for seen in (replayed() if after.replay else status(), after, after):
        monitor.check(seen)
    assert len(monitor.violations) == 1
    assert message in monitor.violations[0]


def test_a_run_has_recovered_when_the_new_worker_works_and_an_update_follows() -> None:
    fault = Fault("kill", "actors/0", incarnation=0, at=10.0, seconds=0.0)
    for now, seen in ((10.5, status(6)), (11.0, status(7, 1, 0)), (11.5, status(8, 1, 3))):
        fault.update(seen, now)
        assert fault.recovery_seconds is None
    fault.update(status(9, 1, 4), 12.0)
    assert fault.recovery_seconds == 2.0


def test_a_run_has_recovered_from_a_corrupt_checkpoint_when_a_newer_one_is_sound(tmp_path: Path) -> None:
    folder = RunDirectory(tmp_path).checkpoints
    assert chaos._corrupt_newest(tmp_path) is None
    good = checkpoints.write(folder, 1, {"a": np.zeros(9)}, {})
    damaged = checkpoints.write(folder, 2, {"a": np.zeros(9)}, {})
    assert chaos._corrupt_newest(tmp_path) == damaged
    assert checkpoints.last_good(folder) == good
    fault = Fault(chaos.CORRUPT, "actors/0", incarnation=0, at=0.0, seconds=0.0, damaged=damaged)
    for now in range(10):
        fault.update(status(now, progress=now), now)
    assert not fault.settled
    checkpoints.write(folder, 3, {"a": np.zeros(9)}, {})
    for now in range(10, 14):
        fault.update(status(now, progress=now), now)
    assert fault.recovery_seconds == 12.0


def test_recovery_from_a_temporary_fault_starts_when_it_ends() -> None:
    fault = Fault("slow", "actors/0", incarnation=0, at=10.0, seconds=3.0)
    for now, version, progress in ((12.0, 6, 10), (13.0, 7, 11), (13.2, 8, 11), (13.4, 9, 12), (13.5, 10, 12)):
        assert fault.recovery_seconds is None
        fault.update(status(version, progress=progress), now)
    assert fault.recovery_seconds == 3.5
    report = ChaosReport([fault], [], 3, 100.0, 80.0, 0, "running")
    assert report.ok
    assert "(80%)" in describe(report)
    assert not ChaosReport([Fault("kill", "actors/0", 0, 0.0, 0.0)], [], 0, 0.0, 0.0, 0, "running").ok


@pytest.mark.parametrize("kind", ["slow", "partition"])
def test_a_worker_without_progress_after_a_temporary_fault_has_not_recovered(kind: str) -> None:
    fault = Fault(kind, "actors/0", incarnation=0, at=0.0, seconds=3.0)
    for now in range(60):  # others continue
        fault.update(status(now, progress=9, cut=1), float(now))
    assert not fault.settled
    fault.update(status(60, incarnation=1, progress=1), 60.0)  # it was replaced
    fault.update(status(61, incarnation=1, progress=2), 61.0)
    assert fault.recovery_seconds == 61.0


def test_a_partition_without_effect_is_reported_and_does_not_count() -> None:
    unaffected, affected = (
        Fault("partition", "actors/0", incarnation=0, at=0.0, seconds=1.0, disturbed_connections=2) for _ in range(2)
    )
    for now, progress in ((0.5, 9), (1.0, 10), (1.5, 11), (2.0, 12)):
        unaffected.update(status(int(now * 2), progress=progress, cut=2), now)
        affected.update(status(int(now * 2), progress=progress, cut=3), now)
    assert (unaffected.no_effect, unaffected.recovery_seconds, affected.no_effect, affected.recovery_seconds) == (
        True,
        None,
        False,
        2.0,
    )
    report = ChaosReport([unaffected, affected], [], 0, 0.0, 0.0, 0, "running")
    assert report.ok
    assert "1 faults had no effect and do not count: actors/0 had no TCP connections" in describe(report)
    assert "partition                2         1" in describe(report)
    alone = ChaosReport([unaffected], [], 0, 0.0, 0.0, 0, "running")
    assert not alone.ok
    assert "NO FAULT HAD AN EFFECT" in describe(alone)


class UnresponsiveRun:
    """A run that replaces killed workers and ignores every third request."""

    def __init__(self) -> None:
        self.asked = self.kills = 0

    def ask(self, message: Message) -> Message | None:
        self.asked += 1
        if self.asked % 3 == 0:
            return None
        if isinstance(message, FaultRequest):
            self.kills += 1
            return ResultReply(True, "")
        steps = 10 * self.asked
        return StatusReply(status(self.asked, self.kills, steps=steps, decisions=steps, return_mean=475.0))


def test_unanswered_requests_are_neither_an_end_nor_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos, "POLL_SECONDS", 0.001)
    plan = ChaosPlan(("kill",), every=0.01, count=4, seconds=1.0, calm=0.02)
    report = Chaos(UnresponsiveRun().ask, plan, print).run()
    assert report.ok
    assert len(report.faults) == 4
    assert report.calm_fps > 0
    assert "return of the last 100 episodes: 475.0" in describe(report)


def test_a_fault_that_is_not_possible_is_skipped_with_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos, "POLL_SECONDS", 0.001)
    run = UnresponsiveRun()
    said: list[str] = []

    def ask(message: Message) -> Message | None:
        if isinstance(message, FaultRequest) and message.fault == "freeze-host":
            return ResultReply(False, "it needs agents")
        return run.ask(message)

    report = Chaos(ask, ChaosPlan(("freeze-host", "kill"), 0.01, 4, 1.0, calm=0.02), said.append).run()
    assert [fault.kind for fault in report.faults] == ["kill"] * 4
    assert said.count("skipping freeze-host: it needs agents") == 1
    with pytest.raises(ValueError, match="none of these faults is possible in this run; freeze-host: it needs agents"):
        Chaos(ask, ChaosPlan(("freeze-host",), 0.01, 4, 1.0, calm=0.02), said.append).run()


def test_a_flood_of_strangers_is_bounded_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flood, "MAX_OPEN", 8)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        attack = flood.Flood([f"tcp:127.0.0.1:{server.getsockname()[1]}"], 0.2)
        attack.start()
        attack.join()
        accepted = []
        with contextlib.suppress(BlockingIOError):
            while True:
                accepted.append(server.accept()[0])
    assert len(accepted) > 8
    assert any(stranger.recv(1) for stranger in accepted)  # some send noise,
    for stranger in accepted:  # and all have left
        while stranger.recv(4096):
            pass
        stranger.close()


def test_a_plan_with_an_unknown_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown fault 'kil'; choose from kill, "):
        ChaosPlan(("kil",), 1.0, 1, 1.0)
