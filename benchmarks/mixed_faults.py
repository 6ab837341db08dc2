"""Faults of all kinds in a run over four hosts, one every 5 s: `python benchmarks/mixed_faults.py --count 100` (root).

The hosts are network namespaces on a switch, and the first runs the controller. Faults are drawn from a seed and may
overlap: killed and stopped workers, zygotes and agents; hosts that lose power, freeze, or lose packets in one or both
directions; slow links; a full disk; a killed controller, which `srl attach` replaces (hosts are left alone until then,
because losing both loses updates). A fault is overcome when it has ended, every worker that it affected (or its
replacement) has worked again, and an update followed. Fails (1) if one is not overcome, if the speed is below
`--share` of the undisturbed speed before and after, if a process grew, if the journal has an error, or if a process, a
socket or shared memory is left. Options behind `--` go to `srl train`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from jobs import SLEEPING, SLEEPY, START_PATIENCE, Job
from namespaces import Cluster, cluster
from soak import growth

from srl.api.status import RunStatus
from srl.base.statistics import spread
from srl.storage.update_journal import check, read

GRAPH = ("--actors", "4", "--journal", "--batch", "256", "--checkpoint-seconds", "10", *SLEEPING)
POLL_SECONDS = 0.1
SAMPLE_SECONDS = 2.0
STALL_SECONDS = 4.0  # longer times without an update are printed
PATIENCE = 90.0
"""Seconds after the end of a fault within which it must be overcome."""
DISK_BYTES = 1 << 28
SLOW_RATES = (300_000, 1_000_000)
KINDS = {
    "kill": ("kill", "kill", "kill-zygote"),
    "stop": ("stop", "stop", "stop-zygote", "stop-agent", "stop-host"),
    "partition": ("partition", "partition-in", "partition-out"),
    "slow": ("slow",),
    "disk": ("disk",),
    "host": ("kill-agent", "kill-host", "power"),
    "controller": ("controller",),
}
"""Faults by class. A class is chosen first, then one of its faults."""


@dataclass
class Fault:
    kind: str
    target: str
    at: float
    seconds: float  # duration; 0 for faults that the run itself has to repair
    heal: Callable[[], None]
    victims: dict[str, int]  # affected workers and their incarnations
    healed_at: float | None = None
    overcome_at: float | None = None
    _progress: dict[str, int] = field(default_factory=dict)  # of the victims when the fault ended
    _version: int | None = None

    def update(self, status: RunStatus, now: float) -> None:
        """Note whether the fault has been overcome."""
        if self.healed_at is None or self.overcome_at is not None:
            return
        workers = {worker.name: worker for worker in status.workers}
        if not self._progress:
            self._progress = {name: workers[name].progress for name in self.victims}
        for name, incarnation in self.victims.items():
            worker = workers[name]
            if worker.incarnation == incarnation and (not self.seconds or worker.progress <= self._progress[name]):
                return
            if worker.incarnation > incarnation and not (worker.state == "running" and worker.progress > 0):
                return
        if self._version is None:
            self._version = status.version
        elif status.version > self._version:
            self.overcome_at = now

    @property
    def is_of_host(self) -> bool:
        return self.target.startswith("host")

    def __str__(self) -> str:
        return f"{self.kind} {self.target}" + (f" for {self.seconds:.1f} s" if self.seconds else "")


class Nemesis:
    """Chooses faults, injects them, and ends those that do not last."""

    def __init__(self, run: Job, places: Cluster, root: Path, kinds: list[str], seed: int) -> None:
        self.faults: list[Fault] = []
        self._run = run
        self._places = places
        self._hosts = places.hosts
        self._root = root
        self._random = random.Random(seed)
        self._kinds = kinds
        self._affected: dict[int, Fault] = {}  # host -> fault in effect

    def inject(self, status: RunStatus, now: float) -> None:
        """Inject a random fault that is possible now."""
        for kind in self._random.sample(self._kinds, len(self._kinds)):
            fault = self._make(self._random.choice(KINDS[kind]), status, now)
            if fault is not None:
                self.faults.append(fault)
                print(f"{now:7.1f} s  {len(self.faults)}: {fault}", flush=True)
                if not fault.seconds:
                    fault.healed_at = now
                return

    def heal(self, now: float, everything: bool = False) -> None:
        for fault in self.faults:
            if fault.healed_at is None and (everything or now - fault.at >= fault.seconds):
                fault.heal()
                fault.healed_at = now
        self._affected = {host: fault for host, fault in self._affected.items() if fault.healed_at is None}

    def _make(self, kind: str, status: RunStatus, now: float) -> Fault | None:
        source = self._random
        if kind in ("kill", "stop"):
            worker = source.choice([worker for worker in status.workers if worker.pid and worker.state == "running"])
            _signal(worker.pid, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
            return Fault(kind, worker.name, now, 0.0, _nothing, {worker.name: worker.incarnation})
        lasting = [fault for fault in self.faults if fault.healed_at is None]
        attaching = any(fault.kind == "controller" and fault.overcome_at is None for fault in self.faults)
        everyone = {w.name: w.incarnation for w in status.workers if w.group != "policies"}
        if kind == "disk":
            if attaching or any(fault.kind == kind for fault in lasting):  # `srl attach` needs room for its lock
                return None
            fill = self._root / "fill"
            _fill(fill)
            return Fault(kind, "of the run", now, source.uniform(1.0, 10.0), fill.unlink, everyone)
        if kind == "controller":
            if lasting or any(fault.overcome_at is None and fault.is_of_host for fault in self.faults):
                return None  # without a controller, a lost host takes the last updates with it (decision 9)
            self._run.process.kill()
            self._run.process.wait()
            return Fault(kind, "of the run", now, source.uniform(0.1, 4.0), self._run.attach, everyone)
        index = source.randrange(1, len(self._hosts.names))
        if index in self._affected or (attaching and kind not in ("stop-zygote", "kill-zygote")):
            return None
        name = self._hosts.names[index]
        there = {w.name: w.incarnation for w in status.workers if w.host.split("-")[0] == name and w.name in everyone}
        if kind == "stop-zygote":
            there = {}  # the workers of a stopped zygote continue
        heal, seconds = self._disturb_host(kind, index)
        fault = Fault(kind, name, now, seconds, heal, there)
        self._affected[index] = fault
        return fault

    def _disturb_host(self, kind: str, index: int) -> tuple[Callable[[], None], float]:
        """Inject a fault into a host. Return what ends it, and after how many seconds."""
        hosts, places, source = self._hosts, self._places, self._random
        long, short = source.uniform(0.5, 20.0), source.uniform(0.5, 6.0)
        agent = places.agent(index)
        match kind:
            case "stop-zygote" | "kill-zygote":
                number = signal.SIGKILL if kind == "kill-zygote" else signal.SIGSTOP
                for process in agent.children():
                    _signal(process.pid, number)
                return _nothing, 0.0
            case "kill-agent":
                agent.kill()
                return lambda: places.start_agent(index), short
            case "kill-host":
                hosts.signal_all(index, signal.SIGKILL)
                return lambda: places.start_agent(index), short
            case "power":
                hosts.power_off(index)

                def power_on() -> None:
                    hosts.set_link(index, "up")
                    places.start_agent(index)

                return power_on, short
            case "stop-agent":
                agent.suspend()
                return agent.resume, long
            case "stop-host":
                hosts.signal_all(index, signal.SIGSTOP)
                return lambda: hosts.signal_all(index, signal.SIGCONT), long
            case "partition":
                hosts.set_link(index, "down")
                return lambda: hosts.set_link(index, "up"), long
            case "partition-in" | "partition-out":
                direction = kind.removeprefix("partition-")
                hosts.set_direction(index, direction, False)
                return lambda: hosts.set_direction(index, direction, True), long
            case _:
                hosts.set_rate(index, source.choice(SLOW_RATES))
                return lambda: hosts.set_rate(index, 0), long


def _nothing() -> None:
    pass


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _fill(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 20))
    with contextlib.suppress(OSError), path.open("ab", buffering=0) as file:
        while True:
            file.write(b"0")


@dataclass
class Usage:
    """Memory and descriptors of a run's processes over time, by kind of process."""

    rss_mb: dict[str, list[float]] = field(default_factory=dict)
    descriptors: dict[str, list[float]] = field(default_factory=dict)

    def sample(self, places: Cluster, status: RunStatus) -> None:
        workers = {worker.pid: worker.group for worker in status.workers}
        found: dict[str, list[psutil.Process]] = {}
        for index in range(len(places.hosts.names)):
            for pid in places.hosts.processes(index):
                with contextlib.suppress(psutil.Error):
                    process = psutil.Process(pid)
                    kind = workers.get(pid) or _kind(process.cmdline())
                    if kind and process.status() != psutil.STATUS_STOPPED:
                        found.setdefault(kind, []).append(process)
        for kind, processes in found.items():
            with contextlib.suppress(psutil.Error):
                sizes = [process.memory_info().rss / 2**20 for process in processes]
                descriptors = [process.num_fds() for process in processes]
                self.rss_mb.setdefault(kind, []).append(statistics.median(sizes))
                self.descriptors.setdefault(kind, []).append(statistics.median(descriptors))

    def table(self) -> str:
        lines = ["| process | samples | MB | growth MB | descriptors | growth |", "|---|---|---|---|---|---|"]
        for kind, sizes in self.rss_mb.items():
            counts = self.descriptors[kind]
            rest = f"{sizes[-1]:.0f} | {growth(sizes):+.1f} | {counts[-1]:.0f} | {growth(counts):+.0f}"
            lines.append(f"| {kind} | {len(sizes)} | {rest} |")
        return "\n".join(lines)

    def grown(self, max_mb: float, max_descriptors: float) -> list[str]:
        return [
            kind
            for kind in self.rss_mb
            if growth(self.rss_mb[kind]) > max_mb or growth(self.descriptors[kind]) > max_descriptors
        ]


