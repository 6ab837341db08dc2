"""Which part of a run holds the others up, and which option to change because of it. Pure functions of a snapshot."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from srl.api.status import RunStatus, Settings, WorkerStatus

BUSY = 0.75
"""From this share of working time on, a group is what the others wait for."""
IDLE = 0.25
"""From this share of waiting time on, a group could do more."""
FULL = 0.88
"""From this share of the cores in use on, a machine counts as used up."""


@dataclass(frozen=True)
class _Group:
    """The workers of one kind, seen as one: how many, and their mean shares of time."""

    count: int
    phases: dict[str, float]

    @property
    def waiting(self) -> float:
        return self.phases.get("waiting", 0.0)

    @property
    def work(self) -> float:
        return sum(share for phase, share in self.phases.items() if phase != "waiting")

    def share(self, phase: str) -> float:
        """Of the time it works."""
        return self.phases.get(phase, 0.0) / self.work if self.work > 0 else 0.0


def diagnose(status: RunStatus, cores: int = 0) -> tuple[str, str]:
    """What the bottleneck is, and what to change. Both are empty while it is too early to say. `cores`: those of this
    machine, if not told."""
    cores = cores or len(os.sched_getaffinity(0))
    settings = status.settings
    running = [worker for worker in status.workers if worker.state == "running" and worker.busy]
    actors, trainers = _group(running, "actor"), _group(running, "trainer")
    policies = _group(running, "polic")
    if not actors.count or not trainers.count:
        return "", ""
    free = cores - _cores_used(running)
    if len(running) > 1 and len({worker.pid for worker in running}) == 1 and cores > 1:
        return _inline(actors, trainers, cores)
    if free <= (1 - FULL) * cores:
        return "balanced: all cores are busy", "nothing to gain but faster hardware"
    if policies.count and policies.waiting <= 1 - BUSY and policies.waiting < trainers.waiting:
        return _policy_bound(policies, free, settings)
    if trainers.waiting <= 1 - BUSY and trainers.waiting <= actors.waiting:
        return _trainer_bound(status, trainers, actors, free, cores)
    if actors.waiting <= 1 - BUSY:
        return _actor_bound(actors, free, settings)
    if status.max_lag == 0 and actors.waiting >= IDLE and trainers.waiting >= IDLE:
        return _alternation(actors, trainers, cores)
    return _latency(status, policies, trainers)


def _inline(actors: _Group, trainers: _Group, cores: int) -> tuple[str, str]:
    parts = {**actors.phases, **trainers.phases}
    most = max((phase for phase in parts if phase != "waiting"), key=lambda phase: parts[phase], default="other")
    return (
        f"one thread: everything takes turns, most of the time goes into {most}",
        f"use all {cores} cores: --scheduler processes",
    )


def _trainer_bound(status: RunStatus, trainers: _Group, actors: _Group, free: float, cores: int) -> tuple[str, str]:
    what = f"trainer: {_percent(trainers.work)} busy, actors wait {_percent(actors.waiting)}"
    if trainers.share("publish") >= 0.3:
        return (
            f"{what}; much of it publishes parameters",
            f"publish less often: {_larger('--batch', status.settings.batch)}",
        )
    if free >= 0.75 and trainers.count < cores:
        return what, f"train on another core: --trainers {trainers.count + 1}"
    return what, f"make each update cheaper: {_fewer_minibatches(status.algorithm, status.settings)}"


def _actor_bound(actors: _Group, free: float, settings: Settings) -> tuple[str, str]:
    phase = max(("env", "inference", "other"), key=actors.share)
    share = _percent(actors.phases.get(phase, 0.0))
    if phase == "env":
        what = f"environment: actors step it {share} of the time"
    elif phase == "inference":
        what = f"inference: actors decide {share} of the time"
    else:
        what = f"overhead per step: actors spend {share} beside environment and inference"
    if free >= 0.75:
        return what, f"use the free cores: --actors {actors.count + max(1, int(free))}"
    if phase == "env":
        return what, "a faster environment (a native vector environment, EnvPool) or more cores"
    return what, f"spread the cost of a call over more lanes: {_larger('--lanes', settings.lanes)}"


def _policy_bound(policies: _Group, free: float, settings: Settings) -> tuple[str, str]:
    what = f"policy worker: {_percent(policies.work)} busy, everyone waits for its answers"
    if free >= 0.75:
        return what, f"answer on another core: --policies {policies.count + 1}"
    return what, f"answer more lanes per batch: {_larger('--ring', settings.ring)}"


def _alternation(actors: _Group, trainers: _Group, cores: int) -> tuple[str, str]:
    what = "alternation: with max_lag 0 actors and trainer wait for each other"
    if trainers.count >= cores:
        return what, "let them overlap: --max-lag 1"
    enough = max(actors.count, trainers.count + 1)
    return what, f"let them overlap with --max-lag 1, or stay synchronous with --trainers {enough}"


def _latency(status: RunStatus, policies: _Group, trainers: _Group) -> tuple[str, str]:
    if policies.count:
        what = "latency: actors wait for answers that nobody is slow to give"
        return what, f"hide it: {_larger('--ring', status.settings.ring)}"
    if trainers.waiting >= IDLE and _filled(status) < 0.5:
        what = "hand-over: trainer and actors wait for each other"
        return what, f"allow more on the way: --max-lag {status.max_lag + 1}"
    return "nothing of ours: workers run, but the cores are taken", "see what else runs on this machine"


def _group(workers: Iterable[WorkerStatus], prefix: str) -> _Group:
    mine = [worker for worker in workers if worker.group.startswith(prefix)]
    phases = {phase for worker in mine for phase in worker.busy}
    return _Group(len(mine), {phase: sum(w.busy.get(phase, 0.0) for w in mine) / len(mine) for phase in sorted(phases)})


def _cores_used(workers: list[WorkerStatus]) -> float:
    """The larger of what the workers say and what the system measured: torch may use threads of its own."""
    said = sum(share for worker in workers for phase, share in worker.busy.items() if phase != "waiting")
    return max(said, sum(worker.cpu_percent for worker in workers) / 100)


def _filled(status: RunStatus) -> float:
    return max((stream.filled for stream in status.streams if stream.kind == "push"), default=0.0)


def _larger(option: str, value: int) -> str:
    return f"{option} {2 * value}" if value else f"a larger {option}"


def _fewer_minibatches(algorithm: str, settings: Settings) -> str:
    name = algorithm or "ppo"
    if name not in ("ppo", "impala", "ppg", "ippo", "mappo"):
        return "a smaller network, or fewer passes over a batch"
    option = f"--{name}.num-minibatches"
    if settings.num_minibatches == 1:
        return "a smaller network" if name == "impala" else f"a smaller network, or fewer epochs (--{name}.epochs)"
    return f"{option} {settings.num_minibatches // 2}" if settings.num_minibatches else f"a smaller {option}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
