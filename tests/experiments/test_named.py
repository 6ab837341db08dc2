"""Algorithms and graphs that users name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from srl.algorithms.ppo.config import PPOConfig
from srl.api.algorithm import AlgorithmConfig
from srl.api.experiment import Experiment, WorkerGroup
from srl.api.worker import WorkerConfig
from srl.environments.registry import lanes_config
from srl.experiments.graph.environment_probe import probe
from srl.experiments.graph.standard import standard_experiment
from srl.experiments.options.algorithms import title_of, with_absolute_paths
from srl.experiments.options.keywords import make_options
from srl.experiments.options.train_options import TrainOptions


@dataclass(frozen=True)
class TwistedConfig(PPOConfig):
    """A complete algorithm that is defined in this file."""

    twist: float = 1.0


@dataclass(frozen=True)
class LazyConfig(AlgorithmConfig):
    """An incomplete algorithm."""

    speed: int = 1

    def check(self, observation: object, action: object) -> None: ...


@dataclass(frozen=True)
class BystanderConfig(WorkerConfig):
    def build(self, context: object) -> None: ...  # type: ignore[override]


def with_bystander(experiment: Experiment) -> Experiment:
    return replace(experiment, groups=(*experiment.groups, WorkerGroup("bystanders", BystanderConfig(), 2)))


def with_two_actors(experiment: Experiment) -> Experiment:
    return replace(experiment, groups=(*experiment.groups, WorkerGroup("actors", BystanderConfig(), 1)))


def without_anything(experiment: Experiment) -> None: ...


def built(options: TrainOptions) -> Experiment:
    environment = lanes_config("CartPole-v1")
    return standard_experiment("CartPole-v1", environment, probe(environment, 0), options)


HERE = str(Path(__file__).resolve())


def test_options_of_a_built_in_algorithm_reach_its_config() -> None:
    options = make_options(ppo={"gamma": 0.5})
    assert options.algorithm == PPOConfig(gamma=0.5) == make_options(gamma=0.5).algorithm
    assert title_of(options.algo) == "ppo"


def test_a_config_may_be_given_instead_of_a_name() -> None:
    for options in (make_options(algorithm=PPOConfig(gamma=0.5)), make_options(algo=PPOConfig(gamma=0.5))):
        assert (options.algo, options.algorithm) == ("ppo", PPOConfig(gamma=0.5))


def test_an_algorithm_of_a_file_is_found_by_name_and_gets_its_options() -> None:
    options = make_options(algo=f"{HERE}:TwistedConfig", algorithm={"twist": 3.0})
    algorithm = options.algorithm
    assert type(algorithm).__name__ == "TwistedConfig"
    assert algorithm.twist == 3.0  # type: ignore[attr-defined]
    assert title_of(options.algo) == "twisted"
    assert title_of("/home/me/mine.py:Config") == "mine"
    assert built(options).algorithm == "twisted"


def test_an_unknown_algorithm_or_option_is_refused_with_the_choices() -> None:
    with pytest.raises(ValueError, match=r"unknown algorithm 'ppoo'.*SRL has\n  ppo"):
        make_options(algo="ppoo")
    with pytest.raises(ValueError, match="has no option 'twisst'; did you mean 'twist'"):
        make_options(algo=f"{HERE}:TwistedConfig", algorithm={"twisst": 3.0})
    with pytest.raises(ValueError, match="the algorithm is ppo"):
        make_options(a2c={"gamma": 0.9})


def test_an_incomplete_algorithm_is_refused_with_what_it_lacks() -> None:
    with pytest.raises(ValueError, match="it lacks build_policy, build_trainer, decision_spec"):
        make_options(algo=f"{HERE}:LazyConfig")
    with pytest.raises(ValueError, match=r"must inherit from srl\.api\.algorithm\.AlgorithmConfig"):
        make_options(algo=f"{HERE}:BystanderConfig")
    with pytest.raises(ValueError, match="must be a frozen dataclass"):
        make_options(algo=f"{HERE}:with_bystander")


def test_a_graph_adds_workers_to_the_standard_one() -> None:
    plain = built(TrainOptions())
    extended = built(make_options(graph=f"{HERE}:with_bystander"))
    assert [group.name for group in extended.groups] == [*(group.name for group in plain.groups), "bystanders"]


def test_a_graph_that_cannot_work_is_refused() -> None:
    with pytest.raises(ValueError, match="two groups of workers are named 'actors'"):
        built(make_options(graph=f"{HERE}:with_two_actors"))
    with pytest.raises(ValueError, match=r"must return an srl\.Experiment, found NoneType"):
        built(make_options(graph=f"{HERE}:without_anything"))


def test_objects_from_python_become_names() -> None:
    options = make_options(graph=with_bystander, algorithm=TwistedConfig(twist=2.0), steps=5)
    assert options.run.graph.endswith(":with_bystander")
    assert options.algo.endswith(":TwistedConfig")
    assert options.algorithm == TwistedConfig(twist=2.0)
    assert options.run.steps == 5


def test_files_get_absolute_paths_so_that_a_run_resumes_anywhere() -> None:
    options = with_absolute_paths(TrainOptions(algo="file.py:Config").replace(graph="package.module:function"))
    assert options.algo == f"{Path('file.py').absolute()}:Config"
    assert options.run.graph == "package.module:function"
    names = ("anneal.py:Anneal,limit=450,text=a,b", "webhook,url=https://example.org/a.py:b", "package.module:Class")
    options = with_absolute_paths(TrainOptions().replace(callbacks=names))
    assert options.run.callbacks == (f"{Path('anneal.py').absolute()}:Anneal,limit=450,text=a,b", *names[1:])
