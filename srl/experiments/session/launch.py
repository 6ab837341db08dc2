"""Starting, resuming and taking over runs: the functions behind `srl.train`, `srl.resume` and the command line."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from srl.api.experiment import Experiment
from srl.api.status import RunStatus
from srl.api.worker import RunBroken
from srl.base.config import TrustCode, refuse_code
from srl.base.seeding import derive
from srl.callbacks.callback import Callback
from srl.controller.takeover import ControllerState
from srl.experiments.graph.preparation import PreparedRun, prepare, probe_for
from srl.experiments.graph.replay import replay_modules
from srl.experiments.graph.sizes import describe, with_actors, with_sizes
from srl.experiments.graph.standard import standard_experiment
from srl.experiments.options.algorithms import title_of
from srl.experiments.options.config_file import gather
from srl.experiments.options.keywords import merged
from srl.experiments.options.sections import AUTO, NONE, ONLY_AT_START
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.session import checkpointing
from srl.experiments.session.callback_runner import check_callbacks, split_callbacks
from srl.experiments.session.checkpointing import Restored
from srl.experiments.session.cluster_site import ClusterSite
from srl.experiments.session.compatibility import check_compatible
from srl.experiments.session.run import Run, RunFailed
from srl.experiments.session.session import OnStatus, Session
from srl.experiments.session.slurm_queue import refuse_if_running
from srl.experiments.session.slurm_submission import follow, script_of, state_of_new_job
from srl.experiments.session.slurm_submission import submit as submit_job
from srl.schedulers.engines.ray import check_ray
from srl.schedulers.engines.slurm_commands import check_slurm
from srl.storage import ROOT, checkpoints, run_directory
from srl.storage.run_directory import RunDirectory
from srl.storage.run_ownership import Ownership
from srl.storage.saved_policies import choose_checkpoint
from srl.storage.service_sinks import check_sinks

Env = str | Callable[..., Any]


class NothingToTrain(RunFailed):
    """The last checkpoint of a run has all of its `steps`."""

    def __init__(self, text: str, steps: int) -> None:
        super().__init__(text)
        self.steps = steps


def train(
    env: str | Callable[..., Any] = "",
    *,
    config: str | Path | Mapping[str, Any] | None = None,
    name: str | None = None,
    root: str | Path = ROOT,
    trust_code: TrustCode = False,
    verbose: bool | None = None,
    on_status: Callable[[RunStatus], None] | None = None,
    callbacks: Callback | str | Sequence[Callback | str] = (),
    **options: Any,
) -> Run:
    """Train a policy and return the finished run.

    `env` is a Gymnasium id, `package.module:function`, `path/file.py:function`, `pettingzoo:...`, `envpool:...`, or a
    function that returns an environment. `options` are those of :class:`srl.TrainOptions`. `config` is a TOML or JSON
    file, or a dictionary, with options and possibly `env`, `name` and `root`; arguments of this call take precedence.
    A file may name code outside of SRL only with `trust_code`, as for :func:`srl.load`.

    `callbacks` are :class:`srl.Callback` objects, or names as for `--callbacks`.

    The live view and the report of `srl train` are shown if standard output is a terminal; a notebook shows a bar and
    the curve of the return. `verbose=True` shows them anywhere, `verbose=False` nowhere; `on_status` receives every
    status instead.

    Worker processes import your script to find functions and classes of yours that it passes, so call `train` under
    ``if __name__ == "__main__":`` if there are any.
    """
    if sys.argv[:1] and sys.argv[0].startswith("srl-worker"):
        advice = 'put the call under `if __name__ == "__main__":`'
        raise RunBroken(f"srl.train was called while a worker imported this script; {advice}")
    objects, names = split_callbacks(callbacks, options)
    gathered = gather(config, {**options, **names}, "keyword", trust_code)
    env, name = gathered.environment(env), gathered.argument("name", name)
    if not env:
        raise ValueError("env is missing; it is the first argument of srl.train")
    where = Path(gathered.argument("root", root, ROOT))
    prepared = prepare(env, gathered.options, gathered.sources, trust_code)
    if on_status is None and shows_view(verbose):
        print(prepared.summary)
        return watched(lambda observe: launch(prepared, name, where, observe, callbacks=objects))
    return launch(prepared, name, where, on_status, callbacks=objects)


def shows_view(verbose: bool | None) -> bool:
    """Return whether a function of the library shows the live view: by default in a terminal or a notebook."""
    from srl.terminal.notebook import in_notebook

    return (sys.stdout.isatty() or in_notebook()) if verbose is None else verbose


def watched(conduct: Callable[[Callable[[RunStatus], None]], Run], log_format: str = "text") -> Run:
    """Conduct a run with the live view, and print the report when it ends or fails."""
    from srl.terminal.view import watching

    with watching(log_format=log_format) as (observe, finish):
        try:
            run = conduct(observe)
        except RunFailed as error:
            if error.status is not None:
                finish(error.status)
            raise
        finish(run.status)
        return run


def start(
    env: Env,
    options: TrainOptions,
    name: str | None,
    root: Path,
    on_status: OnStatus,
    began: float | None = None,
    own: bool = True,
) -> Run:
    """Train with exactly these options, which already contain the recipe's values. `own`: they are the user's."""
    complete = options.replace(recipe=NONE) if options.run.recipe == AUTO else options
    return launch(dataclasses.replace(prepare(env, complete, None), own=own), name, root, on_status, began)


def launch(
    prepared: PreparedRun,
    name: str | None,
    root: Path,
    on_status: OnStatus,
    began: float | None = None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Conduct a prepared run."""
    began = time.time() if began is None else began
    options = prepared.options
    check_callbacks(options, callbacks)
    if options.workers.scheduler == "slurm":
        check_slurm(options.cluster.partition)
    elif options.workers.scheduler == "ray":
        check_ray(options.cluster.address)
    run = _directory(root, name, prepared, began)
    if options.workers.scheduler == "slurm":
        with _removed_on_error(run):
            job = _submit(run, prepared)
        return _finished(follow(run, job, on_status))
    with run.locked() as ownership:
        with _removed_on_error(run):
            session = _session(run, ownership, prepared, on_status, began, callbacks=callbacks)
        return _finished(session.run())


