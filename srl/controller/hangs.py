"""Who seems to hang: found by what workers' gauges do and what the kernel says of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from srl.api.experiment import WorkerGroup
from srl.api.scheduler import Scheduler
from srl.base.clock import Clock
from srl.base.meter import Counter
from srl.controller.seats import Slot
from srl.controller.supervision import Guard, Watch

START_SECONDS = 300.0
"""At least, for a worker that has not said yet that it is ready: it may load a large scene or wait for others."""
START_HANGS = 4
"""It gets so many times what one at work gets, if that is more."""


def stuck(
    seats: Sequence[Slot], scheduler: Scheduler, groups: Mapping[str, WorkerGroup], guard: Guard, clock: Clock
) -> Iterator[tuple[Slot, str]]:
    """Those that should be replaced, each with what is the matter. Who has no process yet cannot hang."""
    watched = [s for s in seats if s.state == "running" or (s.state == "starting" and scheduler.pid(s.place))]
    stopped = {seat.place for seat in watched if scheduler.usage(seat.place).stopped}
    for seat in watched:
        meter, frozen, starting = scheduler.meter(seat.place), seat.place in stopped, seat.state == "starting"
        timeout = groups[seat.place.group].restart.hang_timeout
        if starting:
            timeout = max(START_SECONDS, START_HANGS * timeout)
        now = clock.now()  # of this very look: a dump of another's stacks takes its time
        if not seat.watch.stuck(meter.get(Counter.PROGRESS), meter.phase_start(), now, timeout, frozen):
            continue
        if guard.allows(now, len(seats), len(stopped) if frozen else 0):
            where = "at its start" if starting else f"in phase {meter.phase().name.lower()}"
            what = "frozen (SIGSTOP)" if frozen else f"stuck {where}"
            stacks = "" if frozen else scheduler.dump(seat.place)
            seat.last_words = f"{what} for {seat.watch.still:.0f} s\n{stacks}"
            seat.watch = Watch()
            yield seat, what
