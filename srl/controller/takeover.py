"""What a controller writes down, so that another can take its place when its process has died."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from srl.api.experiment import WorkerGroup
from srl.api.scheduler import OrphanWorker, TakeoverRecord
from srl.api.worker import Place
from srl.controller.gauges import Gauges

UNKNOWN_INCARNATIONS = 100
"""May have begun after the last note was written: what they left must not be taken for that of their successors."""


class ControllerState(msgspec.Struct, frozen=True):
    """State of a controller, without any secret: agents bring the run's own, and the join secret has its own file."""

    cluster: TakeoverRecord
    counts: dict[str, int]
    """Group -> number of workers, as it was scaled."""
    incarnations: dict[str, int]
    """Worker -> the last that was begun."""
    restarts: int
    gauges: dict[str, object]
    """The totals of those who are gone, and the episodes' figures."""
    began: float
    """Wall time."""
    complete: list[str] = []
    """Policies that have learned all they should."""

    @classmethod
    def of(
        cls,
        cluster: TakeoverRecord,
        groups: Mapping[str, WorkerGroup],
        places: Iterable[Place],
        restarts: int,
        gauges: Gauges,
        complete: Iterable[str],
    ) -> ControllerState:
        return cls(
            cluster=cluster,
            counts={name: group.count for name, group in groups.items()},
            incarnations={place.name: place.incarnation for place in places},
            restarts=restarts,
            gauges=gauges.totals(),
            began=gauges.began,
            complete=sorted(complete),
        )

    def sort_out(
        self, groups: Iterable[WorkerGroup], held: Iterable[OrphanWorker]
    ) -> tuple[list[tuple[WorkerGroup, OrphanWorker]], list[tuple[WorkerGroup, Place]]]:
        """Who went on, and which places are empty, with an incarnation that may have held them last, and none after."""
        brought = {(one.place.group, one.place.index): one for one in held}
        kept, missing = [], []
        for group in groups:
            for index in range(group.count):
                one = brought.get((group.name, index))
                if one is not None:
                    kept.append((group, one))
                else:
                    last = self.incarnations.get(f"{group.name}/{index}", 0) + UNKNOWN_INCARNATIONS
                    missing.append((group, Place(group.name, index, last)))
        return kept, missing