def _kind(words: list[str]) -> str:
    for part, kind in (("agent", "agent"), ("srl.schedulers.agent.join", "agent"), ("attach", "controller")):
        if part in words:
            return kind
    return "controller" if "train" in words else ""


class Watch:
    """Observation of a run: its speed, its faults, and the longest time without an update."""

    def __init__(self, run: Job, places: Cluster, nemesis: Nemesis) -> None:
        self.usage = Usage()
        self.longest = 0.0
        self._run = run
        self._places = places
        self._nemesis = nemesis
        self._began = self._last_update = time.monotonic()
        self._version = 0
        self._next_sample = 0.0
        self.status: RunStatus | None = None

    @property
    def now(self) -> float:
        return time.monotonic() - self._began

    def look(self) -> None:
        time.sleep(POLL_SECONDS)
        self._nemesis.heal(self.now)
        if self._run.process.poll() is not None and not self._controller_is_away():
            raise RuntimeError(f"the run ended with code {self._run.process.returncode}:\n{self._run.output()[-3000:]}")
        status = self._run.status()
        if status is None:
            return
        self.status = status
        for fault in self._nemesis.faults:
            fault.update(status, self.now)
        if status.version > self._version:
            waited = time.monotonic() - self._last_update
            if waited > STALL_SECONDS:
                print(f"{self.now:7.1f} s  an update after {waited:.1f} s without one", flush=True)
            self.longest = max(self.longest, waited)
            self._version, self._last_update = status.version, time.monotonic()
        if self.now >= self._next_sample:
            self._next_sample = self.now + SAMPLE_SECONDS
            self.usage.sample(self._places, status)

    def _controller_is_away(self) -> bool:
        return any(fault.kind == "controller" and fault.healed_at is None for fault in self._nemesis.faults)

    def speed(self, seconds: float, every: float = 0.0, count: int = 0) -> float:
        """Return the steps per second over some seconds, or while `count` faults are injected."""
        while self.status is None:
            self.look()
        first, began, due, made = self.status.steps, self.now, self.now, 0
        while made < count or self.now - began < seconds:
            if made < count and self.now >= due and self.status.state == "running":
                due, made = due + every, made + 1
                self._nemesis.inject(self.status, self.now)
            self.look()
        return (self.status.steps - first) / (self.now - began)

    def settle(self) -> list[Fault]:
        """Wait until all faults have been overcome. Return those that were not."""
        self._nemesis.heal(self.now, everything=True)
        deadline = self.now + PATIENCE
        while (left := [f for f in self._nemesis.faults if f.overcome_at is None]) and self.now < deadline:
            self.look()
        return left


