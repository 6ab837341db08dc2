"""Customized graphs: other streams, and additional workers at a broadcast."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import srl
from srl.api.control import MetricsReport
from srl.api.experiment import Experiment, WorkerGroup
from srl.api.spaces import Box, Dict, Discrete
from srl.api.worker import IDLE, WORKED, Context, PollResult, WorkerConfig
from srl.environments.registry import lanes_config
from srl.experiments.graph.environment_probe import probe
from srl.experiments.graph.standard import standard_experiment
from srl.experiments.options.keywords import make_options
from srl.streams.push import PushStream
from srl.streams.push_consumer import Consumer


@dataclass(frozen=True)
class CounterConfig(WorkerConfig):
    samples: PushStream

    def build(self, context: Context) -> Counter:
        return Counter(self.samples.consumer(context), context)


class Counter:
    """Counts the samples it receives."""

    def __init__(self, samples: Consumer, context: Context) -> None:
        self._samples = samples
        self._context = context
        self._seen = 0

    def poll(self) -> PollResult:
        self._samples.poll()
        blocks = self._samples.take(0)
        if blocks is None:
            return IDLE
        self._seen += sum(int(posted.block.arrays["acting"][:-1].sum()) for posted in blocks)
        self._samples.release(blocks)
        self._context.report(MetricsReport("policy", {"seen": float(self._seen)}))
        return WORKED

    def close(self) -> None:
        self._samples.close()


def samples_of(experiment: Experiment) -> PushStream:
    (actors,) = [group.config for group in experiment.groups if group.name == "actors"]
    samples: PushStream = actors.roles[0].samples  # type: ignore[attr-defined]
    return samples


def with_counter(experiment: Experiment) -> Experiment:
    balanced = samples_of(experiment)
    samples = replace(balanced, route="broadcast", capacity=4)
    counter = WorkerGroup("counters", CounterConfig(samples.tap(batch_blocks=2)), 1)
    changed = srl.rewired(experiment, balanced, samples)
    return replace(changed, groups=(*changed.groups, counter))


def with_the_newest_only(experiment: Experiment) -> Experiment:
    balanced = samples_of(experiment)
    return srl.rewired(experiment, balanced, replace(balanced, full="drop_oldest", capacity=8))


def standard() -> Experiment:
    environment = lanes_config("CartPole-v1")
    options = make_options(eval_every=1000)
    return standard_experiment("CartPole-v1", environment, probe(environment, 0), options)


def test_all_ends_of_a_stream_change_together() -> None:
    before = standard()
    old = samples_of(before)
    new = replace(old, capacity=7)
    after = srl.rewired(before, old, new)
    ends = {group.name: str(group.config).count("capacity=7") for group in after.groups}
    assert ends == {"trainers": 1, "actors": 1, "evaluators": 1}
    assert srl.rewired(after, new, old) == before


def test_a_stream_that_no_worker_has_is_refused() -> None:
    experiment = standard()
    unknown = replace(samples_of(experiment), capacity=7)
    with pytest.raises(ValueError, match="no worker of trainers, actors, evaluators has this stream 'policy'"):
        srl.rewired(experiment, unknown, samples_of(experiment))


@pytest.mark.parametrize("graph", [with_counter, with_the_newest_only])
def test_a_run_with_another_stream_reaches_its_steps(tmp_path: Path, graph: object) -> None:
    sizes: dict[str, Any] = {"lanes": 4, "horizon": 8, "ring": 1, "actors": 1, "batch": 64}
    run = srl.train(
        "CartPole-v1", graph=graph, scheduler="inline", steps=640, root=tmp_path, recipe="none", sinks=(), **sizes
    )
    assert run.status.steps >= 640
    (path,) = tmp_path.rglob("status.json")
    metrics = json.loads(path.read_text())["metrics"]
    if graph is with_counter:  # all samples of updates, and at most those that waited for the next
        assert 640 - 4 * 32 <= metrics["seen"] <= 640 + 4 * 64


@dataclass(frozen=True)
class FaultyConfig(WorkerConfig):
    raises: bool

    def build(self, context: Context) -> Any:
        if self.raises:
            raise ValueError("no such service")
        return Faulty()


class Faulty:
    def poll(self) -> None: ...

    def close(self) -> None: ...


def with_unbuildable(experiment: Experiment) -> Experiment:
    return replace(experiment, groups=(*experiment.groups, WorkerGroup("faulty", FaultyConfig(True), count=1)))


def with_wrong_poll(experiment: Experiment) -> Experiment:
    return replace(experiment, groups=(*experiment.groups, WorkerGroup("faulty", FaultyConfig(False), count=1)))


def test_an_error_in_a_users_worker_is_shown_with_its_lines_and_not_retried(tmp_path: Path) -> None:
    options: dict[str, Any] = {"root": tmp_path, "scheduler": "inline", "lanes": 4, "horizon": 16, "sinks": ()}
    with pytest.raises(srl.RunFailed, match=r"(?s)test_customization.py.*in build.*no such service"):
        srl.train("CartPole-v1", steps=64, graph=with_unbuildable, name="one", **options)
    with pytest.raises(srl.RunFailed, match=r"Faulty.poll must return WORKED, IDLE or FINISHED, found None"):
        srl.train("CartPole-v1", steps=64, graph=with_wrong_poll, name="two", **options)


@dataclass(frozen=True)
class SpacesForSpecs(srl.PPOConfig):
    def decision_spec(self, observation: Any, action: Any) -> Any:
        return {"action": action, "value": None}


def test_a_wrong_decision_spec_is_refused_with_an_example_of_a_right_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"SpacesForSpecs must return .* \{\"action\": array_spec\(action\)\}.*found"):
        srl.train("CartPole-v1", steps=100, algo=SpacesForSpecs(), scheduler="inline", root=tmp_path, sinks=())


def test_a_network_reads_the_parts_of_a_dict_space_by_name() -> None:
    space = Dict({"position": Box((2,)), "kind": Discrete(3)})
    assert space["position"] == Box((2,))
    assert space["kind"] == Discrete(3)
