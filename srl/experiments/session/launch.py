"""Starting, resuming and taking over runs: the functions behind `srl.train`, `srl.resume` and the command line."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from srl.api.experiment import Experiment
from srl.api.status import RunStatus
from srl.base.config import from_data
from srl.base.seeding import derive
from srl.controller.takeover import ControllerState
from srl.experiments.graph.preparation import PreparedRun, prepare, probe_for
from srl.experiments.graph.sizes import with_actors, with_sizes
from srl.experiments.graph.standard import standard_experiment
from srl.experiments.options.algorithms import title_of
from srl.experiments.options.config_file import gather
from srl.experiments.options.keywords import merged
from srl.experiments.options.sections import AUTO, NONE, ONLY_AT_START
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.session import checkpointing
from srl.experiments.session.checkpointing import Restored
from srl.experiments.session.cluster_site import ClusterSite
from srl.experiments.session.compatibility import check_compatible
from srl.experiments.session.session import OnStatus, Run, RunFailed, Session, describe
from srl.experiments.session.slurm_queue import refuse_if_running
from srl.experiments.session.slurm_submission import follow, script_of, state_of_new_job
from srl.experiments.session.slurm_submission import submit as submit_job
from srl.schedulers.engines.ray import check_ray
from srl.schedulers.engines.slurm_commands import check_slurm
from srl.storage import ROOT, checkpoints, run_directory
from srl.storage.run_directory import RunDirectory
from srl.storage.service_sinks import check_sinks

Env = str | Callable[..., Any]


def train(
    env: str | Callable[..., Any] = "",
    *,
    config: str | Path | Mapping[str, Any] | None = None,
    name: str | None = None,
    root: str | Path = ROOT,
    verbose: bool = False,
    on_status: Callable[[RunStatus], None] | None = None,
    **options: Any,
) -> Run:
    """Train a policy and return the finished run.

    `env` is a Gymnasium id, `package.module:function`, `path/file.py:function`, `pettingzoo:...`, `envpool:...`, or a
    function that returns an environment. `options` are those of :class:`srl.TrainOptions`. `config` is a TOML or JSON
    file, or a dictionary, with options and possibly `env`, `name` and `root`; arguments of this call take precedence.

    Nothing is printed unless `verbose=True`, which shows the live view and the report of `srl train`; `on_status`
    receives every status instead.

    Worker processes import your script to find functions that it defines, so call `train` under
    ``if __name__ == "__main__":``.
    """
    if sys.argv[:1] and sys.argv[0].startswith("srl-worker"):
        raise RuntimeError(
            'srl.train was called while a worker imported this script; put the call under `if __name__ == "__main__":`'
        )
    gathered = gather(config, options, "keyword")
    env, name = gathered.argument("env", env, ""), gathered.argument("name", name)
    if not env or "seeds" in gathered.command:
        raise ValueError("seeds are for srl.sweep" if env else "env is missing; it is the first argument of srl.train")
    where = Path(gathered.argument("root", root, ROOT))
    prepared = prepare(env, gathered.options, gathered.sources)
    if verbose and on_status is None:
        print(prepared.summary)
        return watched(lambda observe: launch(prepared, name, where, observe))
    return launch(prepared, name, where, on_status)


def watched(conduct: Callable[[Callable[[RunStatus], None]], Run]) -> Run:
    """Conduct a run with the live view, and print the report when it ends or fails."""
    from srl.terminal.view import watching

    with watching() as (observe, finish):
        try:
            run = conduct(observe)
        except RunFailed as error:
            if error.status is not None:
                finish(error.status)
            raise
        finish(run.status)
        return run


def start(
    env: Env, options: TrainOptions, name: str | None, root: Path, on_status: OnStatus, began: float | None = None
) -> Run:
    """Train with exactly these options, which already contain the recipe's values."""
    complete = options.replace(recipe=NONE) if options.run.recipe == AUTO else options
    return launch(prepare(env, complete, None), name, root, on_status, began)


