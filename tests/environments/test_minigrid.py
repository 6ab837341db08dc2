"""MiniGrid observations as vectors for a network."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

pytest.importorskip("minigrid")

from srl.environments.adapters.minigrid import BABY_LENGTH, BABY_WORDS, CODES, DIRECTIONS, make, words_of
from srl.environments.registry import lanes_config
from srl.testing.env_checks.environment import check_environment

VIEW = 49 * sum(CODES) + DIRECTIONS


def read(environment: Any, observation: Any) -> list[str]:
    """Return the words of the encoded mission, in their order."""
    known = {number: pair for pair, number in words_of(environment.unwrapped.observation_space["mission"]).items()}
    return [word for _, word in sorted(known[int(i)] for i in np.flatnonzero(observation[VIEW:]))]


@pytest.mark.parametrize(
    ("name", "unvaried"),
    [
        ("MiniGrid-GoToDoor-5x5-v0", ["go", "to", "the", "door"]),
        ("MiniGrid-PutNear-6x6-N2-v0", ["put", "the", "near", "the"]),
        ("MiniGrid-Fetch-5x5-N2-v0", []),
        ("BabyAI-PutNextLocal-v0", []),
    ],
)
def test_a_variable_mission_is_encoded_word_by_word(name: str, unvaried: list[str]) -> None:
    environment = make(name)
    missions = set()
    for seed in range(5):
        observation, _ = environment.reset(seed=seed)
        mission = environment.unwrapped.mission
        missions.add(mission)
        encoded = [word for word in mission.split() if word not in unvaried]
        assert read(environment, observation) == encoded
    assert len(missions) > 1
    environment.close()


def test_a_constant_mission_is_not_encoded() -> None:
    environment = make("MiniGrid-DoorKey-5x5-v0")
    assert environment.observation_space.shape == (VIEW,)
    environment.close()


def test_the_words_of_the_longest_mission_of_babyai_are_encoded() -> None:
    thing = "the red ball in front of you"
    pair = f"put {thing} next to {thing} and put {thing} next to {thing}"
    sentence = f"{pair} after you {pair}".split()
    assert len(sentence) == BABY_LENGTH
    assert set(sentence) <= set(BABY_WORDS)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda wanted: None if wanted == "minigrid" else find(wanted))
    with pytest.raises(ValueError, match=r'needs the package minigrid; pip install "srl-rl\[minigrid\]"'):
        lanes_config("MiniGrid-NoSuchLevel-v0")


def test_check_env_finds_nothing_wrong():
    assert check_environment("MiniGrid-Empty-5x5-v0", steps=100) == []
