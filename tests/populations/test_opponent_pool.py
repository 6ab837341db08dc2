"""Pools of past versions: which are kept, and which are drawn as opponents."""

from __future__ import annotations

import numpy as np
import pytest

from srl.parameters.host import HostParameterStore
from srl.populations.opponent_pool import LATEST, OpponentPool, PoolConfig


def store_with(versions: int) -> HostParameterStore:
    store = HostParameterStore.create("policy")
    for version in range(versions):
        store.push(version, np.full(2, version, np.float32))
    return store


def grown(config: PoolConfig, versions: int) -> tuple[OpponentPool, HostParameterStore]:
    """Return a pool that was refreshed with every version."""
    store = HostParameterStore.create("policy")
    pool = OpponentPool(config, store)
    for version in range(versions):
        store.push(version, np.zeros(2, np.float32))
        pool.refresh()
    return pool, store


def test_kept_versions_are_spread_over_the_run() -> None:
    pool, store = grown(PoolConfig("uniform", every=10, size=4), 201)
    kept = sorted(pool.refresh().values())
    assert len(kept) == 4
    assert kept[0] == 0
    assert kept[-1] == 200
    assert min(np.diff(kept)) >= 10
    store.memory.close()


def test_before_the_first_version_the_opponent_is_the_policy_itself() -> None:
    store = HostParameterStore.create("policy")
    assert OpponentPool(PoolConfig("uniform", share=1.0), store).draw(np.random.default_rng(0)) == LATEST
    store.memory.close()


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_share_of_games_against_past_versions_is_kept(share: float) -> None:
    store = store_with(1)
    pool, generator = OpponentPool(PoolConfig("uniform", share=share), store), np.random.default_rng(0)
    drawn = [pool.draw(generator) for _ in range(400)]
    assert np.mean([tag != LATEST for tag in drawn]) == pytest.approx(share, abs=0.08)
    store.memory.close()


def test_opponents_that_are_hard_to_beat_are_drawn_more_often() -> None:
    pool, store = grown(PoolConfig("prioritized", share=1.0, every=1), 2)
    for _ in range(100):
        pool.add_result(0, 1.0)
        pool.add_result(1, 0.0)
    assert pool.win_rate(0) > 0.95
    generator = np.random.default_rng(0)
    drawn = [pool.draw(generator) for _ in range(400)]
    assert 0.02 < drawn.count("past-0") / 400 < 0.1, "MIN_WEIGHT to (1 - 0)^2, and never zero"
    store.memory.close()
