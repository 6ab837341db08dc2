"""Returns and lengths of episodes, compared with a simple loop."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from srl.workers.actor.episodes import MAX_REPORTED, EpisodeTracker


def test_an_episode_over_two_blocks() -> None:
    tracker = EpisodeTracker(num_lanes=2)
    reward = np.array([[1, 10], [2, 20], [0, 30]], np.float32)
    acting = np.array([[1, 1], [1, 1], [0, 1]], bool)
    ended = np.array([[0, 0], [1, 0], [0, 0]], bool)
    tracker.count_block(reward, acting, ended)
    assert tracker.drain() == (1, [3.0], [2.0])
    ended = np.array([[1, 0], [0, 1], [0, 0]], bool)
    tracker.count_block(reward, acting, ended)
    assert tracker.drain() == (2, [1.0, 90.0], [1.0, 5.0])
    assert tracker.drain() == (0, [], [])


def test_an_episode_whose_environment_failed_is_left_out() -> None:
    tracker = EpisodeTracker(num_lanes=1)
    column = np.array([[1], [1], [1], [1], [1]], np.float32)
    ended = np.array([[0], [1], [1], [0], [1]], bool)
    cut = np.array([[0], [1], [1], [0], [0]], bool)
    tracker.count_block(column, column.astype(bool), ended, cut)
    assert tracker.drain() == (1, [2.0], [2.0])


def test_steps_of_single_lanes_and_episodes_counted_elsewhere() -> None:
    tracker = EpisodeTracker(num_lanes=2)
    tracker.count_step(0, 1.5, False)
    tracker.count_step(1, 10.0, False)
    tracker.count_step(0, 2.5, True)
    tracker.record(99.0, 7.0)
    tracker.forget(np.array([1]))
    tracker.count_step(1, 1.0, True)
    assert tracker.drain() == (3, [4.0, 99.0, 1.0], [2.0, 7.0, 1.0])


def test_a_report_samples_many_episodes_and_counts_all() -> None:
    tracker = EpisodeTracker(num_lanes=1)
    for number in range(1000):
        tracker.record(float(number), 1.0)
    count, returns, lengths = tracker.drain()
    assert count == 1000
    assert (len(returns), len(lengths)) == (MAX_REPORTED, MAX_REPORTED)
    assert (returns[0], returns[-1]) == (0.0, 999.0)
    assert returns == sorted(set(returns))


@settings(max_examples=100, deadline=None)
@given(data=st.data(), num_steps=st.integers(1, 6), num_lanes=st.integers(1, 4))
def test_counting_blocks_equals_counting_steps(data: Any, num_steps: int, num_lanes: int) -> None:
    tracker = EpisodeTracker(num_lanes)
    total = [0.0] * num_lanes
    length = [0] * num_lanes
    shape = (num_steps, num_lanes)
    for _ in range(4):
        reward = data.draw(hnp.arrays(np.float32, shape, elements=st.integers(-8, 8)))
        acting, ended = (data.draw(hnp.arrays(np.bool_, shape)) for _ in range(2))
        cut = data.draw(st.none() | hnp.arrays(np.bool_, shape))
        tracker.count_block(reward, acting, ended if cut is None else ended | cut, cut)
        wanted = []
        for lane in range(num_lanes):
            for step in range(num_steps):
                total[lane] += float(reward[step, lane])
                length[lane] += int(acting[step, lane])
                was_cut = cut is not None and cut[step, lane]
                if ended[step, lane] or was_cut:
                    if not was_cut:
                        wanted.append((total[lane], float(length[lane])))
                    total[lane], length[lane] = 0.0, 0
        count, returns, lengths = tracker.drain()
        assert count == len(wanted)
        assert list(zip(returns, lengths, strict=True)) == wanted


def test_facts_of_episodes_that_ended_become_sums_and_counts() -> None:
    tracker = EpisodeTracker(3)
    ended = np.array([True, False, True])
    tracker.note(
        {"return": np.ones(3), "height": np.array([1.0, 50.0, 4.0]), "rare": np.array([2.0, 0, np.nan])}, ended
    )
    tracker.note({"height": np.array([3.0, 50.0, 50.0])}, np.array([True, False, False]))
    assert tracker.drain_facts() == {"height": (8.0, 3), "rare": (2.0, 1)}
    assert tracker.drain_facts() == {}
