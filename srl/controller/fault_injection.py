"""Doing to a worker what accidents do, for `srl chaos`."""

from __future__ import annotations

import signal
from collections.abc import Iterable

from srl.api.control import InjectFault
from srl.api.scheduler import Scheduler
from srl.api.worker import Place
from srl.base.errors import nearest

SIGNALS: dict[str, int] = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
FAULTS = (*SIGNALS, "slow", "partition")


def harm(scheduler: Scheduler, places: Iterable[Place], worker: str, fault: str, seconds: float) -> str:
    """Raises ValueError for a worker or a fault that is not there."""
    named = {place.name: place for place in places}
    if worker not in named:
        raise ValueError(f"no worker {worker!r}{nearest(worker, named)}")
    if fault not in FAULTS:
        raise ValueError(f"no fault {fault!r}{nearest(fault, FAULTS)}")
    if fault in SIGNALS:
        scheduler.signal(named[worker], SIGNALS[fault])
    else:
        scheduler.send([named[worker]], InjectFault(fault, seconds))
    return f"{fault} {worker}"
