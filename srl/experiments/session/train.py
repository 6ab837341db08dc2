"""Training in one call: the Python door, and what the command line stands on."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from srl.api.experiment import Experiment
from srl.api.status import RunStatus
from srl.base.config import from_data
from srl.base.seeding import derive
from srl.controller.takeover import ControllerState
from srl.experiments.graph.prepare import Prepared, look_at, prepare
from srl.experiments.graph.sizes import with_actors, with_sizes
from srl.experiments.graph.standard import standard_experiment
from srl.experiments.options.algorithms import title_of
from srl.experiments.options.keywords import merged
from srl.experiments.options.sections import AUTO, NONE
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.session import checkpointing
from srl.experiments.session.checkpointing import Restored
from srl.experiments.session.compatibility import check_compatible
from srl.experiments.session.hosting import ClusterSite
from srl.experiments.session.session import Outcome, RunFailed, Session, describe
from srl.experiments.session.slurm_queue import refuse_if_going_on
from srl.experiments.session.slurm_run import begun_or_waiting, follow, script_of
from srl.experiments.session.slurm_run import submit as submit_job
from srl.schedulers.engines.ray import check_ray
from srl.schedulers.engines.slurm_commands import check_slurm
from srl.storage import ROOT, checkpoints, run_directory
from srl.storage.run_directory import RunDirectory
from srl.storage.service_sinks import check_sinks


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
    prepared = prepare(env, *merged(TrainOptions(), options))
    if verbose and on_status is None:
        print(prepared.recipe)
        return watched(lambda observe: launch(prepared, name, Path(root), observe))
    return launch(prepared, name, Path(root), on_status)


def watched(go: Callable[[Callable[[RunStatus], None]], Run]) -> Run:
    """A run with the live view, and the report at its end, whichever end that is."""
    from srl.terminal.view import watching

    with watching() as (observe, finish):
        try:
            run = go(observe)
        except RunFailed as error:
            if error.status is not None:
                finish(error.status)
            raise
        finish(run.status)
        return run


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
    """Train with exactly these options: the recipe that they name has set what it sets."""
    complete = options.replace(recipe=NONE) if options.run.recipe == AUTO else options
    return launch(prepare(env, complete, None), name, root, on_status, began)


def launch(
    prepared: Prepared,
    name: str | None,
    root: Path,
    on_status: Callable[[RunStatus], None] | None,
    began: float | None = None,
) -> Run:
    """Train what is prepared."""
    began = time.time() if began is None else began
    options = prepared.options
    if options.workers.scheduler == "slurm":
        check_slurm(options.cluster.partition)
    elif options.workers.scheduler == "ray":
        check_ray(options.cluster.address)
    run = _directory(root, name, prepared, began)
    if options.workers.scheduler == "slurm":
        with _taken_back(run):
            job = _submit(run, prepared)
        return _follow(run, job, on_status)
    with run.locked():
        with _taken_back(run):
            session = _session(run, prepared, on_status, began)
        return _finished(session.run())


@contextmanager
def _taken_back(run: RunDirectory) -> Iterator[None]:
    """A run that cannot begin leaves no directory: its name, and `latest`, are as they were."""
    try:
        yield
    except BaseException:
        run.remove()
        raise


def submit(prepared: Prepared, name: str | None, root: Path, dry_run: bool = False) -> str:
    """Hand a run over to Slurm and leave it there. Returns what to tell the user; with `dry_run` the script."""
    if dry_run:
        return script_of(RunDirectory(root.resolve() / (name or "NAME")), prepared.experiment, prepared.options)
    check_slurm(prepared.options.cluster.partition)
    run = _directory(root, name, prepared, time.time())
    with _taken_back(run):
        job = _submit(run, prepared)
    try:
        how = begun_or_waiting(run, job)
    except RunFailed:
        run.remove()
        raise
    told = f", {how}" if how else ""
    return f"{run.name} is job {job}{told}; see it with `srl ps`, end it with `srl stop {run.name}`"


def _directory(root: Path, name: str | None, prepared: Prepared, began: float) -> RunDirectory:
    if name:
        return run_directory.create(root, name)
    title, options = prepared.experiment.environment, prepared.options
    return run_directory.create_default(root, title, title_of(options.algo), options.run.seed, began)


def _submit(run: RunDirectory, prepared: Prepared) -> str:
    """The number of the job. The sizes that were chosen are written down: its nodes may have other cores than we."""
    experiment, options = prepared.experiment, prepared.options
    run.write_config(describe(experiment, options, prepared.environment))
    return submit_job(run, experiment, options)


def _follow(run: RunDirectory, job: str, on_status: Callable[[RunStatus], None] | None) -> Run:
    """Watch it on Slurm."""
    return _finished(follow(run, job, on_status or (lambda status: None)))


def conduct_on(
    run: RunDirectory,
    ground: Callable[[Experiment, TrainOptions], ClusterSite],
    on_status: Callable[[RunStatus], None],
) -> Run:
    """Conduct a run whose directory was made elsewhere: from its last checkpoint if it has one, else from the start."""
    began = time.time()
    prepared = _as_written(run.read_config())
    newest = checkpoints.latest(run.checkpoints)
    restored = None
    if newest is not None:
        restored, prepared = _go_on(checkpointing.read(newest), prepared)
    place = ground(prepared.experiment, prepared.options)
    return _finished(_session(run, prepared, on_status, began, restored, place).run())


def attach(run: RunDirectory, on_status: Callable[[RunStatus], None] | None = None) -> Run:
    """Take over a run over hosts whose controller died, while its workers go on."""
    try:
        state = msgspec.json.decode(run.controller.read_bytes(), type=ControllerState)
    except (OSError, msgspec.MsgspecError) as error:
        raise RunFailed(
            f"{run.name} left nothing to attach to: only the workers of a run with --scheduler hosts outlive its "
            f"controller. Go on from its last checkpoint: srl resume {run.name}"
        ) from error
    with run.locked():
        prepared = _as_written(run.read_config())
        spare = None
        with contextlib.suppress(checkpoints.CheckpointError):  # most likely nobody needs it
            newest = checkpoints.latest(run.checkpoints)
            spare = checkpointing.read(newest) if newest is not None else None
        return _finished(_session(run, prepared, on_status, state.began, spare, attached=state).run())


def resume(
    run: RunDirectory | str | Path,
    steps: int | None = None,
    on_status: Callable[[RunStatus], None] | None = None,
    began: float | None = None,
    **changes: Any,
) -> Run:
    """Go on from a run's last checkpoint, in the same directory, up to `steps` in all.

    `run` is its path, its name, a unique beginning of its name, or `latest`. `changes` are options of
    :class:`srl.TrainOptions`; those that are not given stay as they were. But for `until_return`: who asks for `steps`
    wants them all. `began`: when the user asked for it, in seconds since the epoch; by default now.
    """
    began = time.time() if began is None else began
    found = run if isinstance(run, RunDirectory) else run_directory.find(run, ROOT)
    refuse_if_going_on(found)
    if steps is not None:
        changes = {"until_return": None, "steps": steps, **changes}
    config = found.read_config()
    if merged(from_data(config["options"]), changes)[0].workers.scheduler == "slurm":
        # The job itself will hold the directory.
        return _resume(found, config, changes, on_status, began)
    with found.locked():
        return _resume(found, config, changes, on_status, began)


def _resume(
    run: RunDirectory,
    config: Mapping[str, Any],
    changes: Mapping[str, Any],
    on_status: Callable[[RunStatus], None] | None,
    began: float,
) -> Run:
    options, given = merged(from_data(config["options"]), changes)
    check_sinks(options.run.sinks)
    newest = checkpoints.latest(run.checkpoints)
    if newest is None:
        raise RunFailed(f"{run.path} has no checkpoint to go on from; start it anew with `srl train`")
    restored = checkpointing.read(newest)
    if restored.steps >= options.run.steps:
        raise RunFailed(
            f"{run.name} has {restored.steps:,} of {options.run.steps:,} steps already; ask for more: "
            f"srl resume {run.name} --steps {2 * options.run.steps}"
        )
    restored, prepared = _go_on(restored, _as_written(config, options, given))
    if options.workers.scheduler == "slurm":
        check_slurm(options.cluster.partition)
        return _follow(run, _submit(run, prepared), on_status)
    return _finished(_session(run, prepared, on_status, began, restored).run())


def _as_written(
    config: Mapping[str, Any], options: TrainOptions | None = None, given: Collection[str] = ()
) -> Prepared:
    """What a run's config.json describes, with other `options` if those of the names `given` were changed. Recipes
    have said their word in it, and what was chosen for a machine stays."""
    before: TrainOptions = from_data(config["options"])
    options = options or before
    environment = from_data(config["lanes"])
    probed = look_at(environment, options)
    sized = with_sizes(options, config.get("sizes", {}), before, given)
    # The number of actors that somebody asked for counts for the batch, one that was chosen does not.
    asked = sized.replace(actors=options.workers.actors)
    experiment = standard_experiment(config["environment"], environment, probed, asked)
    experiment = with_actors(experiment, sized.workers.actors)
    return Prepared(options, environment, experiment, "", probed.why_not_resumable)


def _go_on(restored: Restored, prepared: Prepared) -> tuple[Restored, Prepared]:
    """A checkpoint and an experiment as they fit together."""
    options, experiment = prepared.options, prepared.experiment
    check_compatible(restored.facts["description"], experiment.description, restored)
    restored = checkpointing.for_graph(restored, experiment, options.workers.scheduler)
    if restored.workers is None:
        # Seeds that were not used yet: nobody should live through the run's first episodes again.
        experiment = dataclasses.replace(experiment, seed=derive(options.run.seed, "resumed", restored.version))
    return restored, dataclasses.replace(prepared, experiment=experiment)


def _session(
    run: RunDirectory,
    prepared: Prepared,
    on_status: Callable[[RunStatus], None] | None,
    began: float,
    restored: Restored | None = None,
    ground: ClusterSite | None = None,
    attached: ControllerState | None = None,
) -> Session:
    options, environment, why_not = prepared.options, prepared.environment, prepared.why_not_resumable
    experiment = dataclasses.replace(prepared.experiment, name=run.name)
    run.write_config(describe(experiment, options, environment))
    preload = (type(environment).__module__,)
    session = Session(experiment, run, options, on_status, began, preload, why_not, ground, attached)
    if restored is not None:
        session.restore(restored)
    return session


def _finished(outcome: Outcome) -> Run:
    if outcome.state == "failed":
        raise RunFailed(f"{outcome.reason}\n(logs are in {outcome.path / 'logs'})", outcome.status)
    return Run(outcome.path, outcome.state, outcome.reason, outcome.status)
