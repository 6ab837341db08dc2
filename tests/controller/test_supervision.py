"""What a death means, and who counts as stuck: with literal times."""

from __future__ import annotations

import pytest

from srl.api.experiment import RestartRule
from srl.controller.supervision import GUARD_SECONDS, GiveUp, Guard, History, Pace, Restart, Watch


def test_early_deaths_are_mended_ever_later_until_it_is_no_use() -> None:
    history = History(RestartRule(max_failures=5, window=60.0))
    waits = [history.died("actors/0", "a bug", now) for now in (0.0, 1.0, 2.0, 3.0, 4.0)]
    assert waits == [Restart(0.0), Restart(0.2), Restart(0.4), Restart(0.8), Restart(1.6)]
    verdict = history.died("actors/0", "ValueError: a bug", 5.0)
    assert isinstance(verdict, GiveUp)
    assert "actors/0" in verdict.reason
    assert "ValueError: a bug" in verdict.reason
    assert "6 times within 60 s" in verdict.reason


def test_the_wait_is_bounded() -> None:
    history = History(RestartRule(max_failures=100, window=1e9))
    waits = [history.died("actors/0", "", float(now)) for now in range(20)]
    assert waits[-1] == Restart(30.0)


def test_deaths_outside_the_window_are_forgotten() -> None:
    history = History(RestartRule(max_failures=1, window=60.0))
    for now in (0.0, 61.0, 122.0, 183.0):
        assert history.died("actors/0", "", now) == Restart(0.0)
    assert isinstance(history.died("actors/0", "", 243.0), GiveUp)


def test_a_death_exactly_at_the_edge_of_the_window_still_counts() -> None:
    history = History(RestartRule(max_failures=1, window=60.0))
    history.died("actors/0", "", 0.0)
    assert isinstance(history.died("actors/0", "", 60.0), GiveUp)


def test_who_had_worked_for_a_while_is_replaced_at_once_and_more_often() -> None:
    history = History(RestartRule(max_failures=2, window=60.0))
    for now in range(20):
        assert history.died("actors/0", "killed", float(now), worked=10.0) == Restart(0.0)
    assert isinstance(history.died("actors/0", "killed", 20.0, worked=10.0), GiveUp)


def test_early_and_late_deaths_are_counted_apart() -> None:
    history = History(RestartRule(max_failures=2, window=60.0))
    for now in range(10):
        assert history.died("actors/0", "killed", float(now), worked=5.0) == Restart(0.0)
    assert history.died("actors/0", "early", 11.0, worked=4.9) == Restart(0.0)
    assert history.died("actors/0", "early", 12.0) == Restart(0.2)
    assert history.died("actors/0", "killed", 13.0, worked=5.0) == Restart(0.0)
    assert isinstance(history.died("actors/0", "early", 14.0), GiveUp)


@pytest.mark.parametrize("moves", ["progress", "stamp"])
def test_who_moves_is_not_stuck(moves: str) -> None:
    watch = Watch()
    for now in range(0, 1000, 10):
        progress, stamp = (now, 7) if moves == "progress" else (7, now)
        assert not watch.stuck(progress, stamp, float(now), timeout=5.0)


def test_who_does_not_move_for_longer_than_the_timeout_is_stuck() -> None:
    watch = Watch()
    assert next(now for now in range(70) if watch.stuck(3, 100, float(now), timeout=60.0)) == 61
    assert not watch.stuck(4, 100, 70.0, timeout=60.0)  # it was only slow
    assert next(now for now in range(71, 140) if watch.stuck(4, 100, float(now), timeout=60.0)) == 131


def test_a_pause_of_our_own_is_nobodys_hang() -> None:
    watch = Watch()
    assert not watch.stuck(3, 100, 1.0, timeout=60.0)
    assert not watch.stuck(3, 100, 10_000.0, timeout=60.0)
    assert next(now for now in range(10_001, 10_070) if watch.stuck(3, 100, float(now), timeout=60.0)) == 10_056


def test_one_whom_the_kernel_calls_stopped_is_given_up_long_before_one_that_is_slow() -> None:
    slow, stopped = Watch(), Watch()
    for now in (0.0, 1.0, 3.5):
        assert not slow.stuck(1, 1, now, timeout=60.0)
        assert stopped.stuck(1, 1, now, timeout=60.0, frozen=True) == (now > 2.0)


def test_one_that_dies_again_and_again_is_left_out_and_the_group_goes_on() -> None:
    history = History(RestartRule(max_failures=2))
    verdicts = [history.died("actors/3", "broken", now, size=8) for now in (0.0, 1.0, 2.0)]
    assert [isinstance(verdict, Restart) and verdict.quarantine for verdict in verdicts] == [False, False, True]
    alone = History(RestartRule(max_failures=2))
    assert isinstance([alone.died("actors/0", "broken", now) for now in (0.0, 1.0, 2.0)][-1], GiveUp)
    several = History(RestartRule(max_failures=2))
    names = ("actors/0", "actors/1", "actors/0", "actors/1")
    assert isinstance([several.died(name, "broken", 0.0, size=8) for name in names][-1], GiveUp)


def test_no_large_share_of_the_fleet_is_replaced_at_once() -> None:
    guard = Guard()
    assert [guard.allows(0.0, size=20) for _ in range(6)] == [True] * 4 + [False] * 2
    assert guard.allows(GUARD_SECONDS + 1.0, size=20)
    small = Guard()
    assert [small.allows(0.0, size=3) for _ in range(3)] == [True, True, False]


def test_who_was_stopped_is_replaced_unless_most_were() -> None:
    guard = Guard()
    assert all(guard.allows(0.0, size=20, stopped=10) for _ in range(10))
    assert [guard.allows(0.0, size=20, stopped=11) for _ in range(5)] == [True] * 4 + [False]
    small = Guard()
    assert all(small.allows(0.0, size=3, stopped=2) for _ in range(9))
    assert [small.allows(0.0, size=3, stopped=3) for _ in range(3)] == [True, True, False]


def test_what_takes_long_is_done_less_often() -> None:
    pace = Pace(0.25)
    assert pace.due(1.0)
    pace.done(1.5)
    assert not pace.due(5.9)
    assert pace.due(6.0)
    pace.done(6.001)
    assert pace.due(6.25)
