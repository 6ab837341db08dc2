"""Training in one call: the Python door, and what the command line stands on."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srl.api.experiment import Experiment
from srl.api.lanes import LanesConfig
from srl.api.status import RunStatus
from srl.base.config import from_data
from srl.base.nearest import nearest
from srl.experiments.named import anchored, by_name, title_of
from srl.experiments.options import TrainOptions
from srl.experiments.probe import probe
from srl.experiments.session import Outcome, RunFailed, Session, describe
from srl.experiments.standard import standard_experiment
from srl.runs import checkpoints, directory
from srl.runs.directory import RunDirectory
from srl.runs.foreign_sinks import check_sinks
from srl.terminal.bottleneck import Tuning

ROOT = Path("runs")


@dataclass(frozen=True)
class Run:
    """A run that ended."""

    path: Path
    state: str
    """finished | stopped"""
    reason: str
    status: RunStatus
    """The last snapshot: steps, returns, speed."""

    @property
    def name(self) -> str:
        return self.path.name


def make_options(**options: Any) -> TrainOptions:
    """TrainOptions from keywords. An algorithm's own options come as a dictionary, ``ppo={"gamma": 0.99}``; `algo` may
    also be an algorithm's config itself, and `graph` a function."""
    merged: TrainOptions = _merge(TrainOptions(), by_name(options), "")
    return merged


def _merge(config: Any, changes: Mapping[str, Any], place: str) -> Any:
    known = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    merged: dict[str, Any] = {}
    for name, value in changes.items():
        if name not in known:
            raise ValueError(f"no option {place}{name!r}{nearest(name, known)}")
        nested = dataclasses.is_dataclass(known[name]) and isinstance(value, Mapping)
        merged[name] = _merge(known[name], value, f"{name}.") if nested else value
    return dataclasses.replace(config, **merged)


def train(
    env: str | Callable[..., Any],
    *,
    name: str | None = None,
    root: str | Path = ROOT,
    verbose: bool = False,
    on_status: Callable[[RunStatus], None] | None = None,
    **options: Any,
) -> Run:
    """Train a policy and return the finished run.

    `env` is a Gymnasium id, `package.module:function`, `path/file.py:function`, `pettingzoo:...`, `envpool:...`, or a
    function that makes an environment. `options` are those of :class:`srl.TrainOptions`. With `verbose` the live view
    is drawn as by `srl train`.

    Worker processes import your script to find functions that it defines, so keep the call of `train` behind
    ``if __name__ == "__main__":``.
    """
    _refuse_in_worker()
    merged = make_options(**options)
    if verbose and on_status is None:
        from srl.terminal.watch import watching

        with watching(tuning_of(merged)) as (observe, finish):
            run = start(env, merged, name, Path(root), observe)
            finish(run.status)
            return run
    return start(env, merged, name, Path(root), on_status)


def tuning_of(options: TrainOptions) -> Tuning:
    """What the live view needs to know to give advice in figures."""
    num_minibatches = options.ppo.num_minibatches if options.algo == "ppo" else 0
    return Tuning(lanes=options.lanes or 0, ring=options.ring or 0, num_minibatches=num_minibatches)


def _refuse_in_worker() -> None:
    if sys.argv[:1] and sys.argv[0].startswith("srl-worker"):
        raise RuntimeError(
            'srl.train was called while a worker imported this script; put the call behind `if __name__ == "__main__":`'
        )


def start(
    env: str | Callable[..., Any],
    options: TrainOptions,
    name: str | None,
    root: Path,
    on_status: Callable[[RunStatus], None] | None,
    began: float | None = None,
) -> Run:
    """Train with options made already."""
    began = time.time() if began is None else began
    options = anchored(options)
    from srl.environments.ids import lanes_config

    check_sinks(options.sinks)
    environment = lanes_config(env, **options.env_args)
    title = env if isinstance(env, str) else getattr(env, "__qualname__", str(env))
    # Everything that can be wrong is found before a directory is made or a process started.
    experiment = standard_experiment(
        title, environment, probe(environment, options.seed, options.hang_timeout), options
    )
    run = (
        directory.create(root, name)
        if name
        else directory.create_default(root, title, title_of(options.algo), options.seed, began)
    )
    with run.held():
        return _conduct(run, experiment, environment, options, on_status, began, None)


def resume(
    run: RunDirectory | str | Path,
    steps: int | None = None,
    on_status: Callable[[RunStatus], None] | None = None,
    **changes: Any,
) -> Run:
    """Go on from a run's last checkpoint, in the same directory, up to `steps` in all.

    `run` is its path, its name, a unique beginning of its name, or `latest`.
    """
    found = run if isinstance(run, RunDirectory) else directory.find(run, ROOT)
    with found.held():
        return _resume(found, steps, on_status, changes)


def _resume(
    run: RunDirectory, steps: int | None, on_status: Callable[[RunStatus], None] | None, changes: dict[str, Any]
) -> Run:
    began = time.time()
    config = run.read_config()
    environment = from_data(config["lanes"])
    options: TrainOptions = from_data(config["options"])
    if steps is not None:
        changes["steps"] = steps
    options = _merge(options, by_name(changes), "")
    check_sinks(options.sinks)
    newest = checkpoints.latest(run.checkpoints)
    if newest is None:
        raise RunFailed(f"{run.path} has no checkpoint to go on from; start it anew with `srl train`")
    restored = checkpoints.read(newest)
    done = max(int(facts["steps"]) for facts in restored[1]["policies"].values())
    if done >= options.steps:
        raise RunFailed(
            f"{run.name} has {done:,} of {options.steps:,} steps already; ask for more: "
            f"srl resume {run.name} --steps {2 * options.steps}"
        )
    experiment = standard_experiment(
        config["environment"], environment, probe(environment, options.seed, options.hang_timeout), options
    )
    return _conduct(run, experiment, environment, options, on_status, began, restored)


def _conduct(
    run: RunDirectory,
    experiment: Experiment,
    environment: LanesConfig,
    options: TrainOptions,
    on_status: Callable[[RunStatus], None] | None,
    began: float,
    restored: tuple[dict[str, Any], dict[str, Any]] | None,
) -> Run:
    experiment = dataclasses.replace(experiment, name=run.name)
    run.write_config(describe(experiment, options, environment))
    session = Session(experiment, run, options, on_status, began, preload=(type(environment).__module__,))
    if restored is not None:
        session.restore(*_by_policy(*restored))
    return _finished(session.run())


def _by_policy(
    arrays: dict[str, Any], facts: dict[str, Any]
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """A checkpoint's arrays by policy."""
    states: dict[str, dict[str, Any]] = {policy: {} for policy in facts["policies"]}
    for key, value in arrays.items():
        policy, _, name = key.partition("/")
        states[policy][name] = value
    return states, facts["policies"]


def _finished(outcome: Outcome) -> Run:
    if outcome.state == "failed":
        raise RunFailed(f"{outcome.reason}\n(logs are in {outcome.path / 'logs'})")
    return Run(outcome.path, outcome.state, outcome.reason, outcome.status)