def followed(run: RunDirectory, job: str, on_status: OnStatus) -> Run:
    """Follow the Slurm job of a run that another process submitted."""
    return _finished(follow(run, job, on_status))


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
    run.write_config(describe(prepared.experiment, prepared.options, prepared.environment), prepared.own)
    return submit_job(run, prepared.experiment, prepared.options)


def conduct_on(
    run: RunDirectory,
    ownership: Ownership,
    site: Callable[[Experiment, TrainOptions], ClusterSite],
    on_status: OnStatus,
) -> Run:
    """Conduct a run that was submitted: from its last checkpoint if it has one, else from the start. Whoever submitted
    it has trusted its code."""
    began = time.time()
    prepared = _prepared_from(run.load_config(trust_code=True), trust_code=True, own=run.trusted(False) is True)
    restored = checkpointing.read_newest(run.checkpoints)
    if restored is not None:
        restored, prepared = _matched(restored, prepared)
    own_site = site(prepared.experiment, prepared.options)
    return _finished(_session(run, ownership, prepared, on_status, began, restored, own_site).run())


def attach(run: RunDirectory, on_status: OnStatus = None, trust_code: TrustCode = False) -> Run:
    """Take over a multi-host run whose controller died while its workers continue."""
    try:
        state = msgspec.json.decode(run.controller.read_bytes(), type=ControllerState)
    except (OSError, msgspec.MsgspecError) as error:
        raise RunFailed(
            f"cannot take over {run.name}: only the workers of a run with --scheduler hosts outlive its "
            f"controller. Resume from its last checkpoint: srl resume {run.name}"
        ) from error
    # Whoever wrote the controller's key to the run directory could join as an agent.
    refuse_code(["agents of a run that you did not start"], str(run.path), run.trusted(trust_code))
    with run.locked() as ownership:
        prepared = _prepared_from(run.load_config(trust_code, writing=True), trust_code=trust_code)
        fallback = None
        with contextlib.suppress(checkpoints.CheckpointError):  # needed only if a trainer was also lost
            fallback = checkpointing.read_newest(run.checkpoints)
        return _finished(_session(run, ownership, prepared, on_status, state.began, fallback, takeover=state).run())


def resume(
    run: RunDirectory | str | Path,
    steps: int | None = None,
    on_status: OnStatus = None,
    began: float | None = None,
    checkpoint: str | int | Path = "latest",
    trust_code: TrustCode = False,
    callbacks: Sequence[Callback | str] = (),
    verbose: bool | None = None,
    **changes: Any,
) -> Run:
    """Resume a run from its last checkpoint, in the same directory, up to `steps` in total.

    `run` is its path, its name, a unique prefix of its name, or `latest`. `checkpoint` is a name, a number of steps or
    a path; a copy of it becomes the newest checkpoint. By default, the run continues from the newest undamaged one.
    `changes` are options of :class:`srl.TrainOptions`; the others stay as they were, except that `steps` clears
    `until_return` and `until`. The run continues with the callbacks that its options name, or with those that
    `callbacks` names; objects in `callbacks` are added and get the state that objects of their classes had. `began` is
    the time of the user's command in seconds since the epoch, by default now. `trust_code` is as for :func:`srl.load`;
    runs that you started do not need it. `verbose` is as for :func:`srl.train`. Raises ValueError for options that only
    a new run can apply.
    """
    began = time.time() if began is None else began
    found = run if isinstance(run, RunDirectory) else run_directory.find(run, ROOT)
    refuse_if_running(found)
    objects, names = split_callbacks(callbacks, changes)
    changes |= names
    if steps is not None:
        changes = {"until_return": None, "until": (), "steps": steps, **changes}
    config = found.load_config(trust_code, writing=True)

    def conduct(observe: OnStatus) -> Run:
        if merged(config["options"], changes)[0].workers.scheduler == "slurm":
            # The job itself will lock the directory.
            return _resume(found, None, config, changes, observe, began, checkpoint, trust_code, objects)
        with found.locked() as ownership:
            return _resume(found, ownership, config, changes, observe, began, checkpoint, trust_code, objects)

    return watched(conduct) if on_status is None and shows_view(verbose) else conduct(on_status)