def launch(prepared: PreparedRun, name: str | None, root: Path, on_status: OnStatus, began: float | None = None) -> Run:
    """Conduct a prepared run."""
    began = time.time() if began is None else began
    options = prepared.options
    if options.workers.scheduler == "slurm":
        check_slurm(options.cluster.partition)
    elif options.workers.scheduler == "ray":
        check_ray(options.cluster.address)
    run = _directory(root, name, prepared, began)
    if options.workers.scheduler == "slurm":
        with _removed_on_error(run):
            job = _submit(run, prepared)
        return _finished(follow(run, job, on_status))
    with run.locked():
        with _removed_on_error(run):
            session = _session(run, prepared, on_status, began)
        return _finished(session.run())


@contextmanager
def _removed_on_error(run: RunDirectory) -> Iterator[None]:
    """Remove the directory of a run that cannot start, so that its name stays free and `latest` is unchanged."""
    try:
        yield
    except BaseException:
        run.remove()
        raise


def submit(prepared: PreparedRun, name: str | None, root: Path, dry_run: bool = False) -> str:
    """Submit a run to Slurm without following it. Returns a message or, with `dry_run`, the batch script."""
    if dry_run:
        return script_of(RunDirectory(root.resolve() / (name or "NAME")), prepared.experiment, prepared.options)
    check_slurm(prepared.options.cluster.partition)
    run = _directory(root, name, prepared, time.time())
    with _removed_on_error(run):
        job = _submit(run, prepared)
    try:
        state = state_of_new_job(run, job)
    except RunFailed:
        run.remove()
        raise
    suffix = f", {state}" if state else ""
    return f"{run.name} is job {job}{suffix}; see it with `srl ps`, stop it with `srl stop {run.name}`"


def _directory(root: Path, name: str | None, prepared: PreparedRun, began: float) -> RunDirectory:
    if name:
        return run_directory.create(root, name)
    title, options = prepared.experiment.environment, prepared.options
    return run_directory.create_default(root, title, title_of(options.algo), options.run.seed, began)


def _submit(run: RunDirectory, prepared: PreparedRun) -> str:
    """Write the config and submit; return the job id. Sizes are chosen here, because nodes may have other cores."""
    experiment, options = prepared.experiment, prepared.options
    run.write_config(describe(experiment, options, prepared.environment))
    return submit_job(run, experiment, options)


def conduct_on(run: RunDirectory, site: Callable[[Experiment, TrainOptions], ClusterSite], on_status: OnStatus) -> Run:
    """Conduct a run whose directory exists: from its last checkpoint if it has one, else from the start."""
    began = time.time()
    prepared = _prepared_from(run.read_config())
    newest = checkpoints.latest(run.checkpoints)
    restored = None
    if newest is not None:
        restored, prepared = _matched(checkpointing.read(newest), prepared)
    own_site = site(prepared.experiment, prepared.options)
    return _finished(_session(run, prepared, on_status, began, restored, own_site).run())


def attach(run: RunDirectory, on_status: OnStatus = None) -> Run:
    """Take over a multi-host run whose controller died while its workers continue."""
    try:
        state = msgspec.json.decode(run.controller.read_bytes(), type=ControllerState)
    except (OSError, msgspec.MsgspecError) as error:
        raise RunFailed(
            f"cannot take over {run.name}: only the workers of a run with --scheduler hosts outlive its "
            f"controller. Resume from its last checkpoint: srl resume {run.name}"
        ) from error
    with run.locked():
        prepared = _prepared_from(run.read_config())
        fallback = None
        with contextlib.suppress(checkpoints.CheckpointError):  # needed only if a trainer was also lost
            newest = checkpoints.latest(run.checkpoints)
            fallback = checkpointing.read(newest) if newest is not None else None
        return _finished(_session(run, prepared, on_status, state.began, fallback, takeover=state).run())


