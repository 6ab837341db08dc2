"""Sweeps over seeds, grids of options and environments, and searches: several runs at once where that is faster."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srl.api.status import RunStatus
from srl.base.config import TrustCode, to_data
from srl.base.object_names import LOCAL, load_object, name_of, refuse_private_code
from srl.base.process import num_cores
from srl.experiments.graph.environment_probe import EnvironmentProfile
from srl.experiments.graph.preparation import PreparedRun, prepare
from srl.experiments.options.config_file import gather
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.session.launch import Env
from srl.experiments.session.run import RunFailed
from srl.experiments.session.session import OnStatus
from srl.experiments.sweeps.plan import (
    Member,
    Plan,
    Search,
    Variant,
    combinations,
    default_name,
    extended,
    label_of,
    parse_seeds,
    read_plan,
    save_plan,
    with_settings,
)
from srl.experiments.sweeps.processes import (
    FINISHED,
    STOPPED,
    MemberProcesses,
    failure_of,
    is_finished,
    log_of,
    train_member,
)
from srl.storage import ROOT, run_directory
from srl.storage.run_directory import RunDirectory, RunDirectoryError
from srl.storage.run_ownership import Owned, acquire

POLL_SECONDS = 0.2
WORKERS = ("scheduler", "actors", "trainers", "inference", "policies", "hosts")
"""Options that say where the workers of a run are; a sweep chooses the scheduler if none of them is given."""

Suggest = Callable[[Any], Mapping[str, Any]]
OnEnd = Callable[[str, RunStatus | None, str], None]
"""Called when a run ends, with its name, its last status and, if it failed, the reason."""


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep, in one directory."""

    path: Path
    statuses: Mapping[str, RunStatus | None]  # name of each run -> its last status; None before its first end
    failures: Mapping[str, str]  # name of each run that failed -> reason
    complete: bool  # whether all runs have finished or, of a search, all trials have ended
    best: Mapping[str, Any] | None = None  # options of the best trial of a search

    def __repr__(self) -> str:
        done = sum(map(is_finished, self.statuses.values()))
        return f"<Sweep {str(self.path)!r}: {done} of {len(self.statuses)} runs finished>"


@dataclass(frozen=True)
class Sharing:
    """How the runs of a sweep share this machine."""

    jobs: int  # runs at a time
    cores: int | None = None  # cores of each run, if it is limited

    def __str__(self) -> str:
        each = f" on {self.cores} cores each" if self.cores else ""
        return f"{self.jobs} at a time{each}" if self.jobs > 1 else "one at a time"


