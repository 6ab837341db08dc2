"""Starts and ends workers of a group whose size has changed."""

from __future__ import annotations

from collections.abc import Callable

from srl.api.control import Stop
from srl.api.experiment import WorkerGroup
from srl.api.scheduler import Scheduler
from srl.api.worker import WorkerId
from srl.controller.supervision import Slot

Slots = dict[tuple[str, int], Slot]
Launch = Callable[[WorkerGroup, int, int], None]


def rescale(group: WorkerGroup, slots: Slots, scheduler: Scheduler, launch: Launch, now: float) -> None:
    """Give a group its new size. Data-parallel workers restart together, from the last committed update."""
    if group.restart.together:
        _recreate(group, slots, scheduler, now)
    else:
        _add_or_remove(group, slots, scheduler, launch)


def _add_or_remove(group: WorkerGroup, slots: Slots, scheduler: Scheduler, launch: Launch) -> None:
    for index in range(group.count):
        if (group.name, index) not in slots:
            launch(group, index, 0)
    for (other, index), slot in list(slots.items()):
        if other == group.name and index >= group.count:
            if slot.state == "ended":
                del slots[(other, index)]
            else:
                slot.state = "stopping"
                scheduler.send([slot.worker_id], Stop())


def _recreate(group: WorkerGroup, slots: Slots, scheduler: Scheduler, now: float) -> None:
    for (other, _), slot in list(slots.items()):
        if other == group.name and slot.state != "ended":
            slot.state = "stopping"
            scheduler.kill(slot.worker_id)
    for index in range(group.count):
        if (group.name, index) not in slots:
            slots[(group.name, index)] = Slot(WorkerId(group.name, index, 0), "ended", now)
