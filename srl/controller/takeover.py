"""What a controller writes down, so that another can take its place when its process has died."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from srl.api.experiment import WorkerGroup
from srl.api.worker import Place
from srl.controller.gauges import Gauges
from srl.schedulers.hosts.messages import Held
from srl.schedulers.hosts.scheduler import HostsScheduler

UNKNOWN_INCARNATIONS = 100
"""May have begun after the last note was written: what they left must not be taken for that of their successors."""


class ControllerState(msgspec.Struct, frozen=True):
    """No secret is in here: agents bring the run's own, and the join secret has a file of its own."""

    address: str
    """Where its agents will look for the next one."""
    hosts: list[str]
    counts: dict[str, int]
    """Group -> number of workers, as it was scaled."""
    incarnations: dict[str, int]
    """Worker -> the last that was begun."""
    restarts: int
    gauges: dict[str, object]
    """The totals of those who are gone, and the episodes' figures."""
    began: float
    """Wall time."""
    told: dict[str, int] = {}
    """Agent (by the address of its relay, which no other has) -> the last of its news that are dealt with in here; it
    repeats those that came after."""
    complete: list[str] = []
    """Policies that have learned all they should."""

    @classmethod
    def of(
        cls,
        scheduler: HostsScheduler,
        groups: Mapping[str, WorkerGroup],
        places: Iterable[Place],
        restarts: int,
        gauges: Gauges,
        complete: Iterable[str],
    ) -> ControllerState:
        return cls(
            address=scheduler.address,
            hosts=scheduler.hosts(),
            counts={name: group.count for name, group in groups.items()},
            incarnations={place.name: place.incarnation for place in places},
            restarts=restarts,
            gauges=gauges.totals(),
            began=gauges.began,
            told=scheduler.told,
            complete=sorted(complete),
        )

    def sort_out(
        self, groups: Iterable[WorkerGroup], held: Iterable[Held]
    ) -> tuple[list[tuple[WorkerGroup, Held]], list[tuple[WorkerGroup, Place]]]:
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
