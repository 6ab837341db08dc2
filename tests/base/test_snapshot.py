"""States in shared memory are never read in part, even if their writer is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from support.waiting import until

from srl.base import snapshot as snapshots
from srl.base.shared_memory import Memory
from srl.base.snapshot import FACTS_BYTES, Snapshot


@pytest.fixture
def snapshot() -> Iterator[Snapshot]:
    made = Snapshot.create("test")
    yield made
    made.memory.close()
    made.__dict__.clear()  # pytest keeps a reference: free the mapping now


def state(number: int, size: int = 20_000) -> dict[str, np.ndarray]:
    """A state whose elements all equal the version."""
    return {"a": np.full(size, number, np.float32), "b": np.full((3, 5), number, np.int64)}


def check_complete(found: tuple[int, dict[str, np.ndarray], dict[str, object]] | None) -> int:
    assert found is not None
    version, arrays, facts = found
    assert facts["version"] == version
    for array in arrays.values():
        assert (array == version).all()
    return version


def test_a_new_snapshot_is_empty(snapshot: Snapshot) -> None:
    assert (snapshot.version, snapshot.active_slot, snapshot.read()) == (-1, None, None)


def test_the_newest_state_is_read_with_its_facts(snapshot: Snapshot) -> None:
    for version in (0, 1, 5, 6, 100):
        snapshot.write(version, state(version), {"version": version, "text": "ü"})
        assert snapshot.version == version
        found = snapshot.read()
        assert check_complete(found) == version
        assert found is not None
        assert found[2]["text"] == "ü"
        assert found[1]["b"].shape == (3, 5)


def test_read_returns_a_copy(snapshot: Snapshot) -> None:
    snapshot.write(1, state(1), {"version": 1})
    found = snapshot.read()
    assert found is not None
    for version in range(2, 6):
        snapshot.write(version, state(version), {"version": version})
    check_complete(found)


def test_kept_slots_are_not_overwritten(snapshot: Snapshot) -> None:
    kept = snapshot.write(1, state(1), {"version": 1})
    slots = {snapshot.write(v, state(v), {"version": v}, keep=frozenset({kept})) for v in range(2, 8)}
    assert kept not in slots
    assert check_complete(snapshot.read(kept)) == 1
    assert check_complete(snapshot.read()) == 7


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"a": np.zeros(3, np.float32)}, r"expected a state with the arrays \['a', 'b'\], found \['a'\]"),
        ({**state(1), "c": np.zeros(1)}, r"found \['a', 'b', 'c'\]"),
        (
            {**state(1), "b": np.zeros((5, 3), np.int64)},
            r"expected int64\(3, 5\), found int64\(5, 3\)",
        ),
        ({**state(1), "b": np.zeros((3, 5), np.int32)}, "found int32"),
    ],
    ids=["missing", "more", "shape", "dtype"],
)
def test_a_different_layout_is_refused_without_damage(
    snapshot: Snapshot, wrong: dict[str, np.ndarray], message: str
) -> None:
    snapshot.write(1, state(1), {"version": 1})
    with pytest.raises(ValueError, match=message):
        snapshot.write(2, wrong, {"version": 2})
    assert check_complete(snapshot.read()) == 1
    for version in range(2, 6):
        snapshot.write(version, state(version), {"version": version})
        assert check_complete(snapshot.read()) == version


def test_facts_that_do_not_fit_are_refused(snapshot: Snapshot) -> None:
    with pytest.raises(ValueError, match="metadata of a state takes"):
        snapshot.write(1, state(1), {"text": "x" * FACTS_BYTES})
    assert snapshot.read() is None


def test_a_process_that_mapped_it_earlier_sees_its_growth(snapshot: Snapshot) -> None:
    early = Snapshot(Memory.from_fd(os.dup(snapshot.memory.fd)))
    assert early.read() is None
    snapshot.write(3, state(3, 500_000), {"version": 3})
    assert early.version == 3
    assert check_complete(early.read()) == 3
    early.write(4, state(4, 500_000), {"version": 4})
    assert check_complete(snapshot.read()) == 4
    early.memory.close()


@pytest.mark.parametrize("where", ["thread", "process"])
def test_a_reader_never_sees_a_partial_state(snapshot: Snapshot, where: str) -> None:
    snapshot.write(0, state(0), {"version": 0})
    stop = Memory.create("stop", 8)

    def hammer() -> None:
        version = 0
        while not stop.bytes[0]:
            version += 1
            snapshot.write(version, state(version), {"version": version})

    child = 0
    thread = None
    if where == "process":
        child = os.fork()
        if child == 0:
            hammer()
            os._exit(0)
    else:
        thread = threading.Thread(target=hammer)
        thread.start()
    try:
        last = 0
        deadline = time.monotonic() + 0.7
        while time.monotonic() < deadline or last < 20:
            version = check_complete(snapshot.read())
            assert version >= last
            assert snapshot.version >= version
            last = version
    finally:
        stop.bytes[0] = 1
        stop.close()
        if thread is not None:
            thread.join()
        else:
            os.waitpid(child, 0)


def test_a_writer_that_is_killed_leaves_the_previous_state_intact(snapshot: Snapshot) -> None:
    """Each writer is killed at a random moment, and the next one continues."""
    snapshot.write(0, state(0), {"version": 0})
    version = 0
    for attempt in range(12):
        child = os.fork()
        if child == 0:
            number = snapshot.version
            while True:
                number += 1
                snapshot.write(number, state(number), {"version": number})
        until(partial(lambda goal: snapshot.version >= goal, version + 2 + attempt))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        version = check_complete(snapshot.read())
        assert snapshot.version == version


class Killed(BaseException):
    pass


def test_a_kill_at_any_store_leaves_a_complete_state_that_can_be_replaced(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Header:
        """Raises at the store number `lives`."""

        def __init__(self, inner: memoryview, lives: int) -> None:
            self.inner, self.lives = inner, lives

        def __getitem__(self, index: int) -> int:
            return int(self.inner[index])

        def __setitem__(self, index: int, value: int) -> None:
            if self.lives == 0:
                raise Killed
            self.lives -= 1
            self.inner[index] = value

    for version in range(3):
        snapshot.write(version, state(version), {"version": version})
    real = snapshot._header
    version = 2
    survived = 0
    for lives in range(8):
        snapshot._header = Header(real, lives)  # type: ignore[assignment]
        try:
            snapshot.write(version + 1, state(version + 1), {"version": version + 1})
            survived += 1
            version += 1
        except Killed:
            pass
        snapshot._header = real
        assert check_complete(snapshot.read()) == version == snapshot.version
        version += 1
        snapshot.write(version, state(version), {"version": version})  # the successor
        assert check_complete(snapshot.read()) == version == snapshot.version
    assert 0 < survived < 8


def test_too_many_arrays_are_refused(snapshot: Snapshot) -> None:
    many = {f"array-{number:06d}": np.zeros(1) for number in range(snapshots.HEADER_BYTES // 32)}
    with pytest.raises(ValueError, match="too many for the header"):
        snapshot.write(0, many, {})
