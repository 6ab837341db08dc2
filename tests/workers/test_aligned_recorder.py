"""Recording lanes that step together: every stored transition is consecutive or marked."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.counting import CountingPolicy
from support.rigs import ActorRig, Rows, one_lane

from srl.api.block import concatenated
from srl.api.control import EpisodeReport
from srl.base.meter import Counter
from srl.streams.request_client import InlineClient
from srl.workers.actor import lane_group
from srl.workers.actor.aligned_recorder import AlignedRecorder

TRACER = "srl.testing.environments:Tracer"
FAULTY = "support.faulty_environments:Faulty"
CARRIED = ("observation", "decision/action", "decision/value", "acting", "first")


def check_tracer(rows: dict[str, Any], length: int, truncate: bool) -> None:
    """Check row by row that (seed, episode, t) continues, or that the episode has ended and the next one starts."""
    seed, episode, t = rows["observation"].T
    for i in range(len(t) - 1):
        assert seed[i + 1] == seed[i]
        if rows["acting"][i]:
            ended = t[i] + 1 == length
            assert (episode[i + 1], t[i + 1]) == (episode[i], t[i] + 1)
            assert rows["reward"][i] == t[i] + 1
            assert (rows["terminated"][i], rows["truncated"][i]) == (ended and not truncate, ended and truncate)
            assert rows["acting"][i + 1] == (not ended)
            assert not rows["first"][i + 1]
        else:
            assert t[i] == length  # the episode's last observation has a row of its own
            assert (episode[i + 1], t[i + 1]) == (episode[i] + 1, 0)
            assert rows["reward"][i] == 0
            assert not rows["terminated"][i] | rows["truncated"][i]
            assert rows["first"][i + 1]
            assert rows["acting"][i + 1]


def check_joints(blocks: list[Rows]) -> None:
    """Check that the last row of a block is the first row of the next."""
    for before, after in itertools.pairwise(blocks):
        for path in CARRIED:
            np.testing.assert_array_equal(before[path][-1], after[path][0])


@pytest.mark.parametrize("truncate", [False, True])
@pytest.mark.parametrize(("length", "horizon"), [(3, 4), (1, 3), (7, 4), (4, 4), (2, 1)])
def test_every_transition_is_consecutive_or_an_end(
    rig: Callable[..., ActorRig], length: int, horizon: int, truncate: bool
) -> None:
    one = rig(TRACER, horizon=horizon, length=length, truncate=truncate)
    one.publish(0)
    blocks = one.blocks(6)
    check_joints(blocks)
    for lane in range(2):
        check_tracer(one_lane(blocks, lane), length, truncate)
    assert len({float(blocks[0]["observation"][0, lane, 0]) for lane in range(2)}) == 2  # seeds of their own
    assert blocks[0]["first"][0].all()


def test_every_decision_is_in_the_row_of_its_observation(rig: Callable[..., ActorRig]) -> None:
    one = rig(TRACER, copies=3, ring=2)
    one.publish(0)
    for block in one.blocks(6):
        np.testing.assert_allclose(block["decision/value"], block["observation"].sum(axis=-1))
        assert (block["version"] == 0).all()


def test_the_groups_of_a_ring_have_different_blocks_and_seeds(rig: Callable[..., ActorRig]) -> None:
    one = rig(TRACER, copies=1, ring=3, horizon=2)
    one.publish(0)
    blocks = one.blocks(9)
    by_seed: dict[float, list[Rows]] = {}
    for block in blocks:
        (seed,) = set(block["observation"][:, 0, 0])
        by_seed.setdefault(seed, []).append(block)
    assert len(by_seed) == 3
    for own in by_seed.values():
        check_joints(own)


def test_the_last_decision_starts_the_next_block_if_it_is_new_enough(rig: Callable[..., ActorRig]) -> None:
    one = rig(TRACER, horizon=3, max_lag=1)
    one.publish(0)
    first, second = one.blocks(2)
    check_joints([first, second])
    assert (second["version"][0] == 0).all()
    client = one.actor._clients[0]
    assert isinstance(client, InlineClient)
    policy = client._policy
    assert isinstance(policy, CountingPolicy)
    assert len(policy.batches) <= 1 + 3 * len(one.actor._groups) * 3  # one decision for each row, none asked twice


@pytest.mark.parametrize("max_lag", [0, 2])
def test_the_fast_loop_records_the_same_rows_as_single_steps(rig: Callable[..., ActorRig], max_lag: int) -> None:
    found = []
    for in_loop in (True, False):
        one = rig(TRACER, copies=2, horizon=7, length=5, max_lag=max_lag)
        assert one.actor._groups[0]._is_plain
        one.actor._groups[0]._is_plain = in_loop
        one.publish(0)
        found.append(one.blocks(1))
    for fast, slow in zip(*found, strict=True):
        assert fast.keys() == slow.keys()
        for path, array in fast.items():
            np.testing.assert_array_equal(array, slow[path], path)


def test_the_last_row_is_decided_again_if_the_bound_requires_it(rig: Callable[..., ActorRig]) -> None:
    one = rig(TRACER, horizon=3, max_lag=0, length=100)
    for version in range(3):
        one.publish(version)
        one.consumer().advance(version)
        (block,) = one.blocks(1)
        assert (block["version"][:-1] == version).all()
        np.testing.assert_array_equal(block["decision/value"], block["observation"].sum(axis=-1) + version)
        assert block["observation"][0, 0, 2] == 3 * version  # no step was lost between the blocks
    one.play(50)
    assert one.consumer().status().posted == 3  # nothing is made while an update runs


def test_blocks_mix_versions_only_within_the_bound(rig: Callable[..., ActorRig]) -> None:
    one = rig(TRACER, horizon=5, max_lag=1, length=100)
    one.publish(0)
    one.play(8)
    for version in range(1, 6):
        (block,) = one.blocks(1)
        assert (version - 1 - block["version"][:-1] <= 1).all()
        assert (np.diff(block["version"].astype(int), axis=0) >= 0).all()
        one.publish(version)
        one.consumer().advance(version)


@pytest.mark.parametrize("noticed", ["at once", "when the block is full"])
def test_a_dead_trainer_costs_the_block_but_no_episode(
    rig: Callable[..., ActorRig], noticed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_group, "MAX_ROWS", 1)
    one = rig(TRACER, copies=1, horizon=8, length=3)
    one.publish(0)
    one.blocks(1)
    recorder = one.actor._groups[0].recorders[0]
    assert isinstance(recorder, AlignedRecorder)
    while recorder.row != 5:
        one.play(1)
    one.episodes()
    before = recorder._arrays["observation"][5, 0].copy()
    one.replace_consumer()
    one.updates["policy"] = 0
    if noticed == "at once":
        one.actor._producers[0].poll()
    (block,) = one.blocks(1)
    check_tracer(one_lane([block]), 3, False)
    if noticed == "at once":  # where the dead one's block stood, the next one begins
        np.testing.assert_array_equal(block["observation"][0, 0], before)
    count, returns, lengths = one.episodes()
    assert count >= 2
    assert set(returns) == {6.0}
    assert set(lengths) == {3.0}


def test_decisions_are_counted_before_a_block_is_full_and_only_once(rig: Callable[..., ActorRig]) -> None:
    one = rig(TRACER, copies=2, horizon=100, length=10)
    one.publish(0)
    recorder = one.actor._groups[0].recorders[0]
    assert isinstance(recorder, AlignedRecorder)
    while recorder.row < 50:
        one.play(1)
    recorder.count_decisions()
    partial = one.actor._meter.get(Counter.DECISIONS)
    assert 0 < partial <= 2 * recorder.row
    (block,) = one.blocks(1)
    total = np.count_nonzero(block["acting"][:-1])
    assert partial < total == one.actor._meter.get(Counter.DECISIONS) - _in_open_block(recorder)


def _in_open_block(recorder: AlignedRecorder) -> int:
    return 0 if recorder.opened is None else int(np.count_nonzero(recorder._arrays["acting"][: recorder._counted]))


@pytest.mark.parametrize("fault", ["raise", "nan", "shape"])
def test_a_lane_whose_environment_failed_is_truncated_on_both_sides(rig: Callable[..., ActorRig], fault: str) -> None:
    one = rig(FAULTY, copies=2, horizon=6, length=5, after=3, every=2, fault=fault, max_env_failures=100)
    one.publish(0)
    blocks = one.blocks(6)
    check_joints(blocks)
    num_failures = 0
    for lane in range(2):
        rows = one_lane(blocks, lane)
        seed, episode, t = rows["observation"].T
        for i in range(len(t) - 1):
            if rows["acting"][i]:
                assert (seed[i + 1], episode[i + 1], t[i + 1]) == (seed[i], episode[i], t[i] + 1)
                assert rows["reward"][i] == t[i] + 1
                assert rows["terminated"][i] == (t[i] + 1 == 5)
            else:
                assert (t[i + 1], rows["reward"][i]) == (0, 0)
                assert rows["first"][i + 1]
                if t[i] != 5:  # broke here: the step from t = 2 never happened
                    num_failures += 1
                    assert (episode[i] % 2, t[i]) == (1, 2)
                    assert rows["truncated"][i]
                    assert not rows["terminated"][i]
                    if i % 6:
                        assert rows["truncated"][i - 1]
    assert num_failures >= 4
    assert one.actor._meter.get(Counter.LANE_FAILURES) >= num_failures
    count, returns, lengths = one.episodes()
    assert count >= 4
    assert set(returns) == {15.0}  # only whole episodes count
    assert set(lengths) == {5.0}


def test_dead_agents_do_not_act_in_the_rows_that_they_share_with_others(rig: Callable[..., ActorRig]) -> None:
    pytest.importorskip("pettingzoo")
    one = rig("support.games:DyingTeam", copies=2, horizon=5)  # two steps, or four, then a new episode
    one.publish(0)
    blocks = one.blocks(3)
    check_joints(blocks)
    for block in blocks:
        for lane, agent in enumerate((0, 0, 1, 1)):  # by agent, then by copy
            own = {path: array[:, lane].tolist() for path, array in block.items()}
            assert {row[3] for row in own["observation"]} == {agent}
            assert own["acting"][:5] == [[True] * 2 + [False] * 3, [True] * 4 + [False]][agent]
            assert own["reward"][:5] == [[1, 2, 0, 0, 0], [101, 102, 103, 104, 0]][agent]
            assert own["terminated"][:5] == [step == (1, 3)[agent] for step in range(5)]
            assert own["first"] == [True, False, False, False, False, True]
    count, returns, lengths = one.episodes()
    assert count >= 12
    assert set(zip(returns, lengths, strict=True)) == {(3.0, 2.0), (410.0, 4.0)}


def test_an_environment_that_fails_as_a_whole_is_rebuilt(rig: Callable[..., ActorRig]) -> None:
    one = rig(TRACER, copies=1, horizon=4, length=3)
    one.publish(0)
    one.blocks(1)
    group = one.actor._groups[0]
    one.episodes()

    def broken(actions: Any) -> Any:
        raise RuntimeError("the simulator is gone")

    assert group.lanes is not None
    group.lanes.step = broken  # type: ignore[method-assign]
    blocks = one.blocks(3)
    fresh = [block for block in blocks if block["first"][0, 0] and block["observation"][0, 0, 1] == 0]
    assert len({float(block["observation"][0, 0, 0]) for block in blocks}) <= 2
    assert fresh
    for block in blocks:
        check_tracer(one_lane([block]), 3, False)
    count, returns, _ = one.episodes()
    assert count
    assert set(returns) == {6.0}
    assert any("the simulator is gone" in str(message) for _, message in one.stage.world.reports)


def test_episodes_travel_with_the_block_in_which_they_ended(rig: Callable[..., ActorRig]) -> None:
    one = rig(TRACER, copies=2, horizon=4, length=3)
    one.publish(0)
    for _ in range(4):
        (block,) = one.blocks(1)
        ended = (block["terminated"] | block["truncated"])[:-1]
        posted = one._episodes["policy"]
        columns = concatenated(episodes.arrays() for episodes in posted)
        lanes, counts = np.unique(columns.get("lane", []), return_counts=True)
        assert dict(zip(lanes.tolist(), counts.tolist(), strict=True)) == {
            lane: int(ended[:, lane].sum()) for lane in range(2) if ended[:, lane].any()
        }
        assert set(columns.get("return", [6.0])) == {6.0}
        assert set(columns.get("length", [3.0])) == {3.0}
        posted.clear()
    one.actor._report()
    assert not one.stage.world.reported(EpisodeReport), "only policies that do not learn report episodes"


def test_decisions_are_counted_once(rig: Callable[..., ActorRig]) -> None:
    one = rig(TRACER, copies=2, horizon=4, length=3)
    one.publish(0)
    one.blocks(4)
    posted = one.consumer().status().posted
    one.consumer().poll()
    assert one.actor._meter.get(Counter.DECISIONS) >= sum([6] * 4)
    assert one.actor._meter.get(Counter.DECISIONS) <= (posted + 3) * 8


def test_the_memory_of_a_policy_is_copied_from_row_to_row_and_from_block_to_block(rig: Callable[..., ActorRig]) -> None:
    actor = rig(TRACER, copies=2, horizon=4, length=3, memory=True)
    actor.publish(0)
    blocks = actor.blocks(4)
    for before, after in itertools.pairwise(blocks):
        for path in ("state", "decision/state"):
            np.testing.assert_array_equal(before[path][-1], after[path][0])
    for lane in range(2):
        rows = one_lane(blocks, lane)
        # An episode's rows: three decisions, and the last observation, which is decided on for its value.
        np.testing.assert_array_equal(rows["decision/state"][:, 0], [1, 2, 3, 4] * 4)
        np.testing.assert_array_equal(rows["state"][1:], rows["decision/state"][:-1])
        np.testing.assert_array_equal(rows["state"][1:, 1], rows["decision/value"][:-1])


def test_a_row_that_is_decided_again_keeps_its_memory(rig: Callable[..., ActorRig]) -> None:
    actor = rig(TRACER, copies=2, horizon=4, length=7, memory=True, max_lag=0)
    actor.publish(0)
    (before,) = actor.blocks(1)
    actor.publish(1)
    actor.consumer().advance(1)
    (after,) = actor.blocks(1)
    assert (before["version"][-1] == 0).all()
    assert (after["version"] == 1).all()
    np.testing.assert_array_equal(before["state"][-1], after["state"][0])
    np.testing.assert_array_equal(after["decision/state"][0, :, 1], after["decision/value"][0])
