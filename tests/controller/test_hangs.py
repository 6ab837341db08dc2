"""Who is taken for stuck, by the state of his seat, his gauges and the kernel's word."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from srl.controller.seats import Slot

from srl.api.experiment import RestartRule
from srl.api.scheduler import Usage
from srl.api.worker import Place
from srl.base.clock import ManualClock
from srl.base.meter import Meter
from srl.controller.hangs import START_SECONDS, stuck
from srl.controller.supervision import FROZEN_SECONDS, Guard

HANG = 60.0


def seconds_until_found(state: str, *, pid: int = 7, stopped: bool = False, most: float = 1000.0) -> float | None:
    """One of three whose gauges stand still."""
    meter = Meter.unshared()
    scheduler: Any = SimpleNamespace(
        pid=lambda place: pid,
        usage=lambda place: Usage(stopped=stopped),
        meter=lambda place: meter,
        dump=lambda place: "its stacks",
    )
    seats = [Slot(Place("actors", 0, 0), state), *(Slot(Place("actors", index, 0), "dead") for index in (1, 2))]
    groups: Any = {"actors": SimpleNamespace(restart=RestartRule(hang_timeout=HANG))}
    clock, guard = ManualClock(), Guard()
    began = clock.now()
    while clock.now() - began < most:
        for seat, what in stuck(seats, scheduler, groups, guard, clock):
            assert seat is seats[0]
            assert seat.last_words.startswith(what)
            return clock.now() - began
        clock.advance(0.5)
    return None


@pytest.mark.parametrize("state", ["starting", "running"])
def test_one_whom_somebody_stopped_is_found_at_once_also_at_its_start(state: str) -> None:
    assert seconds_until_found(state, stopped=True) == pytest.approx(FROZEN_SECONDS, abs=1.0)


def test_a_start_may_take_longer_than_a_step_but_not_for_ever() -> None:
    assert seconds_until_found("running") == pytest.approx(HANG, abs=1.0)
    assert seconds_until_found("starting") == pytest.approx(START_SECONDS, abs=1.0)


def test_who_has_no_process_yet_does_not_hang() -> None:
    assert seconds_until_found("starting", pid=0) is None
