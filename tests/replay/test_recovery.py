"""A replay memory whose process is killed at any moment: its replacement continues with complete blocks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay.reference import ReferenceMemory, Source, spec_of
from replay.test_memory import all_drawn, flow

from srl.api.dataflow import Priorities
from srl.base.shared_memory import KeptFile
from srl.base.tree import leaves
from srl.replay.memory import ReplayMemory
from srl.replay.storage import Arena

PACKAGE = str(Path(sys.modules[ReplayMemory.__module__].__file__ or "").parent)


class Killed(BaseException):
    """The process ends here."""


def killed_after(num_lines: int, call: Callable[[], Any]) -> bool:
    """Call a function, but stop it before its line number `num_lines`, of all the lines of `srl.replay` that it
    executes. Return whether it was stopped."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            count += 1
            if count > num_lines:
                raise Killed
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Killed:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.fixture(params=["memory", "disk"])
def kept(request: Any, tmp_path: Path) -> Iterator[KeptFile]:
    file = KeptFile.create("test", None if request.param == "memory" else tmp_path / "replay")
    yield file
    file.close()


def expected_of(spec: Any, num_slots: int, blocks: list[tuple]) -> dict[float, tuple]:
    reference = ReferenceMemory(spec, num_slots, 3, 0.9)
    for block in blocks:
        reference.insert(*block)
    return reference.transitions()


def assert_consistent(memory: ReplayMemory, expected: dict[float, tuple]) -> None:
    """Assert that the memory draws only these transitions, and has as many."""
    assert memory.size == len(expected)
    found = all_drawn(memory, 4) if expected else {}
    assert set(found) <= set(expected)
    one, other = (np.array([np.hstack(each[key]) for key in found]) for each in (found, expected))
    np.testing.assert_allclose(one, other, rtol=1e-6)


@settings(max_examples=10, deadline=None)
@given(
    horizon=st.integers(1, 4),
    lanes=st.integers(1, 2),
    num_slots=st.integers(2, 5),
    num_blocks=st.integers(0, 12),
    prioritized=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_an_insert_that_is_killed_at_any_line_loses_at_most_the_oldest_block(
    horizon, lanes, num_slots, num_blocks, prioritized, seed
):
    rng = np.random.default_rng(seed)
    spec = spec_of(horizon, lanes)
    dataflow = flow(
        num_slots * horizon * lanes, 3, gamma=0.9, priorities=Priorities() if prioritized else None, batch=16
    )
    sources = [Source(spec, rng, 1_000_000 * (1 + i), 0.3) for i in range(2)]
    file = KeptFile.create("test")
    blocks: list[tuple] = []

    def block() -> tuple:
        number = int(rng.integers(2))
        arrays, step = sources[number].block()
        return arrays, ("actor", number), step

    memory = ReplayMemory(dataflow, spec, 0, arena=Arena(file.window(3)))
    assert not memory.recovered
    for _ in range(num_blocks):
        blocks.append(block())
        memory.insert(*blocks[-1])
    line = 0
    while True:
        new = block()
        was_killed = killed_after(line, partial(memory.insert, *new))
        memory = ReplayMemory(dataflow, spec, 0, arena=Arena(file.window(3)))
        assert memory.recovered
        complete = memory._ring.num_inserted > len(blocks)
        if complete:
            blocks.append(new)
            expected = expected_of(spec, num_slots, blocks)
        else:
            expected = expected_of(spec, num_slots, blocks)
            if memory.size != len(expected) or (len(blocks) >= num_slots and not memory._ring.generation.all()):
                expected = expected_of(spec, num_slots - 1, blocks)
        assert_consistent(memory, expected)
        assert memory.collected == sum(int(np.count_nonzero(each["acting"][:-1])) for each, _, _ in blocks)
        if not was_killed:
            break
        line += 1 + int(rng.integers(4))
    assert complete
    file.close()


@pytest.mark.parametrize("priorities", [None, Priorities()])
def test_a_recovered_memory_continues_exactly(kept, priorities):
    rng = np.random.default_rng(0)
    spec = spec_of(3, 2)
    dataflow = flow(24, n_step=3, priorities=priorities)
    memories = [ReplayMemory(dataflow, spec, 7), ReplayMemory(dataflow, spec, 7, arena=Arena(kept.window(0)))]
    source = Source(spec, rng, 0, 0.2)
    for number in range(14):
        arrays, step = source.block()
        errors = rng.random((2, 8))
        results = []
        if number % 3 == 2:
            memories[1] = ReplayMemory(dataflow, spec, 99, arena=Arena(kept.window(0)))
        for one in memories:
            one.insert(arrays, ("actor", 0), step)
            drawn = one.draw(2, 0.5)
            results.append(drawn.batch)
            one.feedback(drawn, errors)
        for (path, left), (_, right) in zip(*(leaves(vars(batch)) for batch in results), strict=True):
            assert np.array_equal(left, right), path
    assert memories[0].size == memories[1].size
    assert memories[0].collected == memories[1].collected


def test_a_memory_of_another_layout_starts_empty(kept):
    spec = spec_of(3, 2)
    memory = ReplayMemory(flow(24), spec, 0, arena=Arena(kept.window(0)))
    source = Source(spec, np.random.default_rng(0), 0, 0.0)
    memory.insert(source.block()[0], "a", 0)
    assert ReplayMemory(flow(24), spec, 0, arena=Arena(kept.window(0))).size == 6
    other = ReplayMemory(flow(48), spec, 0, arena=Arena(kept.window(0)))
    assert (other.recovered, other.size) == (False, 0)
    assert not other._ring.flags.any()
    again = ReplayMemory(flow(24), spec, 0, arena=Arena(kept.window(0)))
    assert (again.recovered, again.size) == (False, 0)


def test_windows_of_one_file_are_independent_and_can_be_freed(kept):
    spec = spec_of(3, 2)
    source = Source(spec, np.random.default_rng(0), 0, 0.0)
    for index in (2, 0):
        memory = ReplayMemory(flow(24), spec, 0, arena=Arena(kept.window(index)))
        for _ in range(index + 1):
            memory.insert(source.block()[0], "a", 0)
    kept.window(0).free_beyond(1)
    sizes = [ReplayMemory(flow(24), spec, 0, arena=Arena(kept.window(index))).size for index in (0, 2)]
    assert sizes == [6, 0]


def test_a_disk_that_is_full_is_an_error_before_anything_is_written(kept, monkeypatch):
    if not kept.on_disk:
        pytest.skip("memory is not reserved")

    def refuse(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", refuse)
    with pytest.raises(MemoryError, match="No space left"):
        ReplayMemory(flow(24), spec_of(3, 2), 0, arena=Arena(kept.window(0)))
