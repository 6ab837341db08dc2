"""Faults that `srl chaos` injects into a run."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping

from srl.api.control import InjectFault
from srl.api.scheduler import Scheduler, TakeoverRecord
from srl.api.worker import WorkerId
from srl.base.errors import nearest
from srl.base.files import simulate_full_disk
from srl.names.table import NameTable

SIGNALS: dict[str, int] = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
HOST_FAULTS = ("slow-link", "freeze-host", "freeze-zygote")  # faults of the host on which the worker runs
FAULTS = (*SIGNALS, "slow", "partition", *HOST_FAULTS, "flood", "full-disk")


def inject_fault(
    scheduler: Scheduler, workers: Mapping[str, WorkerId], names: NameTable, worker: str, fault: str, seconds: float
) -> str:
    """Inject a fault and describe it. Raises ValueError if the worker or fault is unknown or not possible."""
    for what, name, known in (("worker", worker, [*workers]), ("fault", fault, [*FAULTS])):
        if name not in known:
            raise ValueError(f"unknown {what} {name!r}{nearest(name, known)}")
    if fault in SIGNALS:
        scheduler.signal(workers[worker], SIGNALS[fault])
    elif fault in HOST_FAULTS:
        scheduler.disturb_host(workers[worker], fault, seconds)
    elif fault == "full-disk":
        simulate_full_disk(seconds)
    elif fault == "flood":
        return " ".join(loopback_addresses(names.lookup("").values(), scheduler.takeover_record()))
    else:
        scheduler.send([workers[worker]], InjectFault(fault, seconds))
    return f"{fault} {worker}"


def loopback_addresses(endpoints: Iterable[str], cluster: TakeoverRecord | None) -> list[str]:
    """Return the addresses at which a run listens on the loopback interface, where `srl chaos` may flood it."""
    addresses = [*endpoints, *([f"tcp:{cluster.address}"] if cluster is not None else [])]
    found = [address for address in addresses if address.startswith("tcp:127.")]
    if not found:
        raise ValueError("nothing of this run listens on the loopback interface (try it with --inference remote)")
    return found
