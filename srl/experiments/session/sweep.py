"""Seed sweeps: the same training with several seeds, in parallel if there are enough cores."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srl.api.status import PolicyStatus, RunStatus
from srl.base.config import from_data, to_data
from srl.base.errors import last_line
from srl.base.object_names import name_of
from srl.base.process import num_cores, signal_on_parent_death
from srl.base.statistics import Mean, mean_of
from srl.experiments.graph.preparation import prepare
from srl.experiments.options.algorithms import title_of
from srl.experiments.options.keywords import merged
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.session.launch import Env, resume, start
from srl.experiments.session.session import OnStatus, Run, RunFailed
from srl.storage import ROOT, checkpoints, run_directory
from srl.storage.run_directory import RunDirectory

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Sweep:
    """Runs that differ only in their seeds, in one directory."""

    path: Path
    statuses: dict[int, RunStatus]  # seed -> last status of its run

    seeds: tuple[int, ...]  # all seeds of the sweep

    @property
    def complete(self) -> bool:
        return all(_is_finished(self.statuses.get(seed)) for seed in self.seeds)

    @property
    def returns(self) -> Mean:
        """Mean of the finished runs' last returns (each a mean of 100 episodes), with its 95 % confidence interval."""
        return _mean_return([status for status in self.statuses.values() if _is_finished(status)])

    @property
    def returns_by_policy(self) -> dict[str, Mean]:
        """Same as `returns`, for each policy."""
        done = [status for status in self.statuses.values() if _is_finished(status)]
        policies = dict.fromkeys(name for status in done for name in status.policies)
        return {name: _mean_return([status.policies[name] for status in done]) for name in policies}


def _mean_return(found: Sequence[RunStatus | PolicyStatus]) -> Mean:
    return mean_of([one.return_mean for one in found if one.return_mean is not None])


def _is_finished(status: RunStatus | None) -> bool:
    return status is not None and status.state == "finished"


def parse_seeds(text: str | int | Sequence[int]) -> tuple[int, ...]:
    """Return the seeds: `5` means 0 to 4, `3,5,8` these three."""
    if isinstance(text, str):
        try:
            numbers = [int(part) for part in text.split(",")]
        except ValueError:
            raise ValueError(f"seeds must be a count, e.g. 5, or a list, e.g. 3,5,8; found {text!r}") from None
        seeds: Sequence[int] = range(numbers[0]) if len(numbers) == 1 else numbers
    else:
        seeds = range(text) if isinstance(text, int) else text
    if not seeds or len(set(seeds)) != len(seeds):
        raise ValueError(f"expected at least one seed, without duplicates; found {text!r}")
    return tuple(seeds)


def num_parallel(options: TrainOptions, count: int, cores: int) -> int:
    """Return how many runs to train at a time. With processes, each needs a core per actor and trainer, or all."""
    if options.workers.scheduler == "inline":
        needed = 1
    elif options.workers.actors is None:
        needed = cores
    else:
        needed = options.workers.actors + options.workers.trainers
    return max(1, min(count, cores // needed))


def sweep(
    env: str | Callable[..., Any],
    seeds: str | int | Sequence[int] = 5,
    *,
    name: str | None = None,
    root: str | Path = ROOT,
    on_status: Callable[[RunStatus], None] | None = None,
    **options: Any,
) -> Sweep:
    """Train with several seeds, given as their number or as a list. Other arguments are as for :func:`srl.train`."""
    numbers = parse_seeds(seeds)
    prepared = prepare(env, *merged(TrainOptions(), options))
    return start_sweep(env, numbers, prepared.options, name, Path(root), on_status)


def start_sweep(
    env: Env, seeds: Sequence[int], options: TrainOptions, name: str | None, root: Path, on_status: OnStatus = None
) -> Sweep:
    """Start a sweep with options that already contain the recipe's values."""
    title = env if isinstance(env, str) else name_of(env)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    base = name or run_directory.slug(f"{title.rpartition('/')[2]}-{title_of(options.algo)}")[:40] + f"-{stamp}"
    description = {"env": title, "seeds": list(seeds), "options": to_data(options)}
    return _train_all(run_directory.create_group(root, base, description), env, seeds, options, on_status)


def resume_sweep(path: Path, on_status: OnStatus = None) -> Sweep:
    """Resume an interrupted sweep: unfinished runs are resumed or started."""
    description = run_directory.read_group(path)
    return _train_all(path, description["env"], description["seeds"], from_data(description["options"]), on_status)


def _train_all(path: Path, env: Env, seeds: Sequence[int], options: TrainOptions, on_status: OnStatus) -> Sweep:
    members = {seed: RunDirectory(path / f"{path.name}-{seed}") for seed in seeds}
    missing = [seed for seed, run in members.items() if not _is_finished(_status_of(run))]
    jobs = num_parallel(options, len(missing), num_cores())
    if jobs > 1:
        train_in_processes(env if isinstance(env, str) else name_of(env), missing, options, path, jobs)
    else:
        for seed in missing:
            if _train(env, options.replace(seed=seed), members[seed], on_status).state != "finished":
                break
    statuses = {seed: _status_of(run) for seed, run in members.items()}
    known = {seed: status for seed, status in statuses.items() if status is not None}
    return Sweep(path, known, tuple(seeds))


def _status_of(run: RunDirectory) -> RunStatus | None:
    return run.read_status() if run.path.is_dir() else None


def _train(env: Env, options: TrainOptions, run: RunDirectory, on_status: OnStatus) -> Run:
    """Resume a run from its last checkpoint, or start it if it has none."""
    if checkpoints.latest(run.checkpoints) is not None:
        return resume(run, on_status=on_status)
    shutil.rmtree(run.path, ignore_errors=True)  # it was interrupted before its first checkpoint
    return start(env, options, run.name, run.path.parent, on_status)


def train_in_processes(env: str, seeds: Sequence[int], options: TrainOptions, path: Path, jobs: int) -> None:
    """Conduct each run in its own process, `jobs` at a time. The first failure ends the others."""
    waiting = list(seeds)
    running: dict[int, subprocess.Popen[str]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                seed = waiting.pop(0)
                running[seed] = _launch(env, options.replace(seed=seed), path, f"{path.name}-{seed}")
            time.sleep(POLL_SECONDS)
            for seed, process in list(running.items()):
                code = process.poll()
                if code is None:
                    continue
                del running[seed]
                if code != 0:
                    log = path / f"{path.name}-{seed}.log"
                    last = last_line(log.read_text(), "no message", limit=None)
                    raise RunFailed(f"the run with seed {seed} failed: {last}\n(its output is in {log})")
    finally:
        for process in running.values():
            process.send_signal(signal.SIGTERM)
        for process in running.values():
            process.wait()


def _launch(env: str, options: TrainOptions, path: Path, name: str) -> subprocess.Popen[str]:
    with open(path / f"{name}.log", "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "srl.experiments.session.sweep"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            text=True,
        )
    assert process.stdin is not None
    with process.stdin as pipe:
        pipe.write(json.dumps({"env": env, "options": to_data(options), "name": name, "root": str(path)}))
    return process


def member() -> int:
    """Conduct one run of a sweep, described on standard input. Ends if the parent process dies."""
    signal_on_parent_death(signal.SIGTERM)
    job = json.loads(sys.stdin.read())
    run = _train(job["env"], from_data(job["options"]), RunDirectory(Path(job["root"]) / job["name"]), None)
    return 0 if run.state == "finished" else 1


if __name__ == "__main__":
    sys.exit(member())
