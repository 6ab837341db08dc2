"""The controller with a fake scheduler and a manual clock: no processes, no waiting."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from support.fake_scheduler import FakeScheduler
from support.manual_clock import ManualClock

from srl.api.block import Episodes
from srl.api.control import (
    Done,
    Evaluate,
    Evaluated,
    Failure,
    InjectFault,
    JournalEntry,
    MetricsReport,
    Names,
    Notice,
    Ready,
    Register,
    Stop,
    UpdateRecord,
)
from srl.api.experiment import Experiment, RestartRule, WorkerGroup
from srl.api.scheduler import Died, OrphanWorker, TakeoverRecord, WorkerMessage
from srl.api.status import RunStatus
from srl.api.worker import WorkerConfig, WorkerId
from srl.base.meter import Counter
from srl.controller.controller import LAST_EVALUATION_SECONDS, STOP_SECONDS, Controller, Report
from srl.controller.faults import loopback_addresses
from srl.controller.supervision import FROZEN_SECONDS, QUARANTINE_SECONDS
from srl.controller.takeover import UNKNOWN_INCARNATIONS


@dataclass(frozen=True)
class Config(WorkerConfig):
    policy: str = ""
    size: int = 1

    def build(self, context: object) -> Any:
        raise NotImplementedError

    def committed_policy(self) -> str:
        return self.policy

    def resized(self, count: int) -> Config:
        if count > 4:
            raise ValueError("at most 4 trainers can share the batch")
        return replace(self, size=count)


class RecordedConfig(Config):
    def sizes(self) -> dict[str, float]:
        return {"recorded": 1}


class EvaluatorConfig(Config):
    def evaluates(self) -> bool:
        return True


RULE = RestartRule(max_failures=2, hang_timeout=60.0)
GROUPS = (
    WorkerGroup("actors", Config(), 3, restart=RULE),
    WorkerGroup("trainers", Config("policy"), 2, restart=replace(RULE, together=True)),
    WorkerGroup("evaluators", Config(), 1, restart=replace(RULE, vital=False), fixed_because="one is enough"),
)
EVERYTHING = ["actors/0", "actors/1", "actors/2", "evaluators/0", "trainers/0", "trainers/1"]


class Run:
    """A controller and its scheduler."""

    def __init__(self, groups: tuple[WorkerGroup, ...] = GROUPS, ready: bool = True, **fields: Any) -> None:
        self.clock = ManualClock(now=100.0)
        self.scheduler = FakeScheduler(self.clock, ready)
        self.statuses: list[RunStatus] = []
        self.entries: list[JournalEntry] = []
        self.reports: list[Report] = []
        values: dict[str, Any] = {"policies": ("policy",), "learning": ("policy",), "target_steps": 1000, **fields}
        self.controller = Controller(
            Experiment("run", 7, groups, **values),
            self.scheduler,
            "/runs/run",
            on_status=self.statuses.append,
            clock=self.clock,
            on_journal=self.entries.append,
            on_report=self.reports.append,
        )

    def started(self) -> Run:
        self.controller.start()
        assert self.ticks(1)
        return self

    def ticks(self, count: int) -> bool:
        going_on = True
        for _ in range(count):
            going_on = self.controller.tick()
        return going_on

    def until(self, seconds: float) -> bool:
        """Tick for some seconds of the manual clock."""
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            if not self.controller.tick():
                return False
        return True

    def messages(self) -> str:
        return "\n".join(self.controller.status().messages)

    def incarnation(self, name: str) -> int:
        return self.scheduler.place(name).incarnation


def test_all_workers_are_started_and_the_run_is_running_when_they_are_ready() -> None:
    run = Run(ready=False)
    run.controller.start()
    assert run.scheduler.names() == EVERYTHING
    assert run.ticks(3)
    assert run.controller.state == "starting"
    ready = Run().started()
    assert ready.controller.state == "running"
    assert {worker.state for worker in ready.controller.status().workers} == {"running"}


def test_a_run_does_not_wait_for_a_group_that_is_not_vital() -> None:
    run = Run(ready=False)
    run.controller.start()

    for name in EVERYTHING:
        if not name.startswith("evaluators"):
            run.scheduler.send_from(name, Ready())
    run.ticks(1)
    assert run.controller.state == "running"


def test_a_run_without_room_is_refused_before_anything_starts() -> None:
    run = Run()
    run.scheduler.room = 5
    with pytest.raises(ValueError, match="room for 5"):
        run.controller.start()
    assert run.scheduler.started == []


def test_names_are_sent_to_all_workers_and_withdrawn_when_their_owner_dies() -> None:
    run = Run().started()
    run.scheduler.sent.clear()
    run.scheduler.send_from("trainers/0", Register("push/policy/trainers/0", "unix:here"))
    run.ticks(1)
    names = {worker_id.name: message for worker_id, message in run.scheduler.sent}
    assert sorted(names) == EVERYTHING
    assert names["actors/0"] == Names({"push/policy/trainers/0": "unix:here"})
    run.scheduler.sent.clear()
    run.scheduler.die("trainers/0")
    run.ticks(1)
    assert Names({}) in [message for _, message in run.scheduler.sent]


def test_a_dead_worker_is_restarted_with_the_next_incarnation_and_its_counts_stay() -> None:
    run = Run().started()
    run.until(10.0)
    run.scheduler.meter(run.scheduler.place("actors/1")).set(Counter.DECISIONS, 500)
    run.scheduler.die("actors/1", "killed by SIGKILL")
    run.ticks(2)
    assert run.incarnation("actors/1") == 1
    status = run.controller.status()
    assert (status.restarts, status.decisions, status.state) == (1, 500, "running")
    assert "actors/1 died: killed by SIGKILL; restarting it" in run.messages()


def test_the_reported_failure_is_the_reason_of_a_death() -> None:
    run = Run().started()
    run.scheduler.send_from("actors/0", Failure("Traceback\nKeyError: 'x'"))
    run.scheduler.die("actors/0", "exit code 1")
    run.ticks(1)
    assert "actors/0 died: KeyError: 'x'" in run.messages()


def test_early_deaths_of_a_whole_group_delay_restarts_and_then_end_the_run() -> None:
    run = Run().started()
    for name in ("actors/0", "actors/1"):
        run.scheduler.die(name, "ValueError: no such level")
        run.until(1.0)
    assert run.controller.state == "running"
    for name in ("actors/0", "actors/1"):
        run.scheduler.die(name, "ValueError: no such level")
    assert not run.until(1.0)
    assert run.controller.state == "failed"
    assert "ValueError: no such level" in run.controller.reason


def test_one_worker_that_keeps_dying_is_quarantined_and_the_others_continue() -> None:
    run = Run().started()
    for _ in range(3):
        run.scheduler.die("actors/2", "broken")
        run.until(2.0)
    assert run.controller.state == "running"
    assert "actors/2" not in run.scheduler.names()
    run.until(QUARANTINE_SECONDS)
    assert "actors/2" in run.scheduler.names()


def test_a_group_that_is_not_vital_is_dropped_when_it_keeps_dying() -> None:
    run = Run().started()
    for _ in range(3):
        run.scheduler.die("evaluators/0", "broken")
        run.until(2.0)
    assert run.until(120.0)
    assert "evaluators/0" not in run.scheduler.names()
    assert "continuing without evaluators" in run.messages()


@pytest.mark.parametrize(("name", "state"), [("actors/0", "failed"), ("evaluators/0", "running")])
def test_a_fatal_failure_ends_the_run_only_in_a_vital_group(name: str, state: str) -> None:
    run = Run().started()
    run.scheduler.send_from(name, Failure("the license has expired", fatal=True))
    run.ticks(1)
    assert run.controller.state == state
    assert run.controller.reason == ("the license has expired" if state == "failed" else "")


def test_data_parallel_trainers_are_restarted_together_with_one_incarnation() -> None:
    run = Run().started()
    run.until(10.0)
    run.scheduler.die("trainers/1", "killed")
    run.ticks(3)
    assert WorkerId("trainers", 0, 0) in run.scheduler.killed
    assert [run.incarnation(f"trainers/{index}") for index in (0, 1)] == [1, 1]
    assert run.controller.status().restarts == 1
    assert run.incarnation("actors/0") == 0


def test_events_of_an_earlier_incarnation_are_ignored() -> None:
    run = Run().started()
    first = run.scheduler.place("actors/0")
    run.until(10.0)
    run.scheduler.die("actors/0")
    run.ticks(2)
    run.scheduler.events += [Died(first, "late news"), WorkerMessage(first, Done("late news"))]
    assert run.ticks(2)
    assert run.incarnation("actors/0") == 1
    assert run.controller.status().restarts == 1


def test_a_stuck_worker_is_replaced_and_its_stacks_are_kept_as_the_reason() -> None:
    run = Run().started()
    run.scheduler.stuck.add("actors/1")
    run.until(61.0)
    assert run.scheduler.killed == [WorkerId("actors", 1, 0)]
    assert run.incarnation("actors/1") == 1
    assert "actors/1 is stuck in phase boot; replacing it" in run.messages()
    assert "actors/1 died: stuck in phase boot for 60 s at /home/me/env.py:7 in step_1; restarting it" in run.messages()


def test_a_stopped_process_is_replaced_within_seconds() -> None:
    run = Run().started()
    run.scheduler.stopped.add(run.scheduler.place("actors/2"))
    run.scheduler.stuck.add("actors/2")
    run.until(FROZEN_SECONDS + 1.0)
    assert run.scheduler.killed == [WorkerId("actors", 2, 0)]
    assert "frozen (SIGSTOP)" in run.messages()


def test_a_run_that_was_stopped_as_a_whole_is_not_replaced() -> None:
    run = Run().started()
    run.scheduler.stopped.update(run.scheduler.live)
    run.scheduler.stuck.update(EVERYTHING)
    run.until(30.0)
    assert len(run.scheduler.killed) <= 2 + 1  # the guard allows two, and a trainer takes its partner along


def test_scaling_up_starts_workers_and_scaling_down_asks_the_last_to_stop() -> None:
    run = Run().started()
    assert run.controller.scale("actors", 5) == "actors: 3 -> 5"
    run.ticks(1)
    assert [name for name in run.scheduler.names() if name.startswith("actors")] == [f"actors/{i}" for i in range(5)]
    assert run.controller.scale("actors", -3, relative=True) == "actors: 5 -> 2"
    leaving = [worker_id.name for worker_id, message in run.scheduler.sent if isinstance(message, Stop)]
    assert leaving == ["actors/2", "actors/3", "actors/4"]
    for name in leaving:
        run.scheduler.die(name, "stopped", clean=True)
    run.ticks(2)
    assert [worker.name for worker in run.controller.status().workers if worker.group == "actors"] == [
        "actors/0",
        "actors/1",
    ]
    assert run.controller.status().restarts == 0


def test_a_worker_that_is_wanted_again_before_it_stopped_comes_back() -> None:
    run = Run().started()
    run.controller.scale("actors", 2)
    run.controller.scale("actors", 3)
    run.scheduler.die("actors/2", "stopped", clean=True)
    run.ticks(2)
    assert run.incarnation("actors/2") == 1


def test_scaling_trainers_restarts_all_of_them_with_their_new_number() -> None:
    run = Run().started()
    run.controller.scale("trainers", 3)
    run.ticks(3)
    worker_ids = [run.scheduler.place(f"trainers/{index}") for index in range(3)]
    assert [run.scheduler.configs[worker_id] for worker_id in worker_ids] == [Config("policy", 3)] * 3
    assert len({worker_id.incarnation for worker_id in worker_ids}) == 1


@pytest.mark.parametrize(
    ("name", "count", "message"),
    [
        ("actor", 2, "unknown worker group 'actor'; did you mean 'actors'"),
        ("evaluators", 2, "evaluators cannot be resized during the run: one is enough"),
        ("actors", 0, "at least one worker; 0 were requested"),
        ("actors", 10**6, "at most 100000 workers"),
        ("actors", 2000, "room for 1000"),
        ("trainers", 5, "at most 4 trainers"),
    ],
)
def test_an_impossible_size_is_refused_and_changes_nothing(name: str, count: int, message: str) -> None:
    run = Run().started()
    with pytest.raises(ValueError, match=message):
        run.controller.scale(name, count)
    run.ticks(2)
    assert run.scheduler.names() == EVERYTHING


def test_the_run_is_finished_when_the_only_policy_is_complete() -> None:
    run = Run().started()
    run.scheduler.send_from("trainers/0", Done("1,000 steps", "policy"))
    assert not run.ticks(1)
    assert (run.controller.state, run.controller.reason) == ("finished", "1,000 steps")


def recorded_run() -> Run:
    """A run on recorded data that has made its last update, version 5."""
    evaluators = WorkerGroup("evaluators", EvaluatorConfig(), 1, restart=replace(RULE, vital=False))
    run = Run((WorkerGroup("trainers", RecordedConfig("policy"), 1, restart=RULE), evaluators)).started()
    run.scheduler.meter(run.scheduler.place("trainers/0")).set(Counter.VERSION, 5)
    run.scheduler.send_from("trainers/0", Done("1,000 steps", "policy"))
    return run


def test_a_run_on_recorded_data_ends_when_its_last_version_is_evaluated() -> None:
    run = recorded_run()
    assert run.ticks(3)
    assert (run.scheduler.place("evaluators/0"), Evaluate()) in run.scheduler.sent
    run.scheduler.send_from("evaluators/0", Evaluated("policy", 4, [1.0], [1.0]))
    assert run.ticks(3)
    run.scheduler.send_from("evaluators/0", Evaluated("policy", 5, [2.0], [1.0]))
    assert not run.ticks(3)
    assert (run.controller.state, run.controller.reason) == ("finished", "1,000 steps")


def test_the_last_evaluation_is_not_awaited_forever() -> None:
    run = recorded_run()
    assert not run.until(LAST_EVALUATION_SECONDS + 1.0)
    assert run.controller.state == "finished"


def test_the_last_evaluation_is_not_awaited_without_an_evaluator() -> None:
    run = recorded_run()
    while run.ticks(2):
        if "evaluators/0" in run.scheduler.names():  # it is restarted after a while, until the controller gives up
            run.scheduler.die("evaluators/0")
        assert run.clock.now() < 100.0 + LAST_EVALUATION_SECONDS
    assert run.controller.state == "finished"


def test_the_run_is_finished_when_the_last_policy_is_complete() -> None:
    groups = tuple(WorkerGroup(f"trainers-{name}", Config(name), 1) for name in ("hiders", "seekers"))
    run = Run(groups, policies=("hiders", "seekers"), learning=("hiders", "seekers")).started()
    run.scheduler.send_from("trainers-hiders/0", Done("600 steps", "hiders"))
    assert run.ticks(1)
    assert "policy hiders has finished (600 steps); still training: seekers" in run.messages()
    run.scheduler.send_from("trainers-seekers/0", Done("400 steps", "seekers"))
    assert not run.ticks(1)
    assert run.controller.state == "finished"


def test_a_worker_may_end_the_whole_run() -> None:
    run = Run().started()
    run.scheduler.send_from("actors/0", Done("enough"))
    assert not run.ticks(1)
    assert (run.controller.state, run.controller.reason) == ("finished", "enough")


def test_the_first_reason_to_stop_counts() -> None:
    run = Run().started()
    run.controller.stop("stopped", "SIGINT")
    run.controller.stop("failed", "later")
    assert not run.ticks(1)
    assert (run.controller.state, run.controller.reason) == ("stopped", "SIGINT")


def test_shutting_down_asks_all_workers_to_stop_and_does_not_wait_forever() -> None:
    run = Run().started()
    run.controller.stop("stopped", "SIGINT")
    before = run.clock.now()
    run.controller.shut_down()
    assert (
        sorted(worker_id.name for worker_id, message in run.scheduler.sent if isinstance(message, Stop)) == EVERYTHING
    )
    assert run.clock.now() - before == pytest.approx(STOP_SECONDS, abs=0.2)
    assert run.scheduler.closed


def test_shutting_down_ends_as_soon_as_the_workers_have() -> None:
    run = Run().started()
    run.controller.stop("stopped", "SIGINT")
    for name in EVERYTHING:
        run.scheduler.die(name, "stopped", clean=True)
    before = run.clock.now()
    run.controller.shut_down()
    assert run.clock.now() - before < 0.2
    assert run.controller.status().restarts == 0


def test_workers_of_a_lost_host_are_restarted_at_once_however_many_and_often() -> None:
    run = Run().started()
    for time in range(5):
        run.scheduler.report("host b is lost with 2 workers: no answer")
        for name in ("actors/1", "actors/2"):
            run.scheduler.die(name, "its host b is lost", blameless=True)
        assert run.ticks(2)
        assert run.incarnation("actors/1") == time + 1
    assert run.controller.status().restarts == 10
    assert "host b is lost" in run.messages()


def test_a_fatal_event_of_the_hosts_ends_the_run() -> None:
    run = Run().started()
    run.scheduler.report("no host is left", fatal=True)
    assert not run.ticks(1)
    assert (run.controller.state, run.controller.reason) == ("failed", "no host is left")


def test_reports_of_workers_reach_the_status() -> None:
    run = Run().started()
    report = MetricsReport("policy", {"entropy": 0.5})
    run.scheduler.send_from("trainers/0", report)
    run.scheduler.send_from("trainers/0", Notice("update 3 was skipped"))
    entry = JournalEntry("policy", 0, 1, "a", "b", ["actors/0.0:1"], 0)
    episodes = Episodes.of({"return": np.array([5.0]), "length": np.array([9.0])})
    record = UpdateRecord("policy", 1, 64, 0.0, {"loss": 2.0}, {"actors/0": episodes}, journal=entry)
    for _ in range(2):  # the second time by the replacement of a trainer that died
        run.scheduler.send_from("trainers/0", record)
    run.ticks(1)
    status = run.controller.status()
    assert (status.return_mean, status.length_mean, status.metrics) == (5.0, 9.0, {"entropy": 0.5, "loss": 2.0})
    assert "trainers/0: update 3 was skipped" in status.messages
    assert run.entries == [entry, entry]
    assert run.reports == [report, Notice("trainers/0: update 3 was skipped"), record]


def test_a_status_is_published_four_times_a_second() -> None:
    run = Run().started()
    run.statuses.clear()
    run.until(10.0)
    assert 30 <= len(run.statuses) <= 45


def test_a_fault_is_sent_to_the_named_worker() -> None:
    run = Run().started()
    assert run.controller.inject_fault("actors/1", "slow", 3.0) == "slow actors/1"
    assert run.scheduler.sent[-1] == (WorkerId("actors", 1, 0), InjectFault("slow", 3.0))
    with pytest.raises(ValueError, match="unknown worker 'actor/1'; did you mean 'actors/1'"):
        run.controller.inject_fault("actor/1", "slow", 3.0)
    with pytest.raises(ValueError, match="unknown fault 'slo'"):
        run.controller.inject_fault("actors/1", "slo", 3.0)


def test_a_flood_is_possible_only_on_the_loopback_interface() -> None:
    run = Run().started()
    run.scheduler.send_from("trainers/0", Register("samples/0", "tcp:127.0.0.1:4711"))
    run.scheduler.send_from("trainers/1", Register("samples/1", "tcp:10.0.0.1:4712"))
    run.ticks(1)
    assert "tcp:127.0.0.1:4711" in run.controller.inject_fault("actors/0", "flood", 3.0).split()
    assert "4712" not in run.controller.inject_fault("actors/0", "flood", 3.0)
    with pytest.raises(ValueError, match="nothing of this run listens on the loopback interface"):
        loopback_addresses(["tcp:10.0.0.1:4711"], TakeoverRecord("10.0.0.1:4712", []))


def test_a_successor_adopts_the_workers_that_live_and_restarts_the_others() -> None:
    run = Run().started()
    run.controller.scale("actors", 4)
    run.ticks(1)
    state = run.controller.takeover_state()
    assert state is not None
    successor = Run()
    kept = [worker_id for worker_id in run.scheduler.live if worker_id.name not in ("actors/3", "trainers/1")]
    successor.scheduler.orphans = [
        OrphanWorker(worker_id, True, {f"end/{worker_id.name}": "tcp:x"}) for worker_id in kept
    ]
    successor.controller.take_over(state, patience=1.0)
    assert successor.until(1.0)
    assert successor.incarnation("actors/0") == 0
    assert successor.incarnation("actors/3") == UNKNOWN_INCARNATIONS + 1
    assert successor.incarnation("trainers/0") == successor.incarnation("trainers/1") == UNKNOWN_INCARNATIONS + 1
    assert "takeover: 5 workers continue, 2 are restarted" in successor.messages()


def test_events_have_kinds_for_the_time_line() -> None:
    run = Run().started()
    run.scheduler.report("host c joined: 4 CPUs, 0 GPUs")
    run.scheduler.report("host b is lost with 2 workers: no answer", lost=True)
    run.scheduler.die("actors/1", "killed by SIGKILL")
    assert run.ticks(1)
    run.controller.scale("actors", 2)
    kinds = [(report.event, report.text.split()[0]) for report in run.reports if isinstance(report, Notice)]
    assert kinds == [("host", "host"), ("host lost", "host"), ("worker", "actors/1"), ("change", "actors:")]