def resume(
    run: RunDirectory | str | Path,
    steps: int | None = None,
    on_status: OnStatus = None,
    began: float | None = None,
    **changes: Any,
) -> Run:
    """Resume a run from its last checkpoint, in the same directory, up to `steps` in total.

    `run` is its path, its name, a unique prefix of its name, or `latest`. `changes` are options of
    :class:`srl.TrainOptions`; the others stay as they were, except that `steps` clears `until_return`. `began` is the
    time of the user's command in seconds since the epoch, by default now. Raises ValueError for options that only a new
    run can apply.
    """
    began = time.time() if began is None else began
    found = run if isinstance(run, RunDirectory) else run_directory.find(run, ROOT)
    refuse_if_running(found)
    if steps is not None:
        changes = {"until_return": None, "steps": steps, **changes}
    config = found.read_config()
    if merged(from_data(config["options"]), changes)[0].workers.scheduler == "slurm":
        # The job itself will lock the directory.
        return _resume(found, config, changes, on_status, began)
    with found.locked():
        return _resume(found, config, changes, on_status, began)


def _resume(
    run: RunDirectory, config: Mapping[str, Any], changes: Mapping[str, Any], on_status: OnStatus, began: float
) -> Run:
    options, given = merged(from_data(config["options"]), changes)
    for option in ONLY_AT_START.keys() & given:
        raise ValueError(f"{option} cannot change in a resumed run: {ONLY_AT_START[option]}")
    check_sinks(options.run.sinks)
    newest = checkpoints.latest(run.checkpoints)
    if newest is None:
        raise RunFailed(f"{run.path} has no checkpoint to resume from; start a new run with `srl train`")
    restored = checkpointing.read(newest)
    if restored.steps >= options.run.steps:
        raise RunFailed(
            f"{run.name} has {restored.steps:,} of {options.run.steps:,} steps already; request more: "
            f"srl resume {run.name} --steps {2 * restored.steps}"
        )
    restored, prepared = _matched(restored, _prepared_from(config, options, given))
    if options.workers.scheduler == "slurm":
        check_slurm(options.cluster.partition)
        return _finished(follow(run, _submit(run, prepared), on_status))
    return _finished(_session(run, prepared, on_status, began, restored).run())


def _prepared_from(
    config: Mapping[str, Any], options: TrainOptions | None = None, given: Collection[str] = ()
) -> PreparedRun:
    """Return the run that a config.json describes, or with other `options` if the user changes those named `given`.

    No recipe is applied, since its values are in the config, and the chosen sizes are kept.
    """
    before: TrainOptions = from_data(config["options"])
    options = options or before
    environment = from_data(config["lanes"])
    profile = probe_for(environment, options)
    sized = with_sizes(options, config.get("sizes", {}), before, given)
    # The batch depends on a requested number of actors, but not on a chosen one.
    requested = sized.replace(actors=options.workers.actors)
    experiment = standard_experiment(config["environment"], environment, profile, requested)
    experiment = with_actors(experiment, sized.workers.actors)
    return PreparedRun(options, environment, experiment, profile)


def _matched(restored: Restored, prepared: PreparedRun) -> tuple[Restored, PreparedRun]:
    """Check that checkpoint and experiment are compatible, and return both, adapted to each other."""
    options, experiment = prepared.options, prepared.experiment
    check_compatible(restored.metadata["description"], experiment.description, restored)
    restored = checkpointing.for_graph(restored, experiment, options.workers.scheduler)
    if restored.workers is None:
        # New seeds: the run must not repeat its first episodes.
        experiment = dataclasses.replace(experiment, seed=derive(options.run.seed, "resumed", restored.version))
    return restored, dataclasses.replace(prepared, experiment=experiment)


def _session(
    run: RunDirectory,
    prepared: PreparedRun,
    on_status: OnStatus,
    began: float,
    restored: Restored | None = None,
    site: ClusterSite | None = None,
    takeover: ControllerState | None = None,
) -> Session:
    options, environment, why_not = prepared.options, prepared.environment, prepared.profile.why_not_resumable
    experiment = dataclasses.replace(prepared.experiment, name=run.name)
    run.write_config(describe(experiment, options, environment))
    preload = (type(environment).__module__,)
    session = Session(experiment, run, options, on_status, began, preload, why_not, site, takeover)
    if restored is not None:
        session.restore(restored)
    return session


def _finished(run: Run) -> Run:
    if run.state == "failed":
        raise RunFailed(f"{run.reason}\n(logs are in {run.path / 'logs'})", run.status)
    return run
