"""Sizes of a run: numbers of actors, environments (lanes) and steps per block. They are chosen for the environment, the
algorithm and the machine, and saved with the run, so that a resumed run keeps them on another machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from srl.api.dataflow import Replay, Sequences
from srl.api.experiment import Experiment
from srl.api.lanes import LanesConfig
from srl.api.status import EPISODE_WINDOW, RunStatus
from srl.base.config import to_data
from srl.experiments.graph.environment_probe import EnvironmentProfile
from srl.experiments.options.train_options import SECTION_OF, TrainOptions
from srl.networks.spaces.boxes import has_image
from srl.workers.trainer.worker import TrainerWorkerConfig

UPDATE_US = {"image": 600.0, "vector": 4.0}
"""Approximate microseconds to learn from one decision for one epoch; determines the number of actors."""
REPLAY_UPDATE_US = {"image": 20_000.0, "vector": 4_000.0}
"""Approximate microseconds of one gradient step on a batch from replay."""
MACHINE_OPTIONS = {"scheduler", "hosts"}
"""Options that change the available cores. If one changes, a resumed run chooses the number of actors again."""
BLOCK_OPTIONS = {"lanes", "ring", "horizon", "trainers", "replay", "replay_workers"}
"""Options that change the size of blocks. If one changes, a resumed run chooses the batch again."""
ACTORS = "actors"
MINIBATCHES = "algo.num_minibatches"
MANY_EPISODES = 10
"""Episodes of average length in one sequence from which on there is a message."""
CHOSEN = ("actors", "lanes", "ring", "horizon", "batch")
"""Options that a run chooses if they are None."""


@dataclass(frozen=True)
class Sizes:
    """Chosen values of the options that may be None."""

    actors: int
    lanes: int
    ring: int
    horizon: int
    batch: int | None


SLOW_STEP_SECONDS = 0.01
"""Time per step of an environment from which on there is a hint about the time of a batch."""


def choose_sizes(options: TrainOptions, profile: EnvironmentProfile, cores: int, inline: bool) -> Sizes:
    """Choose the sizes that the options do not set.

    Actors of cheap environments leave one core for the trainer, and with replay a single one suffices; those of
    expensive environments use all cores. A
    single-threaded run has one actor: more would gain nothing, and a number based on measurements would not be
    reproducible.
    """
    image = any(has_image(team.observation) for team in profile.spec.teams)
    algorithm, workers = options.algorithm, options.workers
    kind, flow = "image" if image else "vector", algorithm.dataflow()
    if isinstance(flow, Replay):  # actors make as many decisions as the gradient steps keep up with
        update_us, cheap = REPLAY_UPDATE_US[kind] * flow.updates_per_decision, 1
    else:
        update_us, cheap = UPDATE_US[kind] * algorithm.update_cost().epochs, max(1, cores - 1)
    expensive = profile.step_us > update_us
    chosen = 1 if workers.scheduler == "inline" else cores if expensive else cheap
    ring = workers.ring or (1 if inline else 2)
    lanes = workers.lanes or max(1, (algorithm.suggested_lanes() or (8 if image else 64)) // ring)
    horizon = workers.horizon or algorithm.suggested_horizon() or (128 if image else 32)
    return Sizes(workers.actors or chosen, lanes, ring, horizon, workers.batch)


def sizes_of(experiment: Experiment) -> dict[str, int]:
    """Return the sizes of a graph by option name, except those that differ between learning policies."""
    sizes: dict[str, int] = {}
    shared: dict[str, set[int]] = {"horizon": set(), "batch": set()}
    for group in experiment.groups:
        found = group.config.sizes()
        if group.name == ACTORS and "lanes" in found:
            sizes |= {"actors": group.count, "lanes": int(found["lanes"]), "ring": int(found["ring"])}
        for name in shared.keys() & found.keys():
            shared[name].add(int(found[name]))
    return sizes | {name: found.pop() for name, found in shared.items() if len(found) == 1}


def describe_sizes(experiment: Experiment) -> str:
    """Describe the sizes of a run in one line: `sizes: 2 actors x 64 lanes, horizon 32, batch 2048`."""
    sizes = sizes_of(experiment)
    ring = f" x {sizes['ring']} lane groups" if sizes.get("ring", 1) > 1 else ""
    parts = [f"{name} {sizes[name]}" for name in ("horizon", "batch") if name in sizes]
    if "actors" in sizes:
        plural = "s" if sizes["actors"] > 1 else ""
        parts.insert(0, f"{sizes['actors']} actor{plural}{ring} x {sizes['lanes']} lanes")
    return f"sizes: {', '.join(parts)}"


def describe_long_updates(experiment: Experiment) -> str:
    """Return a line about policies whose first update needs more decisions than the run has for them; empty if there
    are none. A run ends after a whole update."""
    for trainer in _trainers(experiment):
        batch = trainer.samples.batch
        if batch > trainer.target_steps and not trainer.data:
            share = "" if trainer.alone else f", of which policy {trainer.policy} has {trainer.target_steps:,}"
            return (
                f"\nhint: one update is {batch:,} decisions, more than --steps {experiment.target_steps}{share}, so "
                "the run will be longer; set a smaller --lanes or --horizon"
            )
    return ""


def describe_slow_steps(experiment: Experiment, step_us: float) -> str:
    """Return a line about an environment in which the first batch takes longer than a minute; empty if it does not."""
    sizes, seconds = sizes_of(experiment), step_us * 1e-6
    if not {"actors", "batch", "horizon"} <= sizes.keys():
        return ""  # of several policies with different batches
    at_once = min(sizes["actors"], max(1, sizes["batch"] // (sizes["lanes"] * sizes["horizon"])))  # blocks of a batch
    minutes = sizes["batch"] * seconds / at_once / 60
    if minutes < 1.0 or seconds < SLOW_STEP_SECONDS:
        return ""
    return (
        f"\nhint: a step of the environment takes about {seconds:.2g} s, so a batch of {sizes['batch']:,} decisions "
        f"takes about {minutes:,.0f} min; with smaller --lanes or --horizon, updates begin sooner"
    )


def describe_long_sequences(experiment: Experiment, limit: int | None) -> str:
    """Return a line about policies that learn from sequences of more steps than an episode can have, which is `limit`;
    empty if there are none."""
    for trainer in _trainers(experiment):
        rows, burn_in = _sequence_of(trainer)
        if limit is not None and rows > limit:
            chunk = max(1, limit - burn_in)
            fits = f"--algo.chunk {chunk} fits" if hasattr(trainer.algorithm, "chunk") else "use shorter ones"
            return (
                f"\nhint: sequences of {rows:,} steps are longer than episodes, which have at most {limit:,}: each "
                f"sequence holds several, and updates take longer without learning from a longer past; {fits}"
            )
    return ""


class ShortEpisodes:
    """Finds sequences that are much longer than episodes, where no limit says so at the start."""

    def __init__(self, experiment: Experiment) -> None:
        self._rows = {trainer.policy: rows for trainer in _trainers(experiment) if (rows := _sequence_of(trainer)[0])}

    def found(self, status: RunStatus) -> str:
        """Return a message about a policy with such sequences, once; empty if there is none."""
        for name, rows in self._rows.items():
            policy = status.policies.get(name)
            if policy is None or policy.episodes < EPISODE_WINDOW or policy.length_mean is None:
                continue
            if rows >= MANY_EPISODES * policy.length_mean:
                del self._rows[name]
                return (
                    f"sequences of {rows:,} steps hold many episodes, which have {policy.length_mean:,.0f} steps on "
                    "average; shorter ones (--algo.chunk) make updates cheaper, unless episodes become longer"
                )
        return ""


def _sequence_of(trainer: TrainerWorkerConfig) -> tuple[int, int]:
    """Return the length of the sequences that a trainer learns from, and of their burn-in; zeros if there are none."""
    flow = trainer.algorithm.dataflow()
    if not isinstance(flow, Replay) or not isinstance(flow.unit, Sequences):
        return 0, 0
    return flow.unit.rows, flow.unit.burn_in


def check_minibatches(experiment: Experiment, given: Collection[str]) -> None:
    """Raise ValueError if the user divides a batch into more minibatches than it has decisions."""
    for trainer in _trainers(experiment):
        own, parts = trainer.samples.batch // trainer.size, trainer.algorithm.update_cost().minibatches
        if MINIBATCHES in given and parts > own and parts != getattr(type(trainer.algorithm), "num_minibatches", 1):
            of_trainer = "" if trainer.size == 1 else f" for each of {trainer.size} trainers"
            raise ValueError(
                f"num_minibatches must be at most {own:,}, the decisions of a batch{of_trainer}; found {parts:,}"
            )


def _trainers(experiment: Experiment) -> list[TrainerWorkerConfig]:
    return [group.config for group in experiment.groups if isinstance(group.config, TrainerWorkerConfig)]


def with_sizes(
    options: TrainOptions, sizes: Mapping[str, int], before: TrainOptions, given: Collection[str] = ()
) -> TrainOptions:
    """Return the options of a resumed run, with its previous sizes for options that are None. A size is chosen again if
    it depends on an option that the user changed: one in `given` whose value differs from `before`."""
    changed = {name for name in given if name in SECTION_OF and options.value(name) != before.value(name)}
    again = {*given} | ({"actors"} if changed & MACHINE_OPTIONS else set())
    again |= {"batch"} if changed & BLOCK_OPTIONS else set()
    kept = [name for name in CHOSEN if name in sizes and name not in again and options.value(name) is None]
    return options.replace(**{name: sizes[name] for name in kept})


def with_actors(experiment: Experiment, count: int | None) -> Experiment:
    """Return the experiment with `count` actors; None keeps their number."""
    if count is None:
        return experiment
    groups = (replace(group, count=count) if group.name == ACTORS else group for group in experiment.groups)
    return replace(experiment, groups=tuple(groups))


def describe(experiment: Experiment, options: TrainOptions, environment: LanesConfig) -> dict[str, Any]:
    """Return the content of config.json, which is sufficient to resume the run and to use its policies.

    The options are as given, with None where the run chooses for itself; `sizes` are the chosen values.
    """
    return {
        "environment": experiment.environment,
        "lanes": to_data(environment),
        "options": to_data(options),
        "sizes": sizes_of(experiment),
        "policies": experiment.description,
    }
