"""Loss of the trainer's host, with links of all speeds: `python benchmarks/trainer_host_loss.py --times 40` (root).

Three hosts are network namespaces on a switch: one for the controller, and two that may hold the trainer. Each trial
gives both links a random speed and then, at a random time, kills all processes of the trainer's host (`kill`), unplugs
it first so that nothing closes its connections (`power`), or suspends all its processes for a random time (`freeze`).
Measures the seconds from the moment at which the controller declares the host lost to the next update. A host that is
back before it was declared lost counts from its return. Fails (1) if one takes longer than `--limit` seconds, or if an
update is lost, doubled or too old by the journal. The runs alternate among the modes of inference.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jobs import SLEEPING, SLEEPY, Job, job, member
from namespaces import Cluster, cluster

from srl.api.status import RunStatus
from srl.base.statistics import spread
from srl.storage.update_journal import check, read

TRAINER = "trainers/0"
HOSTS = ("--resources", "trainers=node:host[12]*", "--actors", "3", "--journal", "--batch", "192")
AGENTS = ("--cpus", "4")
GRAPHS = {
    "inline": ("--inference", "inline"),
    "host": ("--inference", "host", "--policies", "3"),  # one on each host
    "remote": ("--inference", "remote", "--policies", "2"),
}
RATES = (300_000, 1_000_000, 10_000_000, 0)  # bytes per second; 0: unlimited
PER_RUN = 10
"""Trials per run; then a new run begins, with the next mode of inference."""


@dataclass(frozen=True)
class Trial:
    """Random choices of one trial."""

    name: str
    fault: str
    rates: tuple[int, int]  # of the second and the third host
    wait: float  # seconds between the change of the rates and the fault
    away: float  # seconds until the host returns

    @classmethod
    def of(cls, seed: int, number: int) -> Trial:
        source = random.Random(f"{seed}/{number}")
        rates = source.choice(RATES), source.choice(RATES)
        away = source.uniform(0.5, 25.0) if (fault := source.choice(("kill", "power", "freeze"))) == "freeze" else 0.0
        return cls(f"{seed}/{number}", fault, rates, source.uniform(1.0, 5.0), away)

    def __str__(self) -> str:
        rates = " and ".join(f"{rate / 1000:,.0f} kB/s" if rate else "unlimited" for rate in self.rates)
        return f"{self.name}: {self.fault}, links {rates}" + (f", away {self.away:.1f} s" if self.away else "")


class Stalled(Exception):
    """No update followed in time."""


def place(status: RunStatus) -> int:
    """Return the index of the trainer's host."""
    return int(member(status, TRAINER).host.removeprefix("host")[0])


def summary(run: Job) -> str:
    """Return what a failed trial needs for its explanation."""
    status = run.status()
    if status is None:
        return "the run does not answer"
    workers = [f"{w.name}.{w.incarnation} {w.state} on {w.host} ({w.progress}, {w.busy})" for w in status.workers]
    return "\n".join([f"version {status.version}", *workers, *status.messages])


