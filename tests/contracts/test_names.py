"""The contract of name services, checked for all implementations."""

from __future__ import annotations

import pytest

from srl.api.transport import NameService
from srl.names.table import NameTable, NameView
from srl.testing.contexts import SharedNames


def view_of_a_table() -> NameService:
    """A worker's view that receives each new table, as from the controller."""
    table = NameTable()

    def register(name: str, address: str) -> None:
        table.register(name, address, "worker")
        view.replace(table.lookup(""))

    view = NameView(register)
    return view


@pytest.fixture(params=[view_of_a_table, lambda: SharedNames({})], ids=["view", "shared"])
def names(request: pytest.FixtureRequest) -> NameService:
    service: NameService = request.param()
    return service


def test_it_implements_the_contract(names: NameService) -> None:
    assert isinstance(names, NameService)


def test_entries_are_found_by_prefix(names: NameService) -> None:
    assert names.lookup("") == {}
    names.register("push/a/trainers/0", "unix:/x")
    names.register("push/a/trainers/1", "unix:/y")
    names.register("push/ab/trainers/0", "tcp:host:1")
    assert names.lookup("push/a/") == {"push/a/trainers/0": "unix:/x", "push/a/trainers/1": "unix:/y"}
    assert len(names.lookup("push/")) == 3
    assert names.lookup("request/") == {}


def test_a_later_registration_replaces_an_earlier_one(names: NameService) -> None:
    names.register("push/a/trainers/0", "unix:/old")
    names.register("push/a/trainers/0", "unix:/new")
    assert names.lookup("push") == {"push/a/trainers/0": "unix:/new"}
