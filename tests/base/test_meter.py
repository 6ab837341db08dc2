"""Meters in shared memory."""

from __future__ import annotations

import os

import pytest

from srl.base import meter as meters
from srl.base.meter import Counter, Meter, MeterTable, Phase


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A clock in nanoseconds that the test advances."""
    now = [1_000_000_000]
    monkeypatch.setattr(meters, "monotonic_ns", lambda: now[0])
    return now


def test_time_counts_for_the_phase_in_which_it_was_spent(clock: list[int]) -> None:
    meter = Meter.unshared()
    meter.reset()
    clock[0] += 2_000_000_000
    meter.enter(Phase.ENV)
    clock[0] += 3_000_000_000
    meter.enter(Phase.UPDATE)
    clock[0] += 4_000_000_000
    seconds = meter.seconds()
    assert (seconds[Phase.BOOT], seconds[Phase.ENV], seconds[Phase.UPDATE]) == (2.0, 3.0, 4.0)
    assert sum(seconds.values()) == 9.0
    assert meter.phase() is Phase.UPDATE
    assert meter.phase_start() == 6_000_000_000


def test_counters_are_independent_of_each_other_and_of_the_phases() -> None:
    meter = Meter.unshared()
    meter.reset()
    for number, counter in enumerate(Counter):
        meter.set(counter, 100 + number)
    for number, counter in enumerate(Counter):
        meter.add(counter)
        meter.add(counter, 10)
        assert meter.get(counter) == 111 + number
    assert meter.phase() is Phase.BOOT
    meter.reset()
    assert [meter.get(counter) for counter in Counter] == [0] * len(Counter)


def test_pages_of_a_table_are_separate_and_visible_to_other_processes() -> None:
    table = MeterTable.create(num_pages=3)
    assert table.num_pages == 3
    child = os.fork()
    if child == 0:
        meter = table.meter(1)
        meter.reset()
        meter.add(Counter.DECISIONS, 12)
        meter.enter(Phase.ENV)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert table.meter(1).get(Counter.DECISIONS) == 12
    assert table.meter(1).phase() is Phase.ENV
    assert [table.meter(page).get(Counter.DECISIONS) for page in (0, 2)] == [0, 0]
    table.memory.close()