def sharing(options: TrainOptions, count: int, cores: int, jobs: int | None = None) -> Sharing:
    """Return how `count` runs with these options share the cores of this machine.

    A run in one thread needs a core; one with processes needs a core for each actor and trainer, or by default its part
    of all cores. Jobs of Slurm need none. With `jobs`, that many run at a time.
    """
    workers = options.workers
    if workers.scheduler == "slurm":
        return Sharing(min(count, jobs or count))
    if workers.scheduler in ("hosts", "ray"):
        return Sharing(min(count, jobs or 1))
    if workers.scheduler == "inline":
        return Sharing(max(1, min(count, jobs or cores)))
    if workers.actors is not None:
        return Sharing(max(1, min(count, jobs or cores // (workers.actors + workers.trainers))))
    at_once = max(1, min(count, jobs or cores // 2))  # an actor and a trainer
    return Sharing(at_once, max(1, cores // at_once) if at_once > 1 else None)


def scheduler_for(count: int, cores: int) -> str:
    """Return the scheduler for `count` runs if the user leaves it open: one run per core, without processes of its own,
    trains most steps per second in total (decision 21); fewer runs than that get several cores each."""
    return "inline" if count > 1 and count > cores // 2 else "processes"


def sweep(
    env: str | Callable[..., Any] | Sequence[str | Callable[..., Any]],
    seeds: str | int | Sequence[int] = 1,
    *,
    grid: Mapping[str, Sequence[Any]] | None = None,
    search: str | Path | Callable[[Any], Mapping[str, Any]] | None = None,
    trials: int = 20,
    metric: str = "return",
    maximize: bool = True,
    jobs: int | None = None,
    name: str | None = None,
    root: str | Path = ROOT,
    config: str | Path | Mapping[str, Any] | None = None,
    trust_code: TrustCode = False,
    on_status: Callable[[RunStatus], None] | None = None,
    **options: Any,
) -> Sweep:
    """Train every combination of environments, grid values and seeds, and return the sweep.

    `seeds` is a number of seeds or a list. `grid` maps names of options to lists of values. `search` replaces the grid:
    a function `suggest(trial) -> options` for Optuna, or a Python file with one and possibly a `sampler` and a
    `pruner`. Its `trials` maximize, or minimize, the mean over the last tenth of a run's `metric`. `jobs` is the number
    of runs at a time, by default as many as train fastest on this machine. Other arguments are as for
    :func:`srl.train`; `on_status` receives statuses only if runs are trained one at a time.

    A sweep with this name, or by default with these options, is continued: finished runs are kept, others are resumed.
    """
    envs = [env] if isinstance(env, str) or callable(env) else list(env)
    searched = make_search(search, trials, metric, maximize)
    prepared = prepare_sweep(envs, parse_seeds(seeds), grid or {}, searched, config, options, "keyword", trust_code)
    suggest = search if callable(search) else None
    return start_sweep(prepared, name, Path(root), jobs, on_status, trust_code=trust_code, suggest=suggest)


def make_search(
    search: str | Path | Callable[[Any], Mapping[str, Any]] | None, trials: int, metric: str, maximize: bool
) -> Search | None:
    if search is None:
        return None
    if trials < 1:
        raise ValueError(f"trials must be at least 1, found {trials}")
    if callable(search):
        return Search(_importable(search) or search.__qualname__, trials, metric, maximize)
    file = Path(search).expanduser().resolve()
    if file.suffix != ".py":
        raise ValueError(f"a search is a Python file with a function suggest(trial); found {search}")
    found = Search(f"{file}:suggest", trials, metric, maximize)
    load_object(found.function)  # raises if there is no such function
    return found


def _importable(thing: Any) -> str:
    """Return the name by which other processes can import a function; empty if they cannot."""
    name = name_of(thing)
    return "" if name.startswith(LOCAL) else name


@dataclass(frozen=True)
class PreparedSweep:
    """A sweep that is ready to start."""

    plan: Plan
    first: PreparedRun  # the first of its runs
    scheduler_given: bool


def prepare_sweep(
    envs: Sequence[Env],
    seeds: tuple[int, ...],
    grid: Mapping[str, Sequence[Any]],
    search: Search | None,
    config: str | Path | Mapping[str, Any] | None,
    keywords: Mapping[str, Any],
    source: str,
    trust_code: TrustCode,
) -> PreparedSweep:
    """Prepare each variant of a sweep. Any error in the user's input is raised here, before a directory is created."""
    if search is not None and (grid or len(envs) > 1):
        raise ValueError("a search has one environment and no grid; `suggest` can choose among values")
    chosen = list(combinations(grid))
    count = len(envs) * len(chosen) * len(seeds) * (search.trials if search else 1)
    probes: dict[str, EnvironmentProfile] = {}
    variants: dict[str, Variant] = {}
    runs: list[PreparedRun] = []
    for env in envs:
        for settings in chosen:
            gathered = gather(config, with_settings(keywords, settings), source, trust_code)
            if "seed" in keywords:
                raise ValueError("a sweep takes several seeds: --seeds 3,5 (in Python: seeds=[3, 5])")
            if not (wanted := gathered.environment(env)):
                raise ValueError("ENV is missing: srl sweep CartPole-v1 --seeds 3")
            given = any(name in gathered.sources for name in WORKERS)
            options = gathered.options
            if not given:
                options = options.replace(scheduler=scheduler_for(count, num_cores()))
            runs.append(prepare(wanted, options, gathered.sources, trust_code, probes))
            title = wanted if isinstance(wanted, str) else name_of(wanted)
            refuse_private_code([title, to_data(runs[-1].options)], "because each run of a sweep has its own process")
            label = label_of(title, settings, len(envs) > 1)
            if label in variants:
                raise ValueError(f"two variants of the sweep would have the same name {label!r}")
            variants[label] = Variant(label, title, runs[-1].options)
    return PreparedSweep(Plan(tuple(variants.values()), seeds, search), runs[0], given)


def start_sweep(
    prepared: PreparedSweep,
    name: str | None,
    root: Path,
    jobs: int | None = None,
    on_status: OnStatus = None,
    on_end: OnEnd | None = None,
    trust_code: TrustCode = False,
    suggest: Suggest | None = None,
) -> Sweep:
    """Start a sweep, or continue the one with this name."""
    plan = prepared.plan
    path = root.expanduser().resolve() / run_directory.check_name(name or default_name(plan))
    exists = (path / run_directory.GROUP).is_file()
    if path.exists() and not exists:
        raise RunDirectoryError(f"{path} exists and is not a sweep; choose another --name")
    own = not exists or trust_code is True or run_directory.read_group(path)[1]
    if exists:
        try:
            plan = extended(plan, read_plan(path, trust_code), prepared.scheduler_given)
        except ValueError as error:
            raise ValueError(f"the sweep {path} exists: {error}; choose another --name") from error
    save_plan(plan, path, own)
    return _conduct(plan, path, jobs, on_status, on_end, trust_code, suggest)


def resume_sweep(
    path: Path,
    jobs: int | None = None,
    on_status: OnStatus = None,
    on_end: OnEnd | None = None,
    trust_code: TrustCode = False,
) -> Sweep:
    """Continue a sweep: unfinished runs are resumed or started."""
    return _conduct(read_plan(path, trust_code), path, jobs, on_status, on_end, trust_code)


def _conduct(
    plan: Plan,
    path: Path,
    jobs: int | None,
    on_status: OnStatus,
    on_end: OnEnd | None,
    trust_code: TrustCode,
    suggest: Suggest | None = None,
) -> Sweep:
    say = on_end or (lambda name, status, failure: None)
    with _owned(path):
        if plan.search is not None:
            from srl.experiments.sweeps.search import search

            return search(plan, path, jobs, say, trust_code, suggest)
        members = plan.members(path)
        missing = [member for member in members if not is_finished(status_of(member.run))]
        share = sharing(missing[0].options, len(missing), num_cores(), jobs) if missing else Sharing(1)
        failures: dict[str, str] = {}
        if share.jobs == 1:
            _train_here(missing, on_status, say, failures, trust_code)
        else:
            _train_in_processes(missing, share, say, failures, trust_code is True)
        statuses = {each.run.name: status_of(each.run) for each in members}
        return Sweep(path, statuses, failures, all(map(is_finished, statuses.values())))


def _train_here(
    members: Sequence[Member],
    on_status: OnStatus,
    on_end: OnEnd,
    failures: dict[str, str],
    trust_code: TrustCode,
) -> None:
    """Train one member after the other in this process, until one is interrupted. A failure does not affect the others;
    it is added to `failures`."""
    for member in members:
        name = member.run.name
        try:
            run = train_member(member, on_status, trust_code)
        except RunFailed as error:
            failures[name] = str(error)
            on_end(name, error.status, str(error))
            continue
        if run is not None and run.state != "finished":
            return
        on_end(name, status_of(member.run), "")


def _train_in_processes(
    members: Sequence[Member], share: Sharing, on_end: OnEnd, failures: dict[str, str], trust_code: bool
) -> None:
    """Do the same in a process for each member, as many at a time as `share` says."""
    waiting = deque(members)
    with suppress(KeyboardInterrupt), MemberProcesses(trust_code) as processes:
        while waiting or processes.running:
            while waiting and len(processes.running) < share.jobs:
                processes.start(waiting.popleft(), share.cores)
            for member, code in processes.ended(POLL_SECONDS):
                failure = failure_of(member.run) if code not in (FINISHED, STOPPED) else ""
                if failure:
                    failures[member.run.name] = f"{failure} ({log_of(member.run)})"
                on_end(member.run.name, status_of(member.run), failure)


def status_of(run: RunDirectory) -> RunStatus | None:
    return run.read_status() if run.path.is_dir() else None


@contextmanager
def _owned(path: Path) -> Iterator[None]:
    """Keep other processes from conducting the same sweep."""
    try:
        ownership = acquire(path)
    except Owned as error:
        raise RunDirectoryError(f"the sweep {path} is conducted by another process; stop that one first") from error
    try:
        yield
    finally:
        ownership.release()
