"""The edges of a graph: which group sends to which, over which stream."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from support import PURSUIT, varied

import srl
from srl.algorithms.offpolicy.config import RandomShift
from srl.api.experiment import Edge, Experiment
from srl.cli.main import main
from srl.experiments.graph.preparation import prepare
from srl.experiments.options.keywords import make_options
from srl.terminal.tables import graph_table
from srl.workers.trainer.worker import TrainerWorkerConfig

GAME = PURSUIT
SAMPLES = Edge("actors", "trainers", "policy", "push", "host")
PARAMETERS = Edge("trainers", "actors", "policy", "parameters", "host")


def experiment(env: str = "CartPole-v1", **options: Any) -> Experiment:
    found: Experiment = prepare(env, make_options(**options), frozenset(options)).experiment
    return found


@pytest.mark.parametrize(
    ("options", "edges"),
    [
        ({"inference": "inline"}, {SAMPLES, PARAMETERS, Edge("actors", "actors", "policy", "request", "inline")}),
        (
            {"inference": "host"},
            {
                SAMPLES,
                Edge("actors", "policies", "policy", "request", "host"),
                Edge("trainers", "policies", "policy", "parameters", "host"),
            },
        ),
        (
            {"inference": "remote"},
            {
                Edge("actors", "trainers", "policy", "push", "tcp"),
                Edge("actors", "policies", "policy", "request", "tcp"),
                Edge("trainers", "policies", "policy", "parameters", "host"),
            },
        ),
        (
            {"inference": "inline", "eval_every": 1000},
            {
                SAMPLES,
                PARAMETERS,
                Edge("actors", "actors", "policy", "request", "inline"),
                Edge("trainers", "evaluators", "policy", "parameters", "host"),
            },
        ),
    ],
)
def test_edges_of_the_standard_graph(options: dict[str, Any], edges: set[Edge]) -> None:
    found = experiment(**options).edges()
    assert set(found) == edges
    assert len(found) == len(edges)


@pytest.mark.parametrize(("replay", "where"), [("host", "host"), ("remote", "tcp")])
def test_replay_workers_are_between_actors_and_trainers(replay: str, where: str) -> None:
    graph = experiment("Pendulum-v1", algo="sac", replay=replay, replay_workers=2, inference="inline", trainers=2)
    assert set(graph.edges()) == {
        Edge("actors", "replay", "policy", "push", where),
        Edge("trainers", "replay", "policy", "sample", where),
        Edge("trainers", "actors", "policy", "parameters", "host"),
        Edge("actors", "actors", "policy", "request", "inline"),
    }
    lines = [line.split() for line in graph_table(graph).plain.splitlines()]
    assert ["trainers", "×2", "batches", "of", "policy", "──▶", "replay", "×2"] in [line[:8] for line in lines]


def test_buffer_workers_are_between_replay_workers_and_trainers() -> None:
    image = {"observation": "camera"}
    options: dict[str, Any] = {"algo": "dqn", "dqn": {"random_shift": 4}, "replay": "host", "env_args": image}
    options |= {"replay_workers": 2, "inference": "inline"}
    graph = experiment(f"{varied.__file__}:Varied", buffer_workers=True, **options)
    assert {edge for edge in graph.edges() if edge.kind == "sample"} == {
        Edge("trainers", "buffers", "policy+buffers", "sample", "host"),
        Edge("buffers", "replay", "policy", "sample", "host"),
    }
    (buffers,) = [group for group in graph.groups if group.name == "buffers"]
    assert (buffers.count, bool(buffers.fixed_because), buffers.restart.together) == (2, True, False)
    (trainers,) = [group.config for group in graph.groups if isinstance(group.config, TrainerWorkerConfig)]
    assert trainers.replay is not None
    assert trainers.replay.is_transformed  # and not once more in the trainer
    own = srl.with_buffer_workers(experiment(f"{varied.__file__}:Varied", **options), "own", RandomShift(2))
    (trainers,) = [group.config for group in own.groups if isinstance(group.config, TrainerWorkerConfig)]
    assert trainers.replay is not None
    assert (trainers.replay.name, trainers.replay.is_transformed) == ("policy+own", False)


def test_every_policy_has_its_own_edges() -> None:
    found = experiment(GAME, roles=("chaser_*=chasers", "runner_*=runners"), inference="host").edges()
    for policy in ("chasers", "runners"):
        assert {edge for edge in found if edge.stream == policy} == {
            Edge("actors", f"trainers-{policy}", policy, "push", "host"),
            Edge("actors", f"policies-{policy}", policy, "request", "host"),
            Edge(f"trainers-{policy}", f"policies-{policy}", policy, "parameters", "host"),
        }
    assert {edge.stream for edge in found} == {"chasers", "runners"}


def test_another_consumer_of_the_samples_is_an_edge() -> None:
    graph = experiment(inference="inline")
    trainers = next(group for group in graph.groups if isinstance(group.config, TrainerWorkerConfig))
    extended = dataclasses.replace(graph, groups=(*graph.groups, dataclasses.replace(trainers, name="others")))
    assert Edge("actors", "others", "policy", "push", "host") in extended.edges()


def test_print_config_shows_the_graph(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "CartPole-v1", "--inference", "host", "--print-config"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("# actors ×") and "decisions of policy" in line for line in lines)


def test_the_graph_can_be_printed() -> None:
    lines = graph_table(experiment(inference="inline", actors=3)).plain.splitlines()
    assert "actors ×3    samples of policy     ──▶  trainers ×1" in lines
    assert "trainers ×1  parameters of policy  ──▶  actors ×3" in lines
