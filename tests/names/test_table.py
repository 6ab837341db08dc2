"""Entries of the name table are removed with their owner."""

from __future__ import annotations

import pytest

from srl.api.control import FromWorker, Register
from srl.base.wire import Codec, DecodeError
from srl.names.table import NameTable, NameView


@pytest.fixture
def table() -> NameTable:
    made = NameTable()
    made.register("a/0", "unix:/a0", "actors/0")
    made.register("a/1", "unix:/a1", "actors/0")
    made.register("t/0", "unix:/t0", "trainers/0")
    return made


def test_revoking_an_owner_removes_only_its_entries(table: NameTable) -> None:
    assert table.revoke("actors/0")
    assert not table.revoke("actors/0")
    assert not table.revoke("unknown")
    assert table.lookup("") == {"t/0": "unix:/t0"}


def test_a_name_that_was_taken_over_stays_when_its_previous_owner_is_revoked(table: NameTable) -> None:
    table.register("a/0", "unix:/new", "actors/1")
    table.revoke("actors/0")
    assert table.lookup("a/") == {"a/0": "unix:/new"}


@pytest.mark.parametrize(
    ("name", "address"),
    [("a\0b", "unix:/a"), ("a", "unix:/a\0b"), ("", "unix:/a"), ("a\n", "unix:/a"), ("a", "x" * 2000)],
)
def test_a_malformed_registration_is_refused_before_it_reaches_the_table(name: str, address: str) -> None:
    codec = Codec(FromWorker)
    codec.decode(b"".join(codec.encode(Register("push/actors/0", "host:a;unix:/a;tcp:127.0.0.1:1/push%00"))))
    with pytest.raises(DecodeError, match="invalid header"):
        codec.decode(b"".join(codec.encode(Register(name, address))))


def test_a_view_sends_registrations_and_shows_the_table_it_received() -> None:
    sent: list[tuple[str, str]] = []
    view = NameView(lambda name, address: sent.append((name, address)))
    view.register("x", "unix:/x")
    assert sent == [("x", "unix:/x")]
    assert view.lookup("") == {}  # until the controller sends its table
    view.replace({"x": "unix:/x", "y": "unix:/y"})
    assert view.lookup("x") == {"x": "unix:/x"}
    view.replace({})
    assert view.lookup("") == {}
