"""Restarts after deaths, and which workers count as stuck, with literal times."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support.manual_clock import ManualClock

from srl.api.experiment import RestartRule
from srl.api.scheduler import Usage
from srl.api.worker import WorkerId
from srl.base.meter import Meter, Phase
from srl.controller.supervision import (
    FROZEN_SECONDS,
    GUARD_SECONDS,
    START_SECONDS,
    DeathHistory,
    GiveUp,
    ProgressWatch,
    ReplacementLimit,
    Restart,
    Slot,
    TaskSchedule,
    long_update,
    stuck,
)

HANG = 60.0


def test_restarts_after_early_deaths_are_delayed_more_and_more_until_the_run_gives_up() -> None:
    history = DeathHistory(RestartRule(max_failures=5, window=60.0))
    waits = [history.died("actors/0", "a bug", now) for now in (0.0, 1.0, 2.0, 3.0, 4.0)]
    assert waits == [Restart(0.0), Restart(0.2), Restart(0.4), Restart(0.8), Restart(1.6)]
    verdict = history.died("actors/0", "ValueError: a bug", 5.0)
    assert isinstance(verdict, GiveUp)
    assert "actors/0" in verdict.reason
    assert "ValueError: a bug" in verdict.reason
    assert "6 deaths within 60 s" in verdict.reason


def test_an_error_in_the_code_that_repeats_is_not_retried() -> None:
    trace = 'Traceback (most recent call last):\n  File "mine.py", line 3, in loss\n'
    bug, network = f"{trace}ValueError: shapes differ", f"{trace}ConnectionError: refused"
    trainers = DeathHistory(RestartRule(together=True))
    assert trainers.died("trainers/0", bug, 0.0, size=2) == Restart(0.0)
    verdict = trainers.died("trainers/1", bug, 1.0, size=2)
    assert isinstance(verdict, GiveUp)
    assert verdict.reason.startswith("trainers/0 and trainers/1 died with the same error")
    alone = DeathHistory(RestartRule())
    division = f"{trace}ZeroDivisionError: division by zero"
    assert [isinstance(alone.died("trainers/0", division, now), GiveUp) for now in (0.0, 1.0)] == [False, True]
    passing = DeathHistory(RestartRule())
    assert not any(isinstance(passing.died("actors/0", network, now), GiveUp) for now in (0.0, 1.0, 2.0))
    late = DeathHistory(RestartRule())
    assert not any(isinstance(late.died("actors/0", bug, 10.0 * now, worked=9.0), GiveUp) for now in range(3))
    seed = DeathHistory(RestartRule())  # only one of several actors: the cause may be its seed
    assert not any(isinstance(seed.died("actors/0", bug, now, size=4), GiveUp) for now in (0.0, 1.0, 2.0))
    assert isinstance(seed.died("actors/1", bug, 3.0, size=4), GiveUp)


def test_the_delay_is_bounded() -> None:
    history = DeathHistory(RestartRule(max_failures=100, window=1e9))
    waits = [history.died("actors/0", "", float(now)) for now in range(20)]
    assert waits[-1] == Restart(30.0)


def test_deaths_outside_the_window_are_forgotten() -> None:
    history = DeathHistory(RestartRule(max_failures=1, window=60.0))
    for now in (0.0, 61.0, 122.0, 183.0):
        assert history.died("actors/0", "", now) == Restart(0.0)
    assert isinstance(history.died("actors/0", "", 243.0), GiveUp)


def test_a_death_exactly_at_the_edge_of_the_window_still_counts() -> None:
    history = DeathHistory(RestartRule(max_failures=1, window=60.0))
    history.died("actors/0", "", 0.0)
    assert isinstance(history.died("actors/0", "", 60.0), GiveUp)


def test_a_worker_that_had_run_for_a_while_is_replaced_at_once_and_more_often() -> None:
    history = DeathHistory(RestartRule(max_failures=2, window=60.0))
    for now in range(20):
        assert history.died("actors/0", "killed", float(now), worked=10.0) == Restart(0.0)
    assert isinstance(history.died("actors/0", "killed", 20.0, worked=10.0), GiveUp)


def test_early_and_late_deaths_are_counted_separately() -> None:
    history = DeathHistory(RestartRule(max_failures=2, window=60.0))
    for now in range(10):
        assert history.died("actors/0", "killed", float(now), worked=5.0) == Restart(0.0)
    assert history.died("actors/0", "early", 11.0, worked=4.9) == Restart(0.0)
    assert history.died("actors/0", "early", 12.0) == Restart(0.2)
    assert history.died("actors/0", "killed", 13.0, worked=5.0) == Restart(0.0)
    assert isinstance(history.died("actors/0", "early", 14.0), GiveUp)


@pytest.mark.parametrize("moves", ["progress", "stamp"])
def test_a_worker_whose_gauges_change_is_not_stuck(moves: str) -> None:
    watch = ProgressWatch()
    for now in range(0, 1000, 10):
        progress, stamp = (now, 7) if moves == "progress" else (7, now)
        assert not watch.stuck(progress, stamp, float(now), timeout=5.0)


def test_a_worker_without_change_for_longer_than_the_timeout_is_stuck() -> None:
    watch = ProgressWatch()
    assert next(now for now in range(70) if watch.stuck(3, 100, float(now), timeout=60.0)) == 61
    assert not watch.stuck(4, 100, 70.0, timeout=60.0)  # it was only slow
    assert next(now for now in range(71, 140) if watch.stuck(4, 100, float(now), timeout=60.0)) == 131


def test_a_pause_of_the_controller_does_not_make_workers_stuck() -> None:
    watch = ProgressWatch()
    assert not watch.stuck(3, 100, 1.0, timeout=60.0)
    assert not watch.stuck(3, 100, 10_000.0, timeout=60.0)
    assert next(now for now in range(10_001, 10_070) if watch.stuck(3, 100, float(now), timeout=60.0)) == 10_056


def test_a_stopped_process_is_replaced_long_before_a_slow_one() -> None:
    slow, stopped = ProgressWatch(), ProgressWatch()
    for now in (0.0, 1.0, 3.5):
        assert not slow.stuck(1, 1, now, timeout=60.0)
        assert stopped.stuck(1, 1, now, timeout=60.0, frozen=True) == (now > 2.0)


def test_a_worker_that_keeps_dying_is_quarantined_and_its_group_continues() -> None:
    history = DeathHistory(RestartRule(max_failures=2))
    verdicts = [history.died("actors/3", "broken", now, size=8) for now in (0.0, 1.0, 2.0)]
    assert [isinstance(verdict, Restart) and verdict.quarantine for verdict in verdicts] == [False, False, True]
    alone = DeathHistory(RestartRule(max_failures=2))
    assert isinstance([alone.died("actors/0", "broken", now) for now in (0.0, 1.0, 2.0)][-1], GiveUp)
    several = DeathHistory(RestartRule(max_failures=2))
    names = ("actors/0", "actors/1", "actors/0", "actors/1")
    assert isinstance([several.died(name, "broken", 0.0, size=8) for name in names][-1], GiveUp)


def test_only_a_small_share_of_the_workers_is_replaced_at_once() -> None:
    guard = ReplacementLimit()
    assert [guard.allows(0.0, size=20) for _ in range(6)] == [True] * 4 + [False] * 2
    assert guard.allows(GUARD_SECONDS + 1.0, size=20)
    small = ReplacementLimit()
    assert [small.allows(0.0, size=3) for _ in range(3)] == [True, True, False]


def test_stopped_workers_are_replaced_unless_most_of_them_are_stopped() -> None:
    guard = ReplacementLimit()
    assert all(guard.allows(0.0, size=20, stopped=10) for _ in range(10))
    assert [guard.allows(0.0, size=20, stopped=11) for _ in range(5)] == [True] * 4 + [False]
    small = ReplacementLimit()
    assert all(small.allows(0.0, size=3, stopped=2) for _ in range(9))
    assert [small.allows(0.0, size=3, stopped=3) for _ in range(3)] == [True, True, False]


def test_a_task_that_takes_long_is_done_less_often() -> None:
    pace = TaskSchedule(0.25)
    assert pace.due(1.0)
    pace.done(1.5)
    assert pace.due(1.5), "a single slow turn is no reason to pause"
    pace.done(2.1)
    assert not pace.due(6.4)
    assert pace.due(6.5)
    pace.done(6.501)
    assert pace.due(6.75)


def seconds_until_found(state: str, *, pid: int = 7, stopped: bool = False, most: float = 1000.0) -> float | None:
    """Time until `stuck` finds the first of three workers, whose gauges do not change."""
    meter = Meter.unshared()
    scheduler: Any = SimpleNamespace(
        pid=lambda worker_id: pid,
        usage=lambda worker_id: Usage(stopped=stopped),
        meter=lambda worker_id: meter,
        dump=lambda worker_id: "its stacks",
    )
    slots = [Slot(WorkerId("actors", 0, 0), state), *(Slot(WorkerId("actors", index, 0), "ended") for index in (1, 2))]
    groups: Any = {"actors": SimpleNamespace(restart=RestartRule(hang_timeout=HANG))}
    clock, guard = ManualClock(), ReplacementLimit()
    began = clock.now()
    while clock.now() - began < most:
        for slot, what in stuck(slots, scheduler, groups, guard, clock):
            assert slot is slots[0]
            assert slot.error.splitlines()[-1].startswith(what)
            return clock.now() - began
        clock.advance(0.5)
    return None


@pytest.mark.parametrize("state", ["starting", "running"])
def test_a_stopped_process_is_found_quickly_even_while_it_starts(state: str) -> None:
    assert seconds_until_found(state, stopped=True) == pytest.approx(FROZEN_SECONDS, abs=1.0)


def test_a_start_may_take_longer_than_a_step_but_has_a_limit() -> None:
    assert seconds_until_found("running") == pytest.approx(HANG, abs=1.0)
    assert seconds_until_found("starting") == pytest.approx(START_SECONDS, abs=1.0)


def test_a_stuck_trainer_says_how_many_gradient_steps_its_updates_have() -> None:
    def described(ratio: float, phase: Phase) -> str:
        sizes = {"batch": 32.0, "updates_per_decision": ratio}
        return long_update(SimpleNamespace(config=SimpleNamespace(sizes=lambda: sizes)), phase)  # type: ignore[arg-type]

    assert "an update has 32,000 gradient steps; choose a smaller" in described(1000.0, Phase.UPDATE)
    assert described(1000.0, Phase.PUBLISH) == described(1.0, Phase.UPDATE) == ""


def test_a_worker_without_a_process_is_not_stuck() -> None:
    assert seconds_until_found("starting", pid=0) is None
