"""Diagnosis of a run: its bottleneck, and the option to change. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from srl.api.experiment import Experiment
from srl.api.status import RunStatus, Settings, WorkerStatus
from srl.base.process import num_cores

BUSY = 0.75  # minimum fraction of time at work for a group to count as the bottleneck
IDLE = 0.25  # minimum fraction of time spent waiting for a group to count as underused
FULL = 0.88  # minimum fraction of busy cores for a machine to count as fully used

WORK = {
    "env": "stepping the environment",
    "inference": "inference",
    "update": "updates",
    "publish": "publishing parameters",
    "other": "handing data from one worker to the next",
}
"""Phase of work -> its description in messages."""


@dataclass(frozen=True)
class _Group:
    """Workers of one kind: their number, and the mean fraction of time that they spend in each phase."""

    count: int
    phases: dict[str, float]

    @property
    def waiting(self) -> float:
        return self.phases.get("waiting", 0.0)

    @property
    def work(self) -> float:
        return sum(share for phase, share in self.phases.items() if phase != "waiting")

    def share(self, phase: str) -> float:
        """Return the fraction of non-waiting time spent in this phase."""
        return self.phases.get(phase, 0.0) / self.work if self.work > 0 else 0.0


def settings_of(experiment: Experiment) -> Settings:
    """Return the settings that determine speed; with several policies, those of the first that learns."""
    found: dict[str, int | float] = {}
    for group in experiment.groups:
        found = {**group.config.sizes(), **found}
    return Settings(**{name: found[name] for name in Settings.__struct_fields__ if name in found})  # type: ignore[arg-type]


def diagnose(status: RunStatus, cores: int = 0) -> tuple[str, str]:
    """Return the bottleneck and the advice; both are empty while it is too early to say.

    `cores` is the number of cores that the run can use (default: those of this machine)."""
    cores = cores or num_cores()
    settings = status.settings
    running = [worker for worker in status.workers if worker.state == "running" and worker.busy]
    actors, trainers = _group(running, "actor"), _group(running, "trainer")
    policies, replay, buffers = _group(running, "polic"), _group(running, "replay"), _group(running, "buffers")
    if not actors.count or not trainers.count:
        return "", ""
    # Busy cores, as reported by workers or as measured by the system, because torch may use additional threads.
    reported = sum(share for worker in running for phase, share in worker.busy.items() if phase != "waiting")
    free = cores - max(reported, sum(worker.cpu_percent for worker in running) / 100)
    if len(running) > 1 and len({worker.pid for worker in running}) == 1 and cores > 1:
        return _inline(actors, trainers, cores)
    spare = cores - len(running)  # processes that could be added without more than one per core
    if free <= (1 - FULL) * cores:
        return _all_busy(status, actors, trainers, cores)
    if replay.count and replay.waiting <= 1 - BUSY and replay.waiting < trainers.waiting:
        return _replay_bound(replay, min(free, spare))
    if buffers.count and buffers.waiting <= 1 - BUSY and buffers.waiting < trainers.waiting:
        return _buffer_bound(buffers, min(free, spare))
    if policies.count and policies.waiting <= 1 - BUSY and policies.waiting < trainers.waiting:
        return _policy_bound(policies, min(free, spare), settings)
    if trainers.waiting <= 1 - BUSY and trainers.waiting <= actors.waiting:
        return _trainer_bound(status, trainers, actors, min(free, spare))
    if actors.waiting <= 1 - BUSY:
        return _actor_bound(actors, min(free, spare), settings)
    if status.max_lag == 0 and actors.waiting >= IDLE and trainers.waiting >= IDLE:
        return _alternation(actors, trainers, spare)
    return _latency(status, policies, trainers)


def compilation(status: RunStatus) -> str:
    """Say which code is being compiled; empty if none is."""
    groups = sorted({worker.group for worker in status.workers if worker.compiling and worker.state == "running"})
    if not groups:
        return ""
    what = "the update" if any(group.startswith("trainer") for group in groups) else f"code of {', '.join(groups)}"
    return f"compiling {what} (once per installation)"


def first_update(status: RunStatus) -> tuple[str, str]:
    """Describe how far the first update is, so that a slow environment or a long update does not look like a run that
    hangs. There is no advice unless an actor spends most of its time in the environment."""
    settings = status.settings
    batch, made = settings.batch, min(settings.batch, status.decisions - status.first_steps)
    trainers = _group([worker for worker in status.workers if worker.state == "running"], "trainer")
    steps = round(batch * settings.updates_per_decision)
    if made >= batch and trainers.phases.get("update", 0.0) > 0.5:
        return f"first update: the trainer {f'makes {steps:,} gradient steps' if steps else 'computes it'}", ""
    if made >= batch and steps:
        return f"first update: {steps:,} minibatches are drawn from the replay", ""
    left = (batch - made) / status.env_fps if status.env_fps > 0 else None
    when = "" if left is None else f", complete in about {_time(max(1.0, left))}"
    slow = any(worker.busy.get("env", 0.0) >= BUSY for worker in status.workers if worker.group.startswith("actor"))
    advice = "a smaller batch (--lanes, --horizon) or a faster environment"
    if not made and slow:
        lanes = status.settings.lanes
        copies = f"{lanes} environment copies" if lanes > 1 else "the environment"
        return f"first update: actors are taking the first steps in {copies} each, none has returned yet", advice
    what = f"first update: actors have made {made:,} of the {batch:,} decisions of a batch{when}"
    return what, advice if slow else ""


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _inline(actors: _Group, trainers: _Group, cores: int) -> tuple[str, str]:
    parts = {**actors.phases, **trainers.phases}
    most = max(WORK, key=lambda phase: parts.get(phase, 0.0))
    return (
        f"one thread: all workers take turns, and most of the time goes into {WORK[most]}",
        f"use all {cores} cores: --scheduler processes",
    )


def _all_busy(status: RunStatus, actors: _Group, trainers: _Group, cores: int) -> tuple[str, str]:
    """Diagnose a machine without free cores: one side may still be what the other waits for."""
    if trainers.waiting > 1 - BUSY and actors.waiting <= 1 - BUSY:
        return _actor_bound(actors, 0, status.settings)
    if actors.waiting > 1 - BUSY and trainers.waiting <= 1 - BUSY and trainers.count >= cores:
        return _trainer_bound(status, trainers, actors, 0)
    return "balanced: all cores are busy", "more or faster cores; no option would help"


def _trainer_bound(status: RunStatus, trainers: _Group, actors: _Group, free: float) -> tuple[str, str]:
    """Diagnose busy trainers. `free` is the number of cores for which there could be more processes."""
    what = f"trainer: {_percent(trainers.work)} busy, actors wait {_percent(actors.waiting)}"
    if trainers.share("publish") >= 0.3:
        return (
            f"{what}; much of this is publishing parameters",
            f"publish less often: {_larger('--batch', status.settings.batch)}",
        )
    if free >= 0.75:
        return what, f"train on another core: --trainers {trainers.count + 1}"
    return what, f"make each update cheaper: {_cheaper_update(status.settings)}"


def _actor_bound(actors: _Group, free: float, settings: Settings) -> tuple[str, str]:
    """Diagnose busy actors. `free` is the number of cores for which there could be more processes."""
    phase = max(("env", "inference", "other"), key=actors.share)
    share = _percent(actors.phases.get(phase, 0.0))
    if phase == "env":
        what = f"environment: actors step it {share} of the time"
    elif phase == "inference":
        what = f"inference: actors compute actions {share} of the time"
    else:
        what = f"overhead per step: actors spend {share} outside environment and inference"
    if free >= 0.75:
        return what, f"use the free cores: --actors {actors.count + max(1, int(free))}"
    if phase == "env":
        return what, "use a faster environment (a native vector environment, EnvPool) or more cores"
    return what, f"amortize each call over more lanes: {_larger('--lanes', settings.lanes)}"


def _policy_bound(policies: _Group, free: float, settings: Settings) -> tuple[str, str]:
    what = f"policy worker: {_percent(policies.work)} busy, actors wait for its answers"
    if free >= 0.75:
        return what, f"use another core: --policies {policies.count + 1}"
    return what, f"make batches larger: {_larger('--ring', settings.ring)}"


def _replay_bound(replay: _Group, free: float) -> tuple[str, str]:
    what = f"replay worker: {_percent(replay.work)} busy, trainers wait for its batches"
    if free >= 0.75:
        return what, f"use another core: --replay-workers {replay.count + 1}"
    return what, "draw inside the trainers, without copies between processes: --replay inline"


def _buffer_bound(buffers: _Group, free: float) -> tuple[str, str]:
    what = f"buffer worker: {_percent(buffers.work)} busy, trainers wait for its batches"
    if free >= 2 * 0.75:  # each buffer worker has its replay worker
        return what, f"use other cores: --replay-workers {buffers.count + 1}"
    return what, "change batches inside the trainers, without copies between processes: leave out --buffer-workers"


def _alternation(actors: _Group, trainers: _Group, spare: int) -> tuple[str, str]:
    what = "alternation: with --max-lag 0, actors and trainer take turns"
    enough = min(max(actors.count, trainers.count + 1), trainers.count + spare)
    if enough <= trainers.count:
        return what, "let them overlap: --max-lag 1"
    return what, f"let them overlap with --max-lag 1, or stay synchronous with --trainers {enough}"


def _latency(status: RunStatus, policies: _Group, trainers: _Group) -> tuple[str, str]:
    if policies.count:
        what = "latency: actors wait for answers although policy workers are not busy"
        return what, f"overlap waiting with stepping: {_larger('--ring', status.settings.ring)}"
    filled = max((stream.filled for stream in status.streams if stream.kind == "push"), default=0.0)
    if trainers.waiting >= IDLE and filled < 0.5:
        what = "hand-over: trainer and actors wait for each other"
        return what, f"allow more blocks in flight: --max-lag {status.max_lag + 1}"
    return "other programs: workers are ready to run, but the cores are taken", "check what else runs on this machine"


def _group(workers: Iterable[WorkerStatus], prefix: str) -> _Group:
    mine = [worker for worker in workers if worker.group.startswith(prefix)]
    phases = {phase for worker in mine for phase in worker.busy}
    return _Group(len(mine), {phase: sum(w.busy.get(phase, 0.0) for w in mine) / len(mine) for phase in sorted(phases)})


def _larger(option: str, value: int) -> str:
    return f"{option} {2 * value}" if value else f"a larger {option}"


def _cheaper_update(settings: Settings) -> str:
    if settings.updates_per_decision:
        return f"--algo.updates-per-decision {settings.updates_per_decision / 2:g}, or a smaller network"
    if settings.num_minibatches > 1:
        return f"--algo.num-minibatches {settings.num_minibatches // 2}"
    if settings.epochs > 1:
        return f"--algo.epochs {settings.epochs - 1}, or a smaller network"
    return "a smaller network"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
