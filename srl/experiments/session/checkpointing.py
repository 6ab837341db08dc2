"""Saving a run: when a checkpoint is due, what goes into it, and what a resume takes out of it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srl.api.experiment import Experiment
from srl.api.scheduler import Scheduler
from srl.api.status import RunStatus
from srl.base.config import to_data
from srl.base.snapshot import Snapshot
from srl.base.state import NotResumable, NotYet, State
from srl.storage import checkpoints
from srl.storage.background_writer import BackgroundWriter
from srl.storage.checkpoints import Retention


@dataclass(frozen=True)
class Restored:
    """What a checkpoint holds, sorted apart."""

    source: Path
    states: dict[str, State]
    """Policy -> its trainer's state."""
    facts: dict[str, Any]
    workers: State | None
    """All that was under way; None: everything but the trainers begins anew."""
    why_not: str = ""
    """What keeps the run from going on exactly."""

    @property
    def policies(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.facts["policies"]
        return found

    @property
    def steps(self) -> int:
        return sum(int(facts["steps"]) for facts in self.policies.values())

    @property
    def version(self) -> int:
        return max(int(facts["version"]) for facts in self.policies.values())


def read(source: Path) -> Restored:
    """Everything in a checkpoint, verified."""
    arrays, facts = checkpoints.read(source)
    checkpoints.policies_in(source, facts)
    states: dict[str, dict[str, Any]] = {policy: {} for policy in facts["policies"]}
    for key, value in arrays.items():
        policy, _, name = key.partition("/")
        states[policy][name] = value
    workers = checkpoints.read_workers(source)
    return Restored(source, dict(states), facts, workers, facts.get("why_not_exact", ""))


def for_graph(restored: Restored, experiment: Experiment, scheduler: str) -> Restored:
    """The same, without what only fits another graph of workers."""
    if restored.workers is None:
        return restored
    if scheduler != "inline":
        why = "the run goes on in processes"
    elif restored.facts.get("graph") != fingerprint(experiment):
        why = "workers, streams or their sizes are other ones now"
    else:
        return restored
    return dataclasses.replace(restored, workers=None, why_not=why)


def fingerprint(experiment: Experiment) -> str:
    """The same for two experiments whose workers can take each other's place; how long they train does not matter."""
    groups = [[group.name, group.count, to_data(group.config.with_target_steps(0))] for group in experiment.groups]
    return hashlib.sha256(json.dumps(groups, sort_keys=True).encode()).hexdigest()


class Saver:
    """Writes a run's checkpoints from the trainers' committed states, which the supervisor holds: nobody is asked or
    disturbed. In a run of one thread everything else that is under way is saved along, if it can be."""

    def __init__(
        self,
        experiment: Experiment,
        root: Path,
        commits: Mapping[str, Snapshot],
        scheduler: Scheduler,
        retention: Retention,
        seconds: float,
        why_not_exact: str,
        tell: Callable[[str], None],
        scribe: BackgroundWriter,
    ) -> None:
        self._experiment = experiment
        self._root = root
        self._commits = commits
        self._scheduler = scheduler if scheduler.inline else None
        self._retention = retention
        self._seconds = seconds
        self._why_not = why_not_exact
        self._tell = tell
        self._scribe = scribe
        self._saved_updates = -1
        self._saved = time.monotonic()
        if self._scheduler is not None and self._why_not:
            self._warn()

    def _warn(self) -> None:
        self._tell(f"a resume of this run will begin its episodes anew, not go on bit for bit: {self._why_not}")

    def restore(self, restored: Restored) -> None:
        """Before the first worker starts."""
        for policy, state in restored.states.items():
            facts = restored.policies[policy]
            noted = {key: value for key, value in facts.items() if key != "version"}
            self._commits[policy].write(int(facts["version"]), state, noted)
        self._saved_updates = self._updates
        if self._scheduler is not None:
            if restored.workers is not None:
                self._scheduler.restore(restored.workers)
            else:
                self._tell(f"episodes begin anew: {restored.why_not or 'the checkpoint holds trainers only'}")

    @property
    def _updates(self) -> int:
        """Of all policies: each has its own pace, and its last update counts as much as another's."""
        return sum(snapshot.version for snapshot in self._commits.values())

    @property
    def due(self) -> bool:
        late = time.monotonic() - self._saved >= self._seconds
        return late and self._updates > self._saved_updates and not self._scribe.busy

    def save(self, status: RunStatus, episodes: dict[str, Any], whole: bool = True) -> None:
        """Begin to write a checkpoint if there is anything new. Without `whole` the workers are gone already."""
        updates = self._updates
        if updates <= self._saved_updates:
            return
        arrays: dict[str, Any] = {}
        facts: dict[str, Any] = {"policies": {}}
        for policy, snapshot in self._commits.items():
            committed = snapshot.read()
            if committed is None:
                return
            number, state, noted = committed
            arrays.update({f"{policy}/{key}": value for key, value in state.items()})
            facts["policies"][policy] = {**noted, "version": number}
        try:
            workers = self._workers() if whole else None
        except NotYet:
            return  # the next call comes soon
        facts |= {
            checkpoints.SCORE: status.return_mean,
            "return_mean": status.return_mean,
            "episodes": episodes,
            "description": self._experiment.description,
            "graph": fingerprint(self._experiment),
            "why_not_exact": self._why_not,
        }
        step = sum(int(fact["steps"]) for fact in facts["policies"].values())
        former, self._saved_updates = self._saved_updates, updates
        self._saved = time.monotonic()

        def write() -> None:
            try:
                checkpoints.write(self._root, step, arrays, facts, self._retention, workers)
            except checkpoints.CheckpointError as error:
                self._saved_updates = former
                self._tell(f"no checkpoint was written: {error}")

        self._scribe.submit(write)

    def _workers(self) -> State | None:
        if self._scheduler is None or self._why_not:
            return None
        try:
            return self._scheduler.state()
        except NotYet:
            raise
        except NotResumable as error:
            self._why_not = str(error)
            self._warn()
            return None
