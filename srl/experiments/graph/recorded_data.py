"""Runs that learn from recorded data: what they need, checked before anything starts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from srl.api.block import BlockSpec
from srl.api.dataflow import Replay
from srl.api.lanes import LaneSpec, TeamSpec
from srl.api.spaces import array_spec
from srl.experiments.options.algorithms import BUILT_IN, title_of
from srl.experiments.options.roles import RoleOptions
from srl.experiments.options.sections import CLUSTERS
from srl.experiments.options.train_options import TrainOptions
from srl.networks.spaces.boxes import has_image
from srl.streams.push import PushStream
from srl.terminal.machine import limits

GRADIENT_STEPS = {"image": 10, "vector": 100}
"""Gradient steps per update, after which parameters are published and a row is recorded."""
NUM_EVALUATIONS = 20
EVAL_SHARE = 0.5
"""Fraction of a core for evaluation: no actors need it."""
GIB = 2**30


def check_source(roles: tuple[RoleOptions, ...], spec: LaneSpec, options: TrainOptions) -> None:
    """Raise ValueError if the algorithm cannot learn from the data sets of the options, or needs one."""
    for role in roles:
        flow, title = role.algorithm.dataflow(), title_of(options.algo)
        if not options.run.data:
            if role.frozen is None and isinstance(flow, Replay) and flow.only_recorded:
                raise ValueError(
                    f"{title} learns from recorded data; add --data DATASET: record one with `srl collect RUN --out "
                    "DATASET`, or get one with `minari download`"
                )
            continue
        if len(roles) > 1 or len(spec.teams) > 1 or len(spec.teams[0].agents) > 1:
            raise ValueError(f"--data is for environments with one agent; {spec.environment} has several")
        team = spec.teams[0]
        decision = role.algorithm.decision_spec(team.observation, team.action)
        if not isinstance(flow, Replay) or decision.keys() != {"action"}:
            fitting = ", ".join(name for name, kind in BUILT_IN.items() if _learns_from_data(kind, team))
            raise ValueError(
                f"{title} cannot learn from recorded data, because it needs what its own policy computed with each "
                f"action; with --data, use one of {fitting}"
            )
        workers = options.workers
        if workers.replay != "inline" or workers.replay_dir or options.checkpoints.save_replay:
            raise ValueError(
                "--replay, --replay-dir and --save-replay have no effect with --data, which is on disk; leave them out"
            )
        trainers = options.workers.trainers
        if flow.batch % trainers:
            raise ValueError(f"batch_size must be a multiple of the {trainers} trainers; found {flow.batch}")
        _check_data(role, team, options)


def _learns_from_data(kind: type, team: TeamSpec) -> bool:
    config = kind()
    try:
        config.check(team.observation, team.action)
    except ValueError:
        return False
    is_replay = isinstance(config.dataflow(), Replay)
    return is_replay and config.decision_spec(team.observation, team.action).keys() == {"action"}


def _check_data(role: RoleOptions, team: TeamSpec, options: TrainOptions) -> None:
    from srl.datasets.recorded import HORIZON, RecordedData, block_spec
    from srl.replay.memory import bytes_needed

    flow = role.algorithm.dataflow()
    assert isinstance(flow, Replay)
    data = RecordedData(options.run.data)
    data.check(team.observation, team.action)
    layout = block_spec(array_spec(team.observation), role.algorithm.decision_spec(team.observation, team.action))
    needed = bytes_needed(replace(flow, capacity=data.num_blocks * HORIZON), layout) * options.workers.trainers
    if options.workers.scheduler not in CLUSTERS and needed > (available := limits().memory):
        raise ValueError(
            f"the data, {data.num_steps:,} steps, needs {needed / GIB:,.1f} GiB in {options.workers.trainers} trainers;"
            f" this machine has {available / GIB:,.1f} GiB"
        )


def update_stream(role: RoleOptions, team: TeamSpec, batch: int | None, trainers: int) -> PushStream:
    """Return the description of what a trainer takes for an update: `batch` gradient steps, one per block."""
    kind = "image" if has_image(team.observation) else "vector"
    steps = batch or max(1, GRADIENT_STEPS[kind] // trainers) * trainers
    if steps % trainers:
        raise ValueError(f"batch must be a multiple of the {trainers} trainers; found {steps}")
    spec = BlockSpec(1, 1, array_spec(team.observation), role.algorithm.decision_spec(team.observation, team.action))
    return PushStream(role.policy, spec, steps // trainers, consumers=trainers)


def with_data(options: TrainOptions, given: Collection[str] | None) -> TrainOptions:
    """Return the options with the places of data sets, and the evaluation of runs that learn from them unless its
    options are `given` or complete (None)."""
    if not options.run.data:
        return options
    from srl.datasets.reader import locate

    changes: dict[str, object] = {"data": tuple(str(locate(name)) for name in options.run.data)}
    if given is None:
        return options.replace(**changes)
    if "eval_every" not in given:
        changes["eval_every"] = max(1, options.run.steps // NUM_EVALUATIONS)
    if "eval_share" not in given:
        changes["eval_share"] = EVAL_SHARE
    return options.replace(**changes)