@contextmanager
def limited_disk(home: Path) -> Iterator[Path]:
    """Mount a small disk on the directory of runs, which a fault can fill."""
    root = home / "runs"
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(root)], check=True)
    try:
        yield root
    finally:
        subprocess.run(["umount", "--lazy", str(root)], check=True)


def leftovers(places: Cluster, home: Path, shared: set[str]) -> list[str]:
    """Return what a run that has ended left behind. Its agents have a few seconds to leave."""
    hosts = range(len(places.hosts.names))
    deadline = time.monotonic() + 20.0
    while any(places.hosts.processes(index) for index in hosts) and time.monotonic() < deadline:
        time.sleep(0.1)
    left = [pid for index in hosts for pid in places.hosts.processes(index)]
    found = [f"process {pid}: {psutil.Process(pid).cmdline()}" for pid in left if psutil.pid_exists(pid)]
    found += [f"/dev/shm/{name}" for name in set(os.listdir("/dev/shm")) - shared if name.startswith("srl")]
    found += [str(path) for folder in (home, places.hosts.folder) for path in folder.glob("srl-*/*")]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--every", type=float, default=5.0, help="seconds between faults")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--calm", type=float, default=30.0, help="seconds of undisturbed speed before and after")
    parser.add_argument("--share", type=float, default=0.7, help="least share of the undisturbed speed")
    parser.add_argument("--max-mb", type=float, default=10.0)
    parser.add_argument("--max-descriptors", type=float, default=4.0)
    parser.add_argument("options", nargs="*", help="options of `srl train`, behind `--`")
    arguments = parser.parse_args()
    if "partition" in arguments.faults and shutil.which("nft") is None:
        parser.error("a partition in one direction needs `nft` (Debian's package nftables)")
    home = Path(tempfile.mkdtemp(prefix="srl"))
    shared = set(os.listdir("/dev/shm"))
    wrong: list[str] = []
    with limited_disk(home) as root, cluster(4, "--cpus", "8") as places:
        run = Job(home, *GRAPH, *arguments.options, *places.options, env=SLEEPY, enter=places.enter)
        try:
            first = run.wait(lambda status: status.state == "running" and status.version >= 20, START_PATIENCE)
            nemesis = Nemesis(run, places, root, arguments.faults, arguments.seed)
            watch = Watch(run, places, nemesis)
            before = watch.speed(arguments.calm)
            disturbed = watch.speed(0.0, arguments.every, arguments.count)
            wrong += [f"not overcome: {fault} at {fault.at:.0f} s" for fault in watch.settle()]
            after = watch.speed(arguments.calm)
            assert watch.status is not None
            errors = check(read(Path(first.path) / "journal.jsonl"), first.max_lag)
            wrong += [f"journal: {text}" for text in errors[:10]]
        except (RuntimeError, TimeoutError) as error:
            print(f"FAILED {error}\n{run.output()[-3000:]}")
            return 1
        finally:
            run.close()
        wrong += [f"left: {text}" for text in leftovers(places, home, shared)]
        output = run.output()
    shutil.rmtree(home)
    calm = (before + after) / 2
    print("| fault | times | p50 s | p95 s | max s (from its end until it was overcome) |\n|---|---|---|---|---|")
    for kind in sorted({fault.kind for fault in nemesis.faults}):
        these = [fault for fault in nemesis.faults if fault.kind == kind]
        taken = [f.overcome_at - f.healed_at for f in these if f.overcome_at is not None and f.healed_at is not None]
        print(f"| {kind} | {len(these)} | {' | '.join(f'{value:.1f}' for value in spread(taken))} |")
    print(watch.usage.table())
    share = disturbed / calm
    print(f"steps/s: {before:,.0f} before, {disturbed:,.0f} with faults, {after:,.0f} after: {share:.0%}")
    print(f"{watch.status.version} updates; longest time without one {watch.longest:.1f} s; seed {arguments.seed}")
    if share < arguments.share:
        wrong.append(f"{share:.0%} of the undisturbed speed, at least {arguments.share:.0%} are expected")
    wrong += [f"grew: {kind}" for kind in watch.usage.grown(arguments.max_mb, arguments.max_descriptors)]
    if wrong:
        print(output[-4000:])
    for text in wrong:
        print(f"FAILED {text}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
