"""The part of a replay that one worker keeps: its memory, and what each of the last updates inserted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from srl.api.dataflow import Replay, arrays_of
from srl.api.streams import Inserted, PostedBlock
from srl.base.meter import Counter
from srl.base.shared_memory import KeptMemory
from srl.base.tree import Array
from srl.replay.goals import GoalRewards
from srl.replay.memory import Drawn, ReplayMemory
from srl.replay.storage import Arena
from srl.replay.targets import StaleRows
from srl.streams.push import PushStream
from srl.workers.reanalyzer import Reanalyzer
from srl.workers.trainer.batches import episodes_of, labels_of, lags_of

DECISIONS, STEPS = 0, 1  # counts since the warm-up: decisions in all shards, gradient steps
NO_LAGS = np.zeros(0, np.int64)


@dataclass(frozen=True)
class _Insertion:
    """What an update inserted."""

    facts: Inserted
    lags: Array
    new: Mapping[str, Array]  # observations of new decisions by path, if the dataflow `keeps_new`


class ReplayShard:
    """One of several equal parts of a replay, fed by one consumer of the push stream. With `kept`, memory and counts
    outlive this process."""

    def __init__(
        self,
        flow: Replay,
        stream: PushStream,
        seed: int,
        kept: KeptMemory | None = None,
        rewards: GoalRewards | None = None,
        reanalyzer: Reanalyzer | None = None,
    ) -> None:
        self._flow, self._stream = flow, stream
        shards, arena = stream.consumers, Arena(kept)
        self._counts = arena.array("shard counts", (2,), "int64")
        # Trainers say how many units they draw, so that the batch of the dataflow need not be a multiple of the shards.
        own = replace(flow, batch=shards, keeps_new=False)
        self._memory = ReplayMemory(own, stream.spec, seed, shards, arena, rewards)
        self._last = -1  # last update whose blocks were inserted
        self._history: dict[int, _Insertion] = {}  # by update, until no trainer can repeat it
        kinds = {path: spec for path, spec in stream.spec.arrays() if path.split("/")[0] == "observation"}
        self._nothing = {path: spec.empty(0) for path, spec in kinds.items() if flow.keeps_new}
        self._reanalyzer = reanalyzer
        self._target_age = 0
        self._counted = -1  # last update whose gradient steps are counted
        self._age = 0

    @property
    def size(self) -> int:
        """Number of decisions in the memory: those of an earlier process, at first."""
        return self._memory.size

    def lacks(self, update: int) -> bool:
        """Return whether the blocks of an update are to be inserted."""
        return update > self._last

    def insert(self, update: int, blocks: Sequence[PostedBlock]) -> None:
        memory, before = self._memory, self._memory.collected
        lags: list[Array] = []
        new: dict[str, list[Array]] = {path: [] for path in self._nothing}
        for posted in blocks:
            arrays = posted.block.arrays
            memory.insert(arrays, (posted.producer, posted.incarnation, posted.track), posted.first_step)
            lags.append(lags_of(update, posted.block.version, arrays["acting"]))
            for path, parts in new.items():
                parts.append(arrays[path][:-1][arrays["acting"][:-1]])
        count, after = memory.collected - before, memory.collected
        labels, episodes = labels_of(blocks), episodes_of(blocks)
        facts = Inserted(update, before, after, memory.size, memory.mass, count, labels, episodes)
        observations = {path: np.concatenate(parts) for path, parts in new.items()}
        self._history[update] = _Insertion(facts, np.concatenate(lags), observations)
        self._last = update

    def facts(self, update: int, reports: bool) -> tuple[Inserted, Array, Mapping[str, Array]]:
        """Return the facts after an update, and lags and observations of its decisions. A trainer that has lost an
        update, because it was killed, asks again: then the decisions count again, but no block is inserted twice."""
        memory, found = self._memory, self._history.get(update)
        facts = found.facts if found else Inserted(update, memory.collected, memory.collected, 0, 0.0)
        facts = msgspec.structs.replace(facts, size=memory.size, mass=memory.mass)
        if found and reports:
            return facts, found.lags, found.new
        return msgspec.structs.replace(facts, num_decisions=0, samples=(), episodes={}), NO_LAGS, self._nothing

    def forget(self, version: int) -> None:
        """Forget what the updates before a durable version inserted: no trainer repeats them."""
        for update in [update for update in self._history if update < version]:
            del self._history[update]

    def is_ready(self) -> bool:
        """Return whether targets can be new enough for the update whose blocks were inserted last."""
        return self._reanalyzer is None or self._reanalyzer.is_ready(self._last)

    def next_rows(self, count: int) -> StaleRows:
        """Return rows whose targets are older than half of the bound, in turns."""
        reanalysis, targets = self._flow.reanalysis, self._memory.targets
        assert reanalysis is not None
        assert targets is not None
        assert self._reanalyzer is not None
        return targets.next_rows(count, self._reanalyzer.version - reanalysis.max_age // 2)

    def rewrite(self, rows: StaleRows, targets: Mapping[str, Array], version: int) -> None:
        """Write new targets. Targets of a version that is not published yet are refused."""
        assert self._memory.targets is not None
        assert self._reanalyzer is not None
        if version <= self._reanalyzer.version:
            self._memory.targets.rewrite(rows, targets, version)

    def draw(self, num_steps: int, count: int) -> tuple[Mapping[str, Array], Drawn | None]:
        """Return arrays of minibatches by path, valid until the next draw; none if there is nothing to draw."""
        if num_steps and not self._memory.num_drawable:
            return {}, None
        drawn = self._memory.draw(num_steps, None, count)
        self._count(num_steps)
        if num_steps and self._reanalyzer is not None:
            self._target_age = self._memory.refresh(drawn, self._last, self._reanalyzer)
        if num_steps:
            self._age = self._memory.age_of(drawn)
        return arrays_of(drawn.batch), replace(drawn, index=drawn.index.copy(), generation=drawn.generation.copy())

    def _count(self, num_steps: int) -> None:
        """Count the gradient steps of an update after the warm-up, once. The other shards have about as many new
        decisions."""
        if self._last > self._counted and (num_steps or self._counts[STEPS]):
            found = self._history.get(self._last)
            self._counts[DECISIONS] += (found.facts.num_decisions if found else 0) * self._stream.consumers
            self._counts[STEPS] += num_steps
            self._counted = self._last

    def feedback(self, drawn: Drawn, priorities: Array) -> None:
        self._memory.feedback(drawn, priorities)

    def gauges(self) -> dict[Counter, int]:
        memory, shards = self._memory, self._stream.consumers
        return {
            Counter.REPLAY_SIZE: memory.size,
            Counter.REPLAY_CAPACITY: self._flow.capacity // shards,
            Counter.REPLAY_BYTES: memory.nbytes,
            Counter.REPLAY_WARMUP: max(0, self._flow.warmup - memory.collected * shards),
            Counter.REPLAY_DECISIONS: int(self._counts[DECISIONS]),
            Counter.REPLAY_STEPS: int(self._counts[STEPS]),
            Counter.REPLAY_AGE: self._age * shards,
            Counter.TARGET_AGE: self._target_age,
        }
