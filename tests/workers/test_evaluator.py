"""The evaluator: its schedule, its reports, and its share of a core."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest
from support.counting import DECISION_SPEC, CountingConfig
from support.waiting import until

from srl.api.block import BlockSpec
from srl.api.control import Evaluated
from srl.api.lanes import LanesConfig
from srl.api.spaces import array_spec
from srl.environments.registry import lanes_config
from srl.streams.push import PushStream
from srl.testing.contexts import World
from srl.workers.evaluator import Evaluator, EvaluatorConfig
from srl.workers.role import Role

CARTPOLE = lanes_config("CartPole-v1")


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def evaluator(
    world: World,
    every: int = 1,
    episodes: int = 3,
    share: float = 1.0,
    max_steps: int | None = None,
    environment: LanesConfig = CARTPOLE,
    reproducible: bool = False,
) -> Evaluator:
    lanes = environment.build(1)
    team = lanes.spec.teams[0]
    lanes.close()
    samples = PushStream("policy", BlockSpec(4, 1, array_spec(team.observation), DECISION_SPEC), 1)
    role = Role("policy", CountingConfig(), team.observation, team.action, samples)
    config = EvaluatorConfig(environment, (role,), every, episodes, share, max_steps=max_steps)
    return config.build(world.context("evaluators", threads=not reproducible))


def publish(world: World, version: int) -> None:
    world.stores["policy"].push(version, np.array([version], np.float32))


def test_evaluations_start_at_the_newest_version_and_keep_their_distance(world: World) -> None:
    worker = evaluator(world, every=3)
    assert not worker.poll().worked  # nothing was published
    publish(world, 5)
    until(lambda: world.reported(Evaluated), worker.poll)
    publish(world, 7)
    for _ in range(50):
        assert not worker.poll().worked
    publish(world, 9)
    until(lambda: len(world.reported(Evaluated)) == 2, worker.poll)
    reports = world.reported(Evaluated)
    assert [(report.policy, report.version) for report in reports] == [("policy", 5), ("policy", 9)]
    assert [len(report.returns) for report in reports] == [3, 3]
    assert all(8 <= value <= 12 for report in reports for value in report.returns)  # always to the left
    assert reports[0].returns == reports[0].lengths
    worker.close()


def test_an_evaluated_version_is_kept_until_the_next_evaluation_is_done(world: World) -> None:
    worker = evaluator(world)
    publish(world, 1)
    until(lambda: world.reported(Evaluated), worker.poll)
    for version in range(2, 20):  # the trainer goes on
        publish(world, version)
    version, parameters = world.stores["policy"].pull("evaluated")  # type: ignore[misc]
    assert (version, parameters.tolist()) == (1, [1.0])
    worker.close()


def test_a_replacement_continues_from_the_noted_scores(world: World) -> None:
    worker = evaluator(world, every=3)
    publish(world, 5)
    until(lambda: world.reported(Evaluated), worker.poll)
    worker.close()
    (report,) = world.reported(Evaluated)
    mean = sum(report.returns) / 3
    assert world.stores["policy"].notes() == {5: {"eval_return": pytest.approx(mean), "eval_episodes": 3.0}}
    replacement = evaluator(world, every=3)
    publish(world, 7)
    for _ in range(50):
        assert not replacement.poll().worked
    publish(world, 8)
    assert replacement.poll().worked
    replacement.close()


def test_a_reproducible_run_evaluates_multiples_of_the_distance_each_in_one_poll(world: World) -> None:
    worker = evaluator(world, every=3, share=0.001, reproducible=True)
    for version in range(4, 10):  # the run was resumed at version 4
        publish(world, version)
        worker.poll()
    assert [report.version for report in world.reported(Evaluated)] == [6, 9]
    worker.close()


def test_an_evaluation_ends_even_if_episodes_do_not(world: World) -> None:
    endless = lanes_config("srl.testing.environments:Tracer", length=10**6)
    worker = evaluator(world, max_steps=4, environment=endless)
    publish(world, 1)
    until(lambda: world.reported(Evaluated), worker.poll)
    (report,) = world.reported(Evaluated)
    assert (report.lengths, report.returns, report.truncated) == ([4.0] * 3, [10.0] * 3, 3)
    worker.close()


def test_the_evaluator_keeps_its_share_of_a_core(world: World) -> None:
    worker = evaluator(world, episodes=1000, share=0.05)
    publish(world, 1)
    used, began, turns = time.process_time(), time.monotonic(), 0
    assert worker.poll().worked
    spent = time.process_time() - used
    while not worker.poll().worked:
        turns += 1
    assert turns > 0
    assert time.monotonic() - began >= 0.9 * spent / 0.05
    worker.close()


def test_an_invalid_share_is_refused() -> None:
    with pytest.raises(ValueError, match="share of a core"):
        EvaluatorConfig(lanes_config("CartPole-v1"), (), 1, share=0.0)
