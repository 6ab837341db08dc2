"""The recipe of Q-learning through the user's door."""

from __future__ import annotations

from pathlib import Path

import pytest

import srl
from srl.results.evaluate import evaluate


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_recipe_of_dqn_solves_cart_pole(tmp_path: Path) -> None:
    run = srl.train("CartPole-v1", algo="dqn", steps=50_000, seed=1, scheduler="inline", sinks=(), root=tmp_path)
    assert evaluate(run.path, episodes=100, seed=1).mean >= 475.0
