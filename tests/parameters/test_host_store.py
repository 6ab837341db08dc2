"""One copy of the parameters serves all processes of a host."""

from __future__ import annotations

import os
import signal
from functools import partial

import msgspec
import numpy as np
from support.waiting import until

from srl.base.shared_memory import Memory
from srl.parameters.host import HostParameterStore


def test_a_process_forked_earlier_sees_what_is_pushed_later() -> None:
    store = HostParameterStore.create("policy")
    answer = Memory.create("answer", 64)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            found = until(lambda: store.pull("best", newer_than=4) if "best" in store.versions() else None)
            answer.array(0, (2,), "float64")[...] = found[0], found[1].sum()
            store.note(5, {"seen": 1.0})
            code = 0
        finally:
            os._exit(code)
    store.push(5, np.full(100_000, 2.0, np.float32), tags=("best",))
    assert os.waitpid(child, 0)[1] == 0
    assert answer.array(0, (2,), "float64").tolist() == [5.0, 200_000.0]
    assert store.notes() == {5: {"seen": 1.0}}
    store.memory.close()
    answer.close()


def test_many_readers_share_one_copy() -> None:
    store = HostParameterStore.create("policy")
    readers = [HostParameterStore(Memory.from_fd(os.dup(store.memory.fd))) for _ in range(5)]
    store.push(0, np.ones(1000, np.float32))
    assert len({os.fstat(reader.memory.fd).st_ino for reader in (store, *readers)}) == 1
    assert [reader.version for reader in readers] == [0] * 5
    for one in (store, *readers):
        one.memory.close()


def test_a_process_killed_while_writing_notes_leaves_the_previous_ones() -> None:
    store = HostParameterStore.create("policy")
    store.push(0, np.zeros(4, np.float32), tags=("kept",))
    for _ in range(6):
        before = store.notes().get(1, {}).get("count", 0.0)
        child = os.fork()
        if child == 0:
            count = before
            while True:
                count += 1
                store.note(1, {"count": count, **{f"padding-{n}": count for n in range(200)}})
        until(partial(lambda goal: store.notes().get(1, {}).get("count", 0.0) > goal, before + 3))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        facts = store.notes()[1]
        assert set(facts.values()) == {facts["count"]}
        assert store.versions()["kept"] == 0
    store.memory.close()


def test_a_partial_page_of_notes_is_never_read() -> None:
    """The writer was killed at the worst moment: the other page is damaged and not yet selected."""
    store = HostParameterStore.create("policy")
    store.note(1, {"score": 2.0})
    valid, pages = store._pages()
    damaged = pages[1 - int(valid[0])]
    damaged[:] = 0xFF
    assert store.notes() == {1: {"score": 2.0}}
    store.note(2, {"score": 3.0})
    assert store.notes() == {1: {"score": 2.0}, 2: {"score": 3.0}}
    assert msgspec.json.encode(store.notes())
    store.memory.close()
