"""Measure failure detection and name lookups at the size of a large run: python benchmarks/control_plane.py.

The rules that decide whether a worker or a host has failed (`srl.controller.supervision`,
`srl.schedulers.hosts.agent_connections`) run on a virtual clock for `--hours`, with random gauges and heartbeats. On
slow hosts everything takes five times as long. No rule depends on other workers, except the limits on
replacements, so that one worker per host stands for all of them. Detection is the time from the fault to the verdict.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.manual_clock import ManualClock

from srl.api.experiment import RestartRule
from srl.api.transport import ChannelClosed
from srl.controller.supervision import ProgressWatch
from srl.names.table import NameView
from srl.schedulers.hosts.agent_connections import Silence
from srl.schedulers.hosts.messages import HEARTBEAT_SECONDS
from srl.transports.tcp_channel import PeerActivity

CHECK_SECONDS = 1.0
"""Time between two looks of a controller with 20,000 workers, which spends at most a tenth of its time on them."""
SLOWNESS = 5.0
STEP_SECONDS = 0.5  # mean duration of an environment's step, in which no gauge changes
PAUSE_SHARE, PAUSE_SECONDS = 1e-4, 0.3  # of the process, by the kernel or the garbage collector
NUM_SERVERS = 200


@dataclass
class SimulatedHost:
    """The heartbeats of an agent, and the gauges of one of its workers in them."""

    draw: random.Random
    slowness: float
    watch: ProgressWatch = field(default_factory=ProgressWatch)
    silence: Silence = field(default_factory=Silence)
    _stepped: float = 0.0  # when the worker's gauges change next
    _beats: float = 0.0  # when the next heartbeat arrives
    _last_beat: float = 0.0
    _shown: int = 0  # gauges in the last heartbeat
    _gauges: int = 0

    def advance(self, now: float, worker_frozen: bool, agent_frozen: bool) -> None:
        draw, slowness = self.draw, self.slowness
        while not worker_frozen and self._stepped <= now:
            self._gauges += 1
            self._stepped += slowness * draw.expovariate(1 / STEP_SECONDS)
        while not agent_frozen and self._beats <= now:
            self._last_beat, self._shown = self._beats, self._gauges
            pause = draw.random() * PAUSE_SECONDS if draw.random() < PAUSE_SHARE else 0.0
            self._beats += slowness * (HEARTBEAT_SECONDS + draw.expovariate(50.0) + pause)

    def worker_failed(self, now: float, frozen: bool) -> bool:
        return self.watch.stuck(self._shown, self._shown, now, RestartRule().hang_timeout, frozen)

    def host_failed(self, now: float, passed: float) -> bool:
        try:
            self.silence.check(passed, PeerActivity(now - self._last_beat, True), serving=True)
        except ChannelClosed:
            return True
        return False


def false_positives(hosts: list[SimulatedHost], hours: float) -> tuple[int, int]:
    """Return how many live workers and hosts were taken for failed."""
    clock, workers, lost = ManualClock(), 0, 0
    while clock.now() < hours * 3600:
        clock.advance(CHECK_SECONDS)
        now = clock.now()
        for host in hosts:
            host.advance(now, False, False)
            workers += host.worker_failed(now, False)
            lost += host.host_failed(now, CHECK_SECONDS)
    return workers, lost


def detection_times(draw: random.Random, trials: int, agent: bool) -> list[float]:
    """Return the times until a frozen worker, or a frozen agent, is noticed."""
    times = []
    for _ in range(trials):
        host, clock = SimulatedHost(draw, 1.0), ManualClock()
        interval = HEARTBEAT_SECONDS if agent else CHECK_SECONDS
        frozen_at = 10.0 + draw.random() * interval
        while True:
            clock.advance(interval)
            now = clock.now()
            frozen = now > frozen_at
            if frozen:
                host.advance(frozen_at, False, False)
            host.advance(now, frozen, frozen and agent)
            if host.host_failed(now, interval) if agent else host.worker_failed(now, frozen):
                times.append(now - frozen_at)
                break
    return times


def lookup_times(count: int) -> list[float]:
    """Return the CPU seconds of each of many name lookups, in a table with an entry per server."""
    view = NameView(lambda name, address: None)
    view.replace({f"push/samples{i % 20}/trainers/{i}": f"tcp:10.0.0.{i}:4000" for i in range(NUM_SERVERS)})
    times = []
    for number in range(count):
        began = time.thread_time()
        view.lookup(f"push/samples{number % 20}/")
        times.append(time.thread_time() - began)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=160, help="Number of hosts")
    parser.add_argument("--slow", type=float, default=0.01, help="Share of slow hosts")
    parser.add_argument("--hours", type=float, default=24.0, help="Virtual time without faults")
    parser.add_argument("--trials", type=int, default=2000, help="Number of detected faults")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    num_slow = max(1, round(arguments.hosts * arguments.slow))
    hosts = [SimulatedHost(draw, SLOWNESS if index < num_slow else 1.0) for index in range(arguments.hosts)]
    workers, lost = false_positives(hosts, arguments.hours)
    size = f"{arguments.hosts} hosts ({num_slow} slow)"
    print(f"{arguments.hours:g} h, {size}: {workers} workers and {lost} hosts were wrongly taken for failed")
    for name, agent in (("frozen worker", False), ("frozen agent", True)):
        times = detection_times(draw, arguments.trials, agent)
        quantiles = statistics.quantiles(times, n=100)
        print(
            f"{name}: noticed after {quantiles[49]:.1f} s (p50), {quantiles[98]:.1f} s (p99), {max(times):.1f} s (max)"
        )
    lookups = statistics.quantiles(lookup_times(20_000), n=100)
    print(f"20,000 name lookups: {lookups[49] * 1e6:.0f} us (p50), {lookups[98] * 1e6:.0f} us (p99)")


if __name__ == "__main__":
    main()
