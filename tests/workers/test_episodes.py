"""Returns and lengths of episodes, compared with a simple loop."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from srl.api.block import MAX_EPISODE_BYTES, Episodes, joined
from srl.workers.actor.episodes import EpisodeTracker


def drained(tracker: EpisodeTracker, lane: int | None = None) -> list[tuple[float, float]]:
    """Return and length of each episode."""
    episodes = tracker.drain(lane)
    arrays = episodes.arrays() if episodes is not None else {"return": np.zeros(0), "length": np.zeros(0)}
    return list(zip(arrays["return"].tolist(), arrays["length"].tolist(), strict=True))


def test_an_episode_over_two_blocks() -> None:
    tracker = EpisodeTracker(num_lanes=2)
    reward = np.array([[1, 10], [2, 20], [0, 30]], np.float32)
    acting = np.array([[1, 1], [1, 1], [0, 1]], bool)
    ended = np.array([[0, 0], [1, 0], [0, 0]], bool)
    tracker.count_block(reward, acting, ended)
    assert drained(tracker) == [(3.0, 2.0)]
    ended = np.array([[1, 0], [0, 1], [0, 0]], bool)
    tracker.count_block(reward, acting, ended)
    assert drained(tracker) == [(1.0, 1.0), (90.0, 5.0)]
    assert tracker.drain() is None


def test_an_episode_whose_environment_failed_is_left_out() -> None:
    tracker = EpisodeTracker(num_lanes=1)
    column = np.array([[1], [1], [1], [1], [1]], np.float32)
    ended = np.array([[0], [1], [1], [0], [1]], bool)
    cut = np.array([[0], [1], [1], [0], [0]], bool)
    tracker.count_block(column, column.astype(bool), ended, cut)
    assert drained(tracker) == [(2.0, 2.0)]


def test_steps_of_single_lanes_are_drained_by_lane() -> None:
    tracker = EpisodeTracker(num_lanes=2)
    tracker.count_step(0, 1.5, False, {}, 0)
    tracker.count_step(1, 10.0, False, {}, 1)
    tracker.count_step(0, 2.5, True, {}, 0)
    tracker.forget(np.array([1]))
    tracker.count_step(1, 1.0, True, {}, 1)
    tracker.count_step(1, 7.0, True, {}, 1, kept=False)
    assert drained(tracker, 0) == [(4.0, 2.0)]
    assert drained(tracker, 1) == [(1.0, 1.0)]


def test_statistics_of_the_environment_belong_to_their_episode_and_replace_returns() -> None:
    tracker = EpisodeTracker(num_lanes=2)
    ones = np.ones((4, 2), np.float32)
    ended = np.array([[1, 0], [0, 0], [1, 1], [0, 0]], bool)
    tracker.note(0, {"height": np.array([5.0, 99.0]), "lane": np.zeros(2)}, ended[0])
    tracker.note(2, {"height": np.array([np.nan, 7.0]), "return": np.array([np.nan, 30.0])}, ended[2])
    saved, restored = tracker.state(), EpisodeTracker(num_lanes=2)
    restored.restore(saved)
    for one in (tracker, restored):
        one.count_block(ones, ones.astype(bool), ended)
        episodes = one.drain()
        assert episodes is not None
        columns = {name: values.tolist() for name, values in episodes.arrays().items()}
        # The second episode of lane 0 has no return: a lost life that counts as an end.
        assert columns == {"lane": [0, 1], "return": [1, 30], "length": [1, 3], "height": [5, 7]}
    tracker.count_block(ones, ones.astype(bool), ended)
    episodes = tracker.drain()
    assert episodes is not None
    assert "height" not in episodes.columns, "statistics are used once"


def test_an_episode_has_the_options_with_which_it_began() -> None:
    def count(tracker: EpisodeTracker, ended: Any) -> list[float]:
        ones = np.ones((4, 2), np.float32)
        tracker.count_block(ones, ones.astype(bool), np.array(ended, bool))
        episodes = tracker.drain()
        assert episodes is not None
        return episodes.arrays()["env.level"].tolist()

    tracker = EpisodeTracker(num_lanes=2)
    tracker.set_option("env.level", 1)
    tracker.set_option("env.text", "has no column")
    tracker.forget(np.arange(2))  # all lanes are reset
    tracker.set_option("env.level", 2)
    # Lane 0 has an end in the middle and one in the last row, lane 1 one that leaves another episode open.
    assert count(tracker, [[1, 0], [0, 1], [0, 0], [1, 0]]) == [1, 1, 1]
    restored = EpisodeTracker(num_lanes=2)
    restored.restore(tracker.state())
    for one in (tracker, restored):  # lane 1's first episode began in the previous block
        assert count(one, [[1, 1], [0, 0], [0, 1], [0, 0]]) == [2, 1, 2]

    tracker = EpisodeTracker(num_lanes=1)
    tracker.set_option("env.level", 3)
    for _ in range(2):
        tracker.count_step(0, 1.0, True, {}, 0)
    episodes = tracker.drain()
    assert episodes is not None
    np.testing.assert_equal(episodes.arrays()["env.level"].tolist(), [np.nan, 3.0])


def test_episodes_survive_a_saved_state() -> None:
    tracker, restored = EpisodeTracker(num_lanes=2), EpisodeTracker(num_lanes=2)
    for lane, value in ((0, 1.0), (1, 2.0), (0, 3.0)):
        tracker.count_step(lane, value, True, {"seed": np.array([2.0**40, 2.0**40])}, lane)
    restored.restore(tracker.state())
    assert drained(restored, 0) == [(1.0, 1.0), (3.0, 1.0)]
    last = restored.drain()
    assert last is not None
    assert last.arrays()["seed"].tolist() == [2.0**40], "seeds are exact"


def test_many_episodes_are_sampled_and_all_are_counted() -> None:
    many = Episodes.of({"return": np.arange(300_000.0), "length": np.ones(300_000)})
    assert many.total == 300_000
    assert many.num_bytes <= MAX_EPISODE_BYTES
    assert many.arrays()["return"][[0, -1]].tolist() == [0.0, 299_999.0]
    both = joined([("actors/0", many), ("actors/1", many)])
    assert sum(one.total for one in both.values()) == 600_000
    assert sum(one.num_bytes for one in both.values()) <= MAX_EPISODE_BYTES


def test_episodes_of_an_actor_are_joined_with_gaps_where_a_statistic_is_missing() -> None:
    first, second = Episodes.of({"return": np.array([1.0])}), Episodes.of({"return": np.ones(1), "x": np.ones(1)})
    (one,) = joined([("actors/0", first), ("actors/0", second)]).values()
    np.testing.assert_array_equal(one.arrays()["x"], [np.nan, 1.0])


def test_columns_of_another_length_are_refused() -> None:
    encoded = msgspec.msgpack.encode([2, {"return": b"1234"}, 0])
    with pytest.raises(msgspec.ValidationError, match="has 4 bytes"):
        msgspec.msgpack.decode(encoded, type=Episodes)


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
        assert drained(tracker) == wanted