def await_status(run: Job, condition: Callable[[RunStatus], bool], seconds: float) -> RunStatus | None:
    """Return the first status that meets the condition, or None after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (status := run.status()) is not None and condition(status):
            return status
        time.sleep(0.02)
    return None


def perform(trial: Trial, places: Cluster, run: Job, limit: float) -> float:
    """Lose the trainer's host once, wait until it is back, and return the seconds from the loss to the next update."""
    hosts = places.hosts
    for index, rate in enumerate(trial.rates, 1):
        hosts.set_rate(index, rate)
    time.sleep(trial.wait)
    before = run.wait(lambda status: member(status, TRAINER).progress > 0)
    victim, former = place(before), member(before, TRAINER)
    joins = places.num_joins(victim, run)
    began = time.monotonic()
    if trial.fault == "freeze":
        hosts.signal_all(victim, signal.SIGSTOP)
    elif trial.fault == "power":
        hosts.power_off(victim)
    else:
        hosts.signal_all(victim, signal.SIGKILL)

    def lost(status: RunStatus) -> bool:
        return member(status, TRAINER).incarnation > former.incarnation

    def updated(status: RunStatus) -> bool:
        trainer = member(status, TRAINER)
        return trainer.progress > (0 if trainer.incarnation > former.incarnation else former.progress)

    declared = await_status(run, lost, trial.away or 60.0)
    since = time.monotonic()
    if declared is not None:
        noticed = f"declared lost after {since - began:.1f} s"
        after = await_status(run, updated, max(2 * limit, trial.away - (since - began)))
        taken = time.monotonic() - since
    if trial.fault == "freeze":
        time.sleep(max(0.0, began + trial.away - time.monotonic()))
        hosts.signal_all(victim, signal.SIGCONT)
    if declared is None:
        if trial.fault != "freeze":
            raise Stalled(f"host{victim} was not declared lost within 60 s: {summary(run)}")
        noticed, since = "not declared lost before it returned", time.monotonic()
        after = await_status(run, updated, 2 * limit)
        taken = time.monotonic() - since
    if after is None:
        raise Stalled(f"no update within {taken:.0f} s, {noticed}: {summary(run)}")
    if trial.fault != "freeze":
        if trial.fault == "power":
            hosts.set_link(victim, "up")
        places.start_agent(victim)
    if trial.fault != "freeze" or declared is not None or lost(after):
        places.wait_for_join(victim, run, joins)
    print(f"{trial}: {noticed}, update {taken:.2f} s later", flush=True)
    return taken


def measure(trials: list[Trial], mode: str, limit: float, options: list[str]) -> tuple[list[float], list[str]]:
    """Perform trials in one run. Return their durations, and what went wrong."""
    taken: list[float] = []
    wrong: list[str] = []
    shared = (*HOSTS, *GRAPHS[mode], *SLEEPING, *options)
    with cluster(3, *AGENTS) as places, job(*shared, *places.options, env=SLEEPY, enter=places.enter) as run:
        path = Path(run.wait(lambda status: True).path)
        for trial in trials:
            try:
                taken.append(perform(trial, places, run, limit))
                if taken[-1] > limit:
                    wrong.append(f"{trial}: {taken[-1]:.1f} s")
            except (Stalled, TimeoutError) as error:
                wrong.append(f"{trial}: {error}")
                print(f"FAILED {wrong[-1]}\n{run.output()}", flush=True)
                break
        status = run.wait(lambda status: True)
        found = check(read(path / "journal.jsonl"), status.max_lag)
        wrong += [f"journal of {trials[0].name} to {trials[-1].name}: {text}" for text in found[:5]]
        print(f"(inference {mode}: {status.version} updates; journal {'WRONG' if found else 'clean'})", flush=True)
    return taken, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first trial, to repeat one")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds within which an update must follow")
    parser.add_argument("--inference", nargs="*", default=list(GRAPHS), choices=list(GRAPHS))
    parser.add_argument("options", nargs="*", help="options of `srl train`, behind `--`")
    arguments = parser.parse_args()
    trials = [Trial.of(arguments.seed, arguments.first + number) for number in range(arguments.times)]
    taken: list[float] = []
    wrong: list[str] = []
    for number, begin in enumerate(range(0, len(trials), PER_RUN)):
        mode = arguments.inference[number % len(arguments.inference)]
        some, errors = measure(trials[begin : begin + PER_RUN], mode, arguments.limit, arguments.options)
        taken += some
        wrong += errors
    print("| losses of the trainer's host | recovered | p50 s | p95 s | max s |\n|---|---|---|---|---|")
    print(f"| {len(trials)} | {len(taken)} | {' | '.join(f'{value:.2f}' for value in spread(taken))} |")
    for text in wrong:
        print(f"FAILED {text}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
