"""Recording lanes that do not step together: agents that take turns or die early."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.counting import DECISION_SPEC
from support.rigs import ActorRig, Rows
from support.stages import Stage
from support.waiting import until

from srl.api.block import BlockSpec
from srl.api.lanes import TimeStep
from srl.base.meter import Counter, Meter
from srl.base.tree import ArraySpec
from srl.workers.actor.unaligned_recorder import UnalignedRecorder

pytest.importorskip("pettingzoo")
TURN_GAME = "support.games:TurnGame"
DYING_TEAM = "support.games:DyingTeam"


# agent -> what its rows of one episode look like: (t, reward of the action there, ends, acting)
TURNS = {
    0: [(0, 11, False, True), (2, 11, False, True), (4, 1, True, True), (5, 0, False, False)],
    # What agent 1 earned before its first turn comes with what its first action earned: 10 + 1 + 10.
    1: [(1, 21, False, True), (3, 11, True, True), (5, 0, False, False)],
}
DEATHS = {
    0: [(0, 1, False, True), (1, 2, True, True), (2, 0, False, False)],
    1: [
        (0, 101, False, True),
        (1, 102, False, True),
        (2, 103, False, True),
        (3, 104, True, True),
        (4, 0, False, False),
    ],
}


def check_block(block: Rows, episodes: dict[int, list[tuple[int, int, bool, bool]]], truncate: bool = False) -> None:
    rows = {path: array[:, 0] for path, array in block.items()}
    seed, _, t, agent = rows["observation"].T
    assert len(set(agent)) == 1
    wanted = episodes[int(agent[0])]
    at = [time for time, *_ in wanted].index(int(t[0]))
    for row in range(len(t)):
        time, reward, ends, acting = wanted[at]
        assert (t[row], rows["acting"][row]) == (time, acting)
        assert rows["first"][row] == (at == 0)
        if row + 1 < len(t):  # the last row only bootstraps
            assert rows["reward"][row] == reward
            assert (rows["terminated"][row], rows["truncated"][row]) == (ends and not truncate, ends and truncate)
            assert (seed[row + 1] == seed[row]) == (at + 1 < len(wanted))  # every episode has a seed of its own
        at = (at + 1) % len(wanted)


@pytest.mark.parametrize("truncate", [False, True])
@pytest.mark.parametrize(("env", "episodes"), [(TURN_GAME, TURNS), (DYING_TEAM, DEATHS)], ids=["turns", "deaths"])
@pytest.mark.parametrize("horizon", [1, 3, 5])
def test_rewards_and_ends_are_in_the_rows_of_their_actions(
    rig: Callable[..., ActorRig], env: str, episodes: Any, horizon: int, truncate: bool
) -> None:
    one = rig(env, copies=2, horizon=horizon, truncate=truncate, aligned=False)
    one.publish(0)
    blocks = one.blocks(40)
    for block in blocks:
        check_block(block, episodes, truncate)
        np.testing.assert_array_equal(block["decision/value"], block["observation"].sum(axis=-1))
        assert (block["version"] == 0).all()
    assert {int(block["observation"][0, 0, 3]) for block in blocks} == {0, 1}


def test_a_block_continues_the_one_before_if_it_was_admitted_in_time(rig: Callable[..., ActorRig]) -> None:
    one = rig(TURN_GAME, copies=1, horizon=2)
    one.publish(0)
    own = [block for block in one.blocks(30) if block["observation"][0, 0, 3] == 0]
    joined = 0
    for before, after in itertools.pairwise(own):
        if (before["observation"][-1] == after["observation"][0]).all():
            joined += 1
            for path in ("decision/action", "decision/value", "version", "acting", "first"):
                np.testing.assert_array_equal(before[path][-1], after[path][0])
    assert joined


def test_episodes_count_every_reward(rig: Callable[..., ActorRig]) -> None:
    one = rig(TURN_GAME, copies=2, horizon=4)
    one.publish(0)
    one.blocks(20)
    count, returns, lengths = one.episodes()
    assert count == len(returns) >= 16
    assert set(zip(returns, lengths, strict=True)) == {(23.0, 3.0), (32.0, 2.0)}


def test_lanes_continue_unrecorded_without_admission(rig: Callable[..., ActorRig]) -> None:
    one = rig(DYING_TEAM, copies=1, horizon=2, max_lag=0, aligned=False)
    one.publish(0)
    one.play(200)
    meter = one.actor._meter
    assert one.consumer().status().posted == 1
    assert meter.get(Counter.UNRECORDED) > 50
    assert meter.get(Counter.DECISIONS) <= 3
    count, _, _ = one.episodes()
    assert count <= 1  # unrecorded episodes belong to no sample
    for version in range(1, 5):  # recording goes on with each new version, from a decision of that version
        (block,) = one.blocks(1)
        check_block(block, DEATHS)
        assert (block["version"] == version - 1).all()
        one.publish(version)
        one.consumer().advance(version)


def time_step(number: int) -> TimeStep:
    """One lane, which must act."""
    no = np.zeros(1, bool)
    return TimeStep(np.full((1, 3), number, np.float32), np.ones(1, np.float32), no, no, ~no, no)


@pytest.mark.parametrize("version", [0, 1])
def test_a_block_starts_with_the_last_decision_only_if_that_is_new_enough(inproc: Stage, version: int) -> None:
    stream = inproc.stream(BlockSpec(1, 1, ArraySpec((3,), "float32"), DECISION_SPEC), max_lag=0)
    producer, consumer = inproc.producer(stream, num_scratch=1), inproc.consumer(stream)
    recorder = UnalignedRecorder(producer, [1], Meter.unshared())
    until(lambda: producer._links and next(iter(producer._links.values())).grants, producer.poll, consumer.poll)
    for number in range(2):
        recorder.arrive([time_step(number)])
        (cell,) = recorder.cells()
        cell.block.arrays["version"][cell.row] = version
        if number == 1:
            consumer.advance(1)  # the next admission demands version 1
            until(lambda: next(iter(producer._links.values())).grants, producer.poll, consumer.poll)
        recorder.take_decisions()
        recorder.post_full()
    opened = recorder._lanes[0].opened
    if version == 0:
        assert opened is None  # plays on, unrecorded
    else:
        assert opened is not None
        assert opened.min_version == 1
        assert opened.block.arrays["observation"][0, 0].tolist() == [1, 1, 1]
        assert opened.block.arrays["version"][0, 0] == 1


def test_a_failed_game_leaves_nothing_in_the_blocks(rig: Callable[..., ActorRig]) -> None:
    one = rig(DYING_TEAM, copies=1, horizon=1, aligned=False, fault="raise", fault_after=3, max_env_failures=10**6)
    one.publish(0)
    blocks = one.blocks(20)
    for block in blocks:
        seed, _, t, agent = block["observation"][:, 0].T
        if block["acting"][0, 0]:  # the step to t = 3 broke every time, so it is nowhere
            assert (t[0], t[1]) in {(0, 1), (1, 2)}
            assert block["reward"][0, 0] == t[1] + 100 * agent[0]
            assert seed[0] == seed[1]
        else:
            assert (int(agent[0]), t[0], t[1]) == (0, 2, 0)
            assert seed[0] != seed[1]
    count, returns, _ = one.episodes()
    assert count
    assert set(returns) == {3.0}  # agent 1 never came to its end
    assert one.actor._meter.get(Counter.LANE_FAILURES) > 5


def test_a_dead_trainer_costs_blocks_but_no_episode(rig: Callable[..., ActorRig]) -> None:
    one = rig(TURN_GAME, copies=2, horizon=6)
    one.publish(0)
    one.blocks(4)
    one.replace_consumer()
    one.updates["policy"] = 0
    for block in one.blocks(12):
        check_block(block, TURNS)
    _, returns, lengths = one.episodes()
    assert set(zip(returns, lengths, strict=True)) == {(23.0, 3.0), (32.0, 2.0)}


def test_roles_record_their_own_agents(rig: Callable[..., ActorRig]) -> None:
    one = rig(TURN_GAME, copies=1, horizon=3, roles={"agent_0": "first", "agent_1": "second"})
    one.publish(0, "first")
    one.publish(0, "second")
    for agent, policy in enumerate(("first", "second")):
        for block in one.blocks(6, policy):
            check_block(block, TURNS)
            assert (block["observation"][..., 3] == agent).all()
    for role in range(2):
        _, returns, _ = one.episodes(role)
        assert set(returns) == {(23.0, 32.0)[role]}


@pytest.mark.parametrize("game", [TURN_GAME, DYING_TEAM])
def test_every_lane_has_its_own_memory(rig: Callable[..., ActorRig], game: str) -> None:
    """The count of decisions continues through an episode, recorded or not, and across blocks."""
    actor = rig(game, copies=2, horizon=3, memory=True, aligned=False)
    actor.publish(0)
    for block in actor.blocks(12):
        rows = {path: array[:, 0] for path, array in block.items()}
        for t in range(3):
            remembered = 0 if rows["first"][t] else rows["state"][t, 0]
            assert rows["decision/state"][t, 0] == remembered + 1
            np.testing.assert_array_equal(rows["state"][t + 1], rows["decision/state"][t])
