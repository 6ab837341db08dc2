"""Time that a running job needs to recover from a fault: `python benchmarks/faults.py --times 20`.

A CartPole run in processes. Recovery is measured from the fault to the first update that was learned afterwards from
samples of the new worker (a killed or stopped actor or policy worker) or by the new worker (a killed trainer, or the
zygote). `--only actor trainer` measures some of them, `--keep FILE` adds up several sittings. The controller's row is a
run over hosts whose command is killed and attached to again after `--away` seconds, a new run each time: the time until
it answers, and the speed meanwhile. It takes longest, about `--times` x (`--away` + 40 s). Where speed is compared,
environments sleep instead of computing, so that it is not the machine's.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from jobs import SLEEPING, SLEEPY, Job, job, member

from srl.api.status import RunStatus
from srl.base.statistics import spread


def kill_and_wait(
    run: Job, name: str, victim: Callable[[RunStatus], int], number: signal.Signals = signal.SIGKILL
) -> float:
    """Return the seconds until the replacement of worker `name` works and an update follows."""
    before = run.wait(lambda status: all(worker.state == "running" for worker in status.workers))
    began = time.monotonic()
    os.kill(victim(before), number)
    renewed = run.wait(
        lambda status: (
            member(status, name).incarnation > member(before, name).incarnation and member(status, name).progress > 0
        )
    )
    after = run.wait(lambda status: status.version > renewed.version)
    took = time.monotonic() - began
    if after.version < before.version or after.steps < before.steps:
        raise RuntimeError(f"an update was lost: {before.version} -> {after.version}")
    return took


def measure_worker(times: int, name: str, *options: str, number: signal.Signals = signal.SIGKILL) -> list[float]:
    with job(*options) as run:
        return [kill_and_wait(run, name, lambda status: member(status, name).pid, number) for _ in _paced(times)]


def measure_replay_worker(times: int) -> list[float]:
    """Ape-X with two actors. The memory is nearly full before each kill. Its replacement must have what it had, but for
    the block that was being replaced (`tests/replay/test_recovery.py` compares contents)."""
    size, learning = 5_000, ("--algo.updates-per-decision", "0.01", "--algo.batch-size", "64")
    options = ("--algo", "apex", "--actors", "2", "--lanes", "4", "--horizon", "4", "--replay", "host")
    taken = []
    with job(*options, *learning, "--algo.replay-size", str(size), updates=1) as run:
        for _ in _paced(times):
            before = run.wait(lambda status: bool(status.replay) and status.replay[0].size >= 0.9 * size)
            taken.append(kill_and_wait(run, "replay/0", lambda status: member(status, "replay/0").pid))
            after = run.wait(lambda status: bool(status.replay)).replay[0].size
            if after < before.replay[0].size - 2 * 4 * 4:
                raise RuntimeError(f"decisions were lost: {before.replay[0].size} -> {after}")
    return taken


def measure_stopped(times: int) -> list[float]:
    """Return the seconds until a stopped actor of four is replaced. Prints the speed of the others in that time."""
    taken, calm, meanwhile = [], Speed(), Speed()
    with job("--actors", "4", *SLEEPING, env=SLEEPY) as run:
        for _ in _paced(times):
            first = run.wait(lambda status: all(worker.state == "running" for worker in status.workers))
            time.sleep(2.5)
            before = run.wait(lambda status: True)
            calm.add(first, before)
            taken.append(kill_and_wait(run, "actors/0", lambda status: member(status, "actors/0").pid, signal.SIGSTOP))
            meanwhile.add(before, run.wait(lambda status: True))
    share = meanwhile.rate / calm.rate
    print(f"(the others' polls/s: {calm.rate:,.1f} before, {meanwhile.rate:,.1f} meanwhile: {share:.1%})", flush=True)
    return taken


@dataclass
class Speed:
    """Polls of all actors but the first."""

    work: int = 0
    seconds: float = 0.0

    def add(self, first: RunStatus, last: RunStatus) -> None:
        for worker in last.workers:
            if worker.group == "actors" and worker.name != "actors/0":
                self.work += worker.progress - member(first, worker.name).progress
        self.seconds += last.elapsed - first.elapsed

    @property
    def rate(self) -> float:
        return self.work / self.seconds


@dataclass(frozen=True)
class Moment:
    """A moment just after an update, since the steps grow by a batch at a time."""

    steps: int
    at: float

    def rate_since(self, former: Moment) -> float:
        return (self.steps - former.steps) / (self.at - former.at)


def moment(run: Job) -> Moment:
    present = run.wait(lambda status: True)
    grown = run.wait(lambda status: status.steps > present.steps)
    return Moment(grown.steps, time.monotonic())


def measure_controller(times: int, away: float) -> list[float]:
    """Return the seconds from `srl attach` until the run responds. Prints its speed without a controller."""
    taken = []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as directory:
            options = ("--scheduler", "hosts", "--actors", "1", "--join-file", str(Path(directory) / "join"))
            with job(*options, *SLEEPING, env=SLEEPY) as run:
                first = moment(run)
                time.sleep(min(away, 22.0))
                before = moment(run)
                run.process.kill()
                run.process.wait()
                time.sleep(away)
                began = time.monotonic()
                run.attach()
                answered = run.wait(lambda status: status.state == "running" and status.steps > before.steps)  # noqa: B023
                taken.append(time.monotonic() - began)
                if answered.restarts:
                    raise RuntimeError(f"{answered.restarts} workers were restarted")
                calm, alone = before.rate_since(first), moment(run).rate_since(before)
                print(f"(steps/s: {calm:,.1f} with a controller, {alone:,.1f} without: {alone / calm:.1%})", flush=True)
    return taken


def measure_zygote(times: int) -> list[float]:
    with job() as run:

        def zygote(_: RunStatus) -> int:
            children = psutil.Process(run.process.pid).children()
            return next(child.pid for child in children if "zygote" in str(child.cmdline()))

        return [kill_and_wait(run, "trainers/0", zygote) for _ in _paced(times)]


def _paced(times: int) -> Iterator[int]:
    """Wait some seconds: a worker that dies soon after its start counts as broken."""
    for number in range(times):
        time.sleep(5.2 if number else 0.0)
        yield number


def measure_supervisor(times: int) -> list[float]:
    """Return the seconds until all its processes have ended."""
    taken = []
    for _ in range(times):
        with job("--inference", "host") as run:
            children = psutil.Process(run.process.pid).children(recursive=True)
            began = time.monotonic()
            run.process.kill()
            run.process.wait()
            while any(_alive(child) for child in children):
                time.sleep(0.005)
            taken.append(time.monotonic() - began)
    return taken


def _alive(process: psutil.Process) -> bool:
    """Return whether a process is alive. Zombies are not: init reaps them at some time."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def measure_signal(times: int) -> list[float]:
    """Return the seconds from Ctrl-C to the end of the command, at times spread over its start and its run."""
    taken = []
    for number in range(times):
        home = Path(tempfile.mkdtemp(prefix="srl"))
        run = Job(home)
        time.sleep(0.1 + 4.0 * number / max(1, times - 1))
        began = time.monotonic()
        run.close()
        taken.append(time.monotonic() - began)
        shutil.rmtree(home)
    return taken


