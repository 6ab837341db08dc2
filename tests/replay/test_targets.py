"""Targets that are made again: none older than the bound is drawn, none is torn, also after a kill at any moment."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from replay.test_recovery import killed_after

from srl.api.block import BlockSpec
from srl.api.dataflow import Priorities, Reanalysis, Replay, Sequences
from srl.base.shared_memory import KeptFile
from srl.base.tree import Array, ArraySpec
from srl.replay.memory import Drawn, ReplayMemory
from srl.replay.storage import Arena

HORIZON, LANES, ROWS, MAX_AGE = 4, 2, 3, 5
DECISION = {
    "action": ArraySpec((), "int64"),
    "policy": ArraySpec((2,), "float32"),
    "value": ArraySpec((), "float32"),
}
SPEC = BlockSpec(HORIZON, LANES, ArraySpec((1,), "float32"), DECISION)


def memory_of(arena: Arena | None = None, num_blocks: int = 6, **options: Any) -> ReplayMemory:
    flow = Replay(Sequences(4), 8, num_blocks * HORIZON * LANES, reanalysis=Reanalysis(MAX_AGE, ROWS), **options)
    return ReplayMemory(flow, SPEC, 0, arena=arena)


def block(number: int) -> dict[str, Array]:
    """Return a block whose decisions were made by version `number`; observations are the numbers of the steps."""
    found = {path: spec.empty(SPEC.rows, LANES) for path, spec in SPEC.arrays()}
    for path, array in found.items():
        array[...] = 0 if path in ("terminated", "truncated", "first") else number
    found["acting"][...] = True
    found["observation"][..., 0] = (number * HORIZON + np.arange(SPEC.rows))[:, None]
    return found


def filled(arena: Arena | None = None, num_blocks: int = 6, **options: Any) -> ReplayMemory:
    memory = memory_of(arena, num_blocks, **options)
    if not memory.recovered:
        for number in range(num_blocks):
            memory.insert(block(number), "track", number * HORIZON)
    return memory


class Search:
    """A search whose targets say which version made them: the value is the version, and so are the probabilities."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.found: list[float] = []

    def __call__(self, observation: Array) -> tuple[dict[str, Array], int]:
        self.found += observation[:, 0].tolist()
        value = np.full(len(observation), self.version, np.float32)
        return {"policy": np.stack([value, -value], 1), "value": value}, self.version


def check(memory: ReplayMemory, drawn: Drawn, update: int) -> None:
    """All targets to learn from are of one version each, and within the bound."""
    batch: Any = drawn.batch
    rows = batch.acting[:, :ROWS]
    value, policy = batch.decision["value"][:, :ROWS][rows], batch.decision["policy"][:, :ROWS][rows]
    assert (np.abs(policy) == value[:, None]).all()
    assert value.min() >= update - MAX_AGE


def test_targets_older_than_the_bound_are_made_again_before_a_batch_is_given() -> None:
    memory, search = filled(), Search(8)
    for update in (8, 8, 9):
        drawn = memory.draw(4, 0.0)
        age = memory.refresh(drawn, update, search)
        check(memory, drawn, update)
        assert 0 <= age <= MAX_AGE
    assert max(search.found) < 4 * HORIZON + 1, "decisions of versions 4 and 5 are new enough; a block has one more row"
    assert len(search.found) <= 5 * SPEC.rows * LANES, "each row at most once: its new targets are remembered"


def test_rows_beyond_those_that_are_learned_from_are_not_searched() -> None:
    """A sequence of one block: only its first three rows need targets."""
    memory, search = filled(num_blocks=2), Search(50)
    drawn = memory.draw(1, 0.0, 1)
    batch: Any = drawn.batch
    memory.refresh(drawn, 50, search)
    assert sorted(search.found) == sorted(batch.observation[0, :ROWS, 0, 0][batch.acting[0, :ROWS, 0]].tolist())


def test_targets_that_arrive_late_are_ignored() -> None:
    memory = filled()
    targets: Any = memory.targets
    rows = targets.next_rows(1000, older_than=3)
    assert len(rows.places) == 3 * SPEC.rows * LANES
    made = Search(7)(rows.observation)[0]
    assert targets.rewrite(rows, made, 7) == len(rows.places)
    assert targets.rewrite(rows, Search(6)(rows.observation)[0], 6) == 0, "the memory has newer ones"
    memory.insert(block(6), "track", 6 * HORIZON)  # replaces block 0
    assert targets.rewrite(rows, Search(9)(rows.observation)[0], 9) == 2 * SPEC.rows * LANES


def test_rows_are_handed_out_in_turns() -> None:
    targets: Any = filled().targets
    parts = [targets.next_rows(7, older_than=2).places for _ in range(4)]
    assert [len(part) for part in parts] == [7, 7, 7, 7]
    assert len(np.unique(np.concatenate(parts[:2]))) == 14
    assert len(np.unique(np.concatenate(parts))) == 2 * SPEC.rows * LANES
    assert not len(targets.next_rows(7, older_than=0).places)


def test_priorities_stay_after_a_rewrite() -> None:
    memory = filled(priorities=Priorities())
    drawn = memory.draw(2, 0.0)
    memory.feedback(drawn, np.arange(16.0).reshape(2, 8))
    before = memory.mass
    memory.refresh(memory.draw(2, 0.0), 20, Search(20))
    assert memory.mass == before


def test_versions_are_restored_with_the_memory() -> None:
    memory, other = filled(), memory_of()
    memory.refresh(memory.draw(8, 0.0), 9, Search(9))
    other.restore(memory.state())
    search = Search(9)
    other.refresh(other.draw(8, 0.0), 9, search)
    again = Search(9)
    memory.refresh(memory.draw(8, 0.0), 9, again)
    assert search.found == again.found


def test_a_kill_at_any_moment_of_a_rewrite_leaves_no_torn_targets() -> None:
    """The targets are new enough for the next batch before they are rewritten: only torn ones must be made again."""
    stopped, lines = True, 0
    while stopped:
        kept = KeptFile.create("test")
        targets: Any = filled(Arena(kept.window(0))).targets
        rows = targets.next_rows(1000, older_than=6)
        made = Search(8)(rows.observation)[0]
        stopped = killed_after(lines, partial(targets.rewrite, rows, made, 8))
        other = filled(Arena(kept.window(0)))
        assert other.recovered
        drawn = other.draw(6, 0.0)
        assert other.refresh(drawn, 5, Search(8)) <= MAX_AGE
        check(other, drawn, 5)
        kept.close()
        lines += 1
    assert lines > 8


def test_a_reanalysis_needs_the_arrays_that_it_rewrites() -> None:
    flow = Replay(Sequences(4), 8, 100, reanalysis=Reanalysis(1, 1, ("policy", "outlook")))
    with pytest.raises(ValueError, match="decision/outlook"):
        ReplayMemory(flow, SPEC, 0)
    with pytest.raises(ValueError, match="0 or more"):
        Reanalysis(-1, 1)
