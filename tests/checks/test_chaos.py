"""What a witness of chaos notes, and when a fault counts as overcome; with literals."""

import pytest

from srl.api.status import RunStatus, StreamStatus, WorkerStatus
from srl.api.transport import Message
from srl.checks import chaos
from srl.checks.chaos import Chaos, ChaosPlan, ChaosReport, Fault, Witness, describe
from srl.controller.control_socket import AskFault, TellResult, TellStatus


def status(version: int = 5, incarnation: int = 0, progress: int = 9, cut: int = 0, **changes: object) -> RunStatus:
    worker = WorkerStatus(
        "actors/0", "actors", state="running", incarnation=incarnation, progress=progress, lost_connections=cut
    )
    fields = {"version": version, "steps": 100, "decisions": 200, "max_lag": 1, "workers": [worker], **changes}
    return RunStatus("run", "CartPole-v1", "PPO", "/runs/run", **fields)  # type: ignore[arg-type]


def test_a_run_that_goes_on_is_not_accused() -> None:
    witness = Witness()
    for version in (5, 5, 6):
        witness.see(status(version, streams=[StreamStatus("samples/0", "push", posted=4, consumed=3, dropped=1)]))
    assert witness.wrong == []


@pytest.mark.parametrize(
    ("after", "says"),
    [
        (status(4), "version went back from 5 to 4"),
        (status(steps=99), "steps went back"),
        (status(lag_max=2), "2 versions behind"),
        (status(steps=201), "201 decisions were learned from, and 200 made"),
        (status(streams=[StreamStatus("samples/0", "push", posted=4, consumed=5)]), "gave 5 blocks of 4"),
    ],
)
def test_broken_promises_are_noted_once(after: RunStatus, says: str) -> None:
    witness = Witness()
    for seen in (status(), after, after):
        witness.see(seen)
    assert len(witness.wrong) == 1
    assert says in witness.wrong[0]


def test_a_killed_worker_is_overcome_by_its_successor_and_an_update_after_it() -> None:
    fault = Fault("kill", "actors/0", incarnation=0, at=10.0, seconds=0.0)
    for now, seen in ((10.5, status(6)), (11.0, status(7, 1, 0)), (11.5, status(8, 1, 3))):
        fault.look(seen, now)
        assert fault.overcome is None
    fault.look(status(9, 1, 4), 12.0)
    assert fault.overcome == 2.0


def test_a_passing_fault_is_overcome_when_it_has_passed() -> None:
    fault = Fault("slow", "actors/0", incarnation=0, at=10.0, seconds=3.0)
    for now, version, progress in ((12.0, 6, 10), (13.0, 7, 11), (13.2, 8, 11), (13.4, 9, 12), (13.5, 10, 12)):
        assert fault.overcome is None
        fault.look(status(version, progress=progress), now)
    assert fault.overcome == 3.5
    report = ChaosReport([fault], [], 3, 100.0, 80.0, 0, "running")
    assert report.ok
    assert "(80%)" in describe(report)
    assert not ChaosReport([Fault("kill", "actors/0", 0, 0.0, 0.0)], [], 0, 0.0, 0.0, 0, "running").ok


@pytest.mark.parametrize("kind", ["slow", "partition"])
def test_who_does_not_move_after_a_passing_fault_has_not_overcome_it(kind: str) -> None:
    fault = Fault(kind, "actors/0", incarnation=0, at=0.0, seconds=3.0)
    for now in range(60):  # others go on
        fault.look(status(now, progress=9, cut=1), float(now))
    assert not fault.settled
    fault.look(status(60, incarnation=1, progress=1), 60.0)  # it was replaced
    fault.look(status(61, incarnation=1, progress=2), 61.0)
    assert fault.overcome == 61.0


def test_a_partition_that_cut_nothing_is_said_and_proves_nothing() -> None:
    nothing, some = (Fault("partition", "actors/0", incarnation=0, at=0.0, seconds=1.0, cut=2) for _ in range(2))
    for now, progress in ((0.5, 9), (1.0, 10), (1.5, 11), (2.0, 12)):
        nothing.look(status(int(now * 2), progress=progress, cut=2), now)
        some.look(status(int(now * 2), progress=progress, cut=3), now)
    assert (nothing.harmless, nothing.overcome, some.harmless, some.overcome) == (True, None, False, 2.0)
    report = ChaosReport([nothing, some], [], 0, 0.0, 0.0, 0, "running")
    assert report.ok
    assert "1 partitions cut nothing, and do not count: no TCP connections in actors/0" in describe(report)
    assert "partition        2         1" in describe(report)
    alone = ChaosReport([nothing], [], 0, 0.0, 0.0, 0, "running")
    assert not alone.ok
    assert "NO FAULT DID ANY HARM" in describe(alone)


class FrozenNowAndThen:
    """A run that replaces whoever is killed, and leaves every third question unanswered."""

    def __init__(self) -> None:
        self.asked = self.kills = 0

    def ask(self, message: Message) -> Message | None:
        self.asked += 1
        if self.asked % 3 == 0:
            return None
        if isinstance(message, AskFault):
            self.kills += 1
            return TellResult(True, "")
        steps = 10 * self.asked
        return TellStatus(status(self.asked, self.kills, steps=steps, decisions=steps, return_mean=475.0))


def test_questions_that_a_frozen_run_missed_are_neither_its_end_nor_its_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos, "LOOK_SECONDS", 0.001)
    plan = ChaosPlan(("kill",), every=0.01, count=4, seconds=1.0, calm=0.02)
    report = Chaos(FrozenNowAndThen().ask, plan, print).run()
    assert report.ok
    assert len(report.faults) == 4
    assert report.calm_fps > 0
    assert "return of the last 100 episodes: 475.0" in describe(report)


def test_a_plan_names_faults_that_exist() -> None:
    with pytest.raises(ValueError, match="kill"):
        ChaosPlan(("kil",), 1.0, 1, 1.0)