def kept(path: Path | None, name: str, taken: list[float]) -> list[float]:
    """Return these durations and those of earlier sessions in the file."""
    if path is None:
        return taken
    rows: dict[str, list[float]] = json.loads(path.read_text()) if path.exists() else {}
    rows[name] = [*rows.get(name, []), *taken]
    path.write_text(json.dumps(rows))
    return rows[name]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10, help="number of kills of each kind")
    parser.add_argument("--away", type=float, default=60.0, help="seconds without a controller")
    parser.add_argument("--only", nargs="*", default=(), help="rows to measure (default: all)")
    parser.add_argument("--keep", type=Path, help="file to which durations are appended; the table includes all")
    arguments = parser.parse_args()
    times, away = arguments.times, arguments.away
    rows = {
        "actor": (1.0, lambda: measure_worker(times, "actors/0")),
        "policy worker": (2.0, lambda: measure_worker(times, "policies/0", "--inference", "host")),
        "policy worker, TCP": (2.0, lambda: measure_worker(times, "policies/0", "--inference", "remote")),
        "trainer": (5.0, lambda: measure_worker(times, "trainers/0")),
        "one of two trainers": (10.0, lambda: measure_worker(times, "trainers/1", "--trainers", "2")),
        "replay worker": (2.0, lambda: measure_replay_worker(times)),
        "zygote": (6.0, lambda: measure_zygote(times)),
        "supervisor: all gone": (2.0, lambda: measure_supervisor(times)),
        "SIGSTOP of an actor": (5.0, lambda: measure_worker(times, "actors/0", number=signal.SIGSTOP)),
        "SIGSTOP of one of four actors": (5.0, lambda: measure_stopped(times)),
        "controller": (5.0, lambda: measure_controller(times, away)),
        "Ctrl-C: exit": (5.0, lambda: measure_signal(times)),
    }
    print("| kill -9 (unless stated otherwise) | times | p50 s | p95 s | max s | bar s |\n|---|---|---|---|---|---|")
    for name, (bar, measure) in rows.items():
        if arguments.only and name not in arguments.only:
            continue
        taken = kept(arguments.keep, name, measure())
        figures = " | ".join(f"{value:.2f}" for value in spread(taken))
        print(f"| {name} | {len(taken)} | {figures} | {bar:.0f} |", flush=True)


if __name__ == "__main__":
    main()
