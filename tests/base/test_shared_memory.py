"""Memory that is shared by descriptor and freed with its last user."""

from __future__ import annotations

import os

import numpy as np
import pytest

from srl.base.shared_memory import Memory


def test_memory_is_zeroed_and_views_write_at_their_offset() -> None:
    memory = Memory.create("test", 256)
    assert not memory.bytes.any()
    view = memory.array(64, (2, 3), "float32")
    view[...] = 1.5
    assert memory.bytes[64:88].view("float32").tolist() == [1.5] * 6
    assert not memory.bytes[:64].any()
    assert not memory.bytes[88:].any()
    memory.close()


def test_two_mappings_show_the_same_bytes() -> None:
    memory = Memory.create("test", 64)
    other = Memory.from_fd(os.dup(memory.fd))
    assert other.nbytes == 64
    memory.bytes[7] = 42
    assert other.bytes[7] == 42
    memory.close()
    other.close()


def test_views_outlive_close_and_the_growth_of_the_memory() -> None:
    memory = Memory.create("test", 4096)
    view = memory.array(0, (4,), "int64")
    os.ftruncate(memory.fd, 8192)
    memory.remap()
    assert memory.nbytes == 8192
    memory.array(0, (4,), "int64")[...] = 9
    assert view.tolist() == [9] * 4
    memory.close()
    memory.close()
    view[0] = 1
    assert view.tolist() == [1, 9, 9, 9]


def test_a_child_that_inherits_it_writes_into_the_same_memory() -> None:
    memory = Memory.create("test", 64)
    child = os.fork()
    if child == 0:
        memory.bytes[3] = 7
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert memory.bytes[3] == 7
    memory.close()


def test_a_failed_allocation_leaves_no_descriptor_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(MemoryError, match=r"cannot allocate .* MB of shared memory \(huge\)"):
        Memory.create("huge", 2**62)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_view_beyond_the_end_raises() -> None:
    memory = Memory.create("test", 64)
    with pytest.raises(ValueError, match="reshape"):
        memory.array(32, (100,), "float32")
    assert isinstance(memory.bytes, np.ndarray)
    memory.close()
