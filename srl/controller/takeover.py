"""State that a controller writes to disk, so that another one can take over if it dies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from srl.api.control import OptionValue
from srl.api.experiment import WorkerGroup
from srl.api.scheduler import OrphanWorker, TakeoverRecord
from srl.api.worker import WorkerId
from srl.controller.gauges import Gauges
from srl.controller.option_changes import OptionChanges
from srl.controller.update_records import UpdateRecords

UNKNOWN_INCARNATIONS = 100
"""Number of incarnations that may have started since the state was written; new ones get higher numbers."""


class ControllerState(msgspec.Struct, frozen=True):
    """State of a controller, without secrets: agents send the run's secret, and the join secret is in its own file."""

    cluster: TakeoverRecord
    counts: dict[str, int]  # group -> current number of workers
    incarnations: dict[str, int]  # worker -> its last incarnation
    restarts: int
    gauges: dict[str, object]
    """Totals of workers that ended, and the statistics of episodes and evaluations (`Gauges.state`)."""
    began: float  # wall-clock time at which the command started
    complete: list[str] = []  # policies that have reached their number of steps
    records: list[object] = []  # reports on updates that wait for others (`UpdateRecords.state`)
    changes: dict[str, OptionValue] = {}  # options that have changed during the run
    num_changes: int = 0

    @classmethod
    def of(
        cls,
        cluster: TakeoverRecord,
        groups: Mapping[str, WorkerGroup],
        worker_ids: Iterable[WorkerId],
        restarts: int,
        gauges: Gauges,
        complete: Iterable[str],
        records: UpdateRecords,
        changes: OptionChanges,
    ) -> ControllerState:
        return cls(
            cluster=cluster,
            counts={name: group.count for name, group in groups.items()},
            incarnations={worker_id.name: worker_id.incarnation for worker_id in worker_ids},
            restarts=restarts,
            gauges=gauges.state(),
            began=gauges.began,
            complete=sorted(complete),
            records=records.state(),
            changes=dict(changes.values),
            num_changes=changes.number,
        )

    def match(
        self, groups: Iterable[WorkerGroup], orphans: Iterable[OrphanWorker]
    ) -> tuple[list[tuple[WorkerGroup, OrphanWorker]], list[tuple[WorkerGroup, WorkerId]]]:
        """Return the workers that continue, and the ids of missing ones with their highest possible incarnation."""
        found = {(orphan.worker_id.group, orphan.worker_id.index): orphan for orphan in orphans}
        kept, missing = [], []
        for group in groups:
            for index in range(group.count):
                orphan = found.get((group.name, index))
                if orphan is not None:
                    kept.append((group, orphan))
                else:
                    last = self.incarnations.get(f"{group.name}/{index}", 0) + UNKNOWN_INCARNATIONS
                    missing.append((group, WorkerId(group.name, index, last)))
        return kept, missing