def _resume(
    run: RunDirectory,
    ownership: Ownership | None,
    config: Mapping[str, Any],
    changes: Mapping[str, Any],
    on_status: OnStatus,
    began: float,
    checkpoint: str | int | Path,
    trust_code: TrustCode,
    callbacks: Sequence[Callback],
) -> Run:
    options, given = merged(config["options"], changes)
    check_callbacks(options, callbacks)
    for option in ONLY_AT_START.keys() & given:
        raise ValueError(f"{option} cannot change in a resumed run: {ONLY_AT_START[option]}")
    check_sinks(options.run.sinks)
    restored = _restorable(run, checkpoint)
    restored.refuse_texts(trust_code)
    if restored.steps >= options.run.steps:
        raise NothingToTrain(
            f"{run.name} has {restored.steps:,} of {options.run.steps:,} steps already; request more: "
            f"srl resume {run.name} --steps {2 * restored.steps}",
            restored.steps,
        )
    prepared = _prepared_from(config, options, given, trust_code, own=run.trusted(trust_code) is True)
    restored, prepared = _matched(restored, prepared)
    if checkpoint != "latest":
        newest = checkpoints.copy_as_newest(restored.source, run.checkpoints)  # also for attempts of a Slurm job
        restored = dataclasses.replace(restored, source=newest)
    if options.workers.scheduler == "slurm":
        check_slurm(options.cluster.partition)
        return _finished(follow(run, _submit(run, prepared), on_status))
    assert ownership is not None
    return _finished(_session(run, ownership, prepared, on_status, began, restored, callbacks=callbacks).run())


def _restorable(run: RunDirectory, checkpoint: str | int | Path) -> Restored:
    """Return the chosen checkpoint, by default the newest undamaged one."""
    if checkpoint == "latest":
        newest = checkpointing.read_newest(run.checkpoints)
        if newest is None:
            raise RunFailed(f"{run.path} has no checkpoint to resume from; start a new run with `srl train`")
        return newest
    restored = checkpointing.read(choose_checkpoint(run, checkpoint))
    if "graph" not in restored.metadata:
        raise ValueError(
            f"{restored.source} contains only parameters, as the best checkpoint of a run does; a run resumes from a "
            "checkpoint with the state of its trainers"
        )
    return restored


def _prepared_from(
    config: Mapping[str, Any],
    options: TrainOptions | None = None,
    given: Collection[str] = (),
    trust_code: TrustCode = False,
    own: bool = True,
) -> PreparedRun:
    """Return the run that a config.json describes, or with other `options` if the user changes those named `given`.

    No recipe is applied, since its values are in the config, and the chosen sizes are kept."""
    before, environment = config["options"], config["lanes"]
    options = options or before
    profile = probe_for(environment, options)
    sized = with_sizes(options, config["sizes"], before, given)
    # The batch depends on a requested number of actors, but not on a chosen one.
    requested = sized.replace(actors=options.workers.actors)
    experiment = standard_experiment(config["environment"], environment, profile, requested, trust_code)
    experiment = with_actors(experiment, sized.workers.actors)
    return PreparedRun(options, environment, experiment, profile, own=own)


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
    ownership: Ownership,
    prepared: PreparedRun,
    on_status: OnStatus,
    began: float,
    restored: Restored | None = None,
    site: ClusterSite | None = None,
    takeover: ControllerState | None = None,
    callbacks: Sequence[Callback] = (),
) -> Session:
    options, environment, why_not = prepared.options, prepared.environment, prepared.profile.why_not_resumable
    experiment = dataclasses.replace(prepared.experiment, name=run.name)
    run.write_config(describe(experiment, options, environment), prepared.own)
    preload = (type(environment).__module__, *replay_modules(experiment))
    session = Session(
        experiment, run, ownership, options, on_status, began, preload, why_not, site, takeover, callbacks, prepared.own
    )
    if restored is not None:
        session.restore(restored)
    return session


def _finished(run: Run) -> Run:
    if run.state == "failed":
        raise RunFailed(f"{run.reason}\n(logs are in {run.path / 'logs'})", run.status)
    return run
