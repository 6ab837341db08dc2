"""A worker's gauges in shared memory: what it does now, how long it did what, how far it came."""

from __future__ import annotations

from enum import IntEnum
from time import monotonic_ns

import numpy as np

from srl.base.shared_memory import Memory
from srl.base.tree import Array

PAGE_BYTES = 1024
WORDS = 40
"""So many of a page's numbers are in use."""


class Phase(IntEnum):
    """What a worker spends its time with. Hangs are judged by phase: waiting may take for ever, a step may not."""

    BOOT = 0
    WAITING = 1
    ENV = 2
    INFERENCE = 3
    UPDATE = 4
    GATHER = 5
    PUBLISH = 6
    OTHER = 7


class Counter(IntEnum):
    """Figures that only their own worker writes."""

    PROGRESS = 16
    DECISIONS = 17
    """Made by an actor's lanes."""
    UPDATES = 18
    VERSION = 19
    LAG_SUM = 20
    LAG_COUNT = 21
    LAG_MAX = 22
    QUEUED = 23
    CAPACITY = 24
    POSTED = 25
    CONSUMED = 26
    DROPPED = 27
    BATCHES = 28
    BATCHED_LANES = 29
    LANE_FAILURES = 30
    UNRECORDED = 31
    SKIPPED_UPDATES = 32
    FIRST_UPDATE_NS = 33
    LEARNED = 34
    """Decisions that a trainer learned from."""
    CUT = 35
    """TCP connections that it broke on purpose, for `srl chaos`."""


_PHASE = 8
SINCE = 9
"""Which of the numbers says when the phase was entered."""


class Meter:
    """One page of the run's board. A write is a store into shared memory: cheap enough for every step."""

    def __init__(self, page: memoryview) -> None:
        self._page = page
        # What the page says too; to look there costs more. Only the worker itself enters phases.
        self._phase, self._since = page[_PHASE], page[SINCE]

    @classmethod
    def alone(cls) -> Meter:
        """A meter that nobody else sees."""
        return cls(memoryview(bytearray(PAGE_BYTES)).cast("q"))

    def enter(self, phase: Phase) -> None:
        """From now on the worker's time counts for `phase`."""
        now = monotonic_ns()
        page = self._page
        page[self._phase] += now - self._since
        page[SINCE] = self._since = now
        page[_PHASE] = self._phase = phase

    def add(self, counter: Counter, amount: int = 1) -> None:
        self._page[counter] += amount

    def set(self, counter: Counter, value: int) -> None:
        self._page[counter] = value

    def get(self, counter: Counter) -> int:
        return self._page[counter]

    def phase(self) -> Phase:
        return Phase(self._page[_PHASE])

    def stamp(self) -> int:
        """When the phase was entered: as long as this changes, the worker is alive, be it only waiting."""
        return self._page[SINCE]

    def seconds(self) -> dict[Phase, float]:
        """Time spent in each phase so far, the running one included."""
        now = monotonic_ns()
        page = self._page
        spent = {phase: page[phase] * 1e-9 for phase in Phase}
        if page[SINCE]:
            spent[self.phase()] += max(0, now - page[SINCE]) * 1e-9
        return spent

    def words(self) -> Array:
        """A copy of everything: [WORDS] int64."""
        return np.array(self._page[:WORDS], np.int64)

    def begin(self) -> None:
        """A new incarnation starts here: clear the page."""
        for index in range(len(self._page)):
            self._page[index] = 0
        self._phase = Phase.BOOT
        self._page[SINCE] = self._since = monotonic_ns()


class Board:
    """The pages of all workers of a run on this host."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    @classmethod
    def create(cls, num_pages: int) -> Board:
        return cls(Memory.create("board", num_pages * PAGE_BYTES))

    @property
    def num_pages(self) -> int:
        return self.memory.nbytes // PAGE_BYTES

    def meter(self, page: int) -> Meter:
        view = memoryview(self.memory.bytes.data)[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]
        return Meter(view.cast("q"))
