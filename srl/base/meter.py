"""A worker's gauges in shared memory: its current phase, the time spent in each phase, and its counters."""

from __future__ import annotations

from enum import IntEnum
from time import monotonic_ns

import numpy as np

from srl.base.shared_memory import Memory
from srl.base.tree import Array

PAGE_BYTES = 1024
WORDS = 48  # number of 64-bit words used on a page
_PHASE = 8
PHASE_START = 9  # index of the word that holds the start time of the current phase


class Phase(IntEnum):
    """Kinds of work. Hang detection depends on the phase: a worker may wait indefinitely, but a step must finish."""

    BOOT = 0
    WAITING = 1
    ENV = 2
    INFERENCE = 3
    UPDATE = 4
    PUBLISH = 5
    OTHER = 6


class Counter(IntEnum):
    """A worker's counters, which only the worker itself writes."""

    PROGRESS = 16
    DECISIONS = 17  # actions taken by an actor's lanes
    VERSION = 18
    LAG_SUM = 19  # lag in versions of the samples that a trainer learned from: sum, count and maximum
    LAG_COUNT = 20
    LAG_MAX = 21
    QUEUED = 22
    """Fraction of a trainer's next batch that is queued, in thousandths. The next three counters count its blocks."""
    POSTED = 23
    CONSUMED = 24
    DROPPED = 25
    BATCHES = 26  # a policy worker's batches, and the lanes in them
    BATCHED_LANES = 27
    LANE_FAILURES = 28
    UNRECORDED = 29  # actions that trainers never see: by frozen policies, or taken while no block was open
    SKIPPED_UPDATES = 30
    FIRST_UPDATE_NS = 31
    LEARNED = 32  # samples that a trainer learned from
    DISTURBED_CONNECTIONS = 33  # TCP connections that the worker closed or slowed on purpose, for `srl chaos`
    REFUSED_CONNECTIONS = 34  # TCP connections of strangers, and those closed because of a malformed frame
    REPLAY_SIZE = 35  # decisions in a trainer's replay memory, how many fit, and their bytes
    REPLAY_CAPACITY = 36
    REPLAY_BYTES = 37
    REPLAY_WARMUP = 38  # decisions that are missing before the first gradient step
    REPLAY_DECISIONS = 39  # decisions collected after the warm-up, and the gradient steps since then
    REPLAY_STEPS = 40
    REPLAY_AGE = 41  # mean age of the last batch, in decisions collected since
    TARGET_AGE = 42  # highest age of reanalyzed targets in the last batch, in versions
    REANALYZED = 43  # rows whose targets a reanalyze worker has made again
    COMPILING = 44  # 1 while Numba compiles functions in the worker's process


class Meter:
    """One page of a run's meter table. A write is a store to shared memory, cheap enough to do at every step."""

    def __init__(self, page: memoryview) -> None:
        self._page = page
        # Copies of the page's values: reading the page costs more, and only the worker itself changes its phase.
        self._phase, self._start = page[_PHASE], page[PHASE_START]

    @classmethod
    def unshared(cls) -> Meter:
        """Create a meter in this process's private memory."""
        return cls(memoryview(bytearray(PAGE_BYTES)).cast("q"))

    def enter(self, phase: Phase) -> None:
        """Enter a phase: from now on, the worker's time counts toward `phase`."""
        now = monotonic_ns()
        page = self._page
        page[self._phase] += now - self._start
        page[PHASE_START] = self._start = now
        page[_PHASE] = self._phase = phase

    def add(self, counter: Counter, amount: int = 1) -> None:
        self._page[counter] += amount

    def set(self, counter: Counter, value: int) -> None:
        self._page[counter] = value

    def get(self, counter: Counter) -> int:
        return self._page[counter]

    def phase(self) -> Phase:
        return Phase(self._page[_PHASE])

    def phase_start(self) -> int:
        """Return the start time of the current phase. It keeps changing even while a live worker only waits."""
        return self._page[PHASE_START]

    def seconds(self) -> dict[Phase, float]:
        """Return the time spent in each phase so far, including the current one."""
        spent = {phase: self._page[phase] * 1e-9 for phase in Phase}
        if start := self.phase_start():
            spent[self.phase()] += max(0, monotonic_ns() - start) * 1e-9
        return spent

    def words(self) -> Array:
        """Return a copy of all numbers: [WORDS] int64."""
        return np.array(self._page[:WORDS], np.int64)

    def reset(self) -> None:
        """Clear the page for a new incarnation of the worker."""
        for index in range(len(self._page)):
            self._page[index] = 0
        self._phase = Phase.BOOT
        self._page[PHASE_START] = self._start = monotonic_ns()


class MeterTable:
    """Meters of all of a run's workers on this host."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    @classmethod
    def create(cls, num_pages: int) -> MeterTable:
        return cls(Memory.create("meters", num_pages * PAGE_BYTES))

    @property
    def num_pages(self) -> int:
        return self.memory.nbytes // PAGE_BYTES

    def meter(self, page: int) -> Meter:
        view = memoryview(self.memory.bytes.data)[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]
        return Meter(view.cast("q"))
