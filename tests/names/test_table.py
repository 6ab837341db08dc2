"""Leases: entries live as long as their owners, and disappear with them."""

from __future__ import annotations

import pytest

from srl.base.clock import ManualClock
from srl.names.table import NameTable, NameView


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def table(clock: ManualClock) -> NameTable:
    made = NameTable(clock, lease=10.0)
    made.register("a/0", "unix:/a0", "actors/0")
    made.register("a/1", "unix:/a1", "actors/0")
    made.register("t/0", "unix:/t0", "trainers/0")
    return made


def watch(table: NameTable, clock: ManualClock, seconds: int) -> bool:
    """So much time, in which the table is looked at every second; True if anything ran out."""
    gone = False
    for _ in range(seconds):
        clock.advance(1.0)
        gone |= table.expire()
    return gone


def test_entries_that_are_not_renewed_run_out(table: NameTable, clock: ManualClock) -> None:
    watch(table, clock, 6)
    table.renew("trainers/0")
    assert not watch(table, clock, 4)  # exactly ten seconds: the lease has not run out yet
    assert watch(table, clock, 1)
    assert table.lookup("") == {"t/0": "unix:/t0"}
    assert watch(table, clock, 6)
    assert not table.expire()
    assert table.lookup("") == {}


def test_a_pause_of_our_own_ends_no_lease(table: NameTable, clock: ManualClock) -> None:
    clock.advance(3600.0)  # the machine slept: nobody could renew anything
    assert not table.expire()
    watch(table, clock, 5)
    table.renew("trainers/0")
    watch(table, clock, 9)
    assert table.lookup("") == {"t/0": "unix:/t0"}


def test_renewing_keeps_all_entries_of_an_owner(table: NameTable, clock: ManualClock) -> None:
    for _ in range(5):
        watch(table, clock, 9)
        table.renew("actors/0")
    assert table.lookup("") == {"a/0": "unix:/a0", "a/1": "unix:/a1"}


def test_revoking_forgets_an_owner_and_nobody_else(table: NameTable) -> None:
    assert table.revoke("actors/0")
    assert not table.revoke("actors/0")
    assert not table.revoke("nobody")
    assert table.lookup("") == {"t/0": "unix:/t0"}


def test_who_takes_a_name_over_keeps_it_when_the_former_owner_goes(table: NameTable) -> None:
    table.register("a/0", "unix:/heir", "actors/1")
    table.revoke("actors/0")
    assert table.lookup("a/") == {"a/0": "unix:/heir"}


def test_a_registration_begins_a_new_lease_of_all_that_its_owner_has(table: NameTable, clock: ManualClock) -> None:
    watch(table, clock, 9)
    table.register("a/0", "unix:/again", "actors/0")
    watch(table, clock, 5)
    assert table.lookup("a/")["a/0"] == "unix:/again"
    assert table.lookup("t/") == {}


def test_a_view_tells_its_controller_and_shows_what_it_was_told() -> None:
    told: list[tuple[str, str]] = []
    view = NameView(lambda name, address: told.append((name, address)))
    view.register("x", "unix:/x")
    assert told == [("x", "unix:/x")]
    assert view.lookup("") == {}  # until the controller sends its table
    view.replace({"x": "unix:/x", "y": "unix:/y"})
    assert view.lookup("x") == {"x": "unix:/x"}
    view.replace({})
    assert view.lookup("") == {}
