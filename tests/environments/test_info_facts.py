"""Statistics of episodes come from the last info, in single, vector and multi-agent environments alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from srl.api.lanes import LanesConfig
from srl.environments.adapters.info_facts import InfoFacts
from srl.environments.registry import lanes_config

MODULE = "support.informative"


def ends(config: LanesConfig, count: int, team: int = 0) -> list[dict[str, Any]]:
    """Return the statistics of the first episodes of the last lane."""
    lanes = config.with_log_info(("height", "text", "missing")).build(2)
    found: list[dict[str, Any]] = []
    try:
        lanes.reset(seed=3)
        actions = tuple(np.zeros(2, np.int64) for _ in lanes.spec.teams)
        while len(found) < count:
            time_step = lanes.step(actions)[team]
            if (time_step.terminated | time_step.truncated)[-1]:
                found.append({name: float(values[-1]) for name, values in time_step.facts.items()})
            else:
                assert "is_success" not in time_step.facts
    finally:
        lanes.close()
    return found


def test_a_single_environment_reports_the_seed_and_scalars_of_its_last_info() -> None:
    first, second = ends(lanes_config(f"{MODULE}:Informative"), 2)
    assert first == {"seed": first["seed"], "seed_episode": 0.0, "is_success": 0.0, "height": 0.0}
    assert second == {"seed": first["seed"], "seed_episode": 1.0, "is_success": 1.0, "height": 1.0}


def test_statistics_of_gymnasium_are_the_raw_return_and_length() -> None:
    (first,) = ends(lanes_config(f"{MODULE}:doubled"), 1)
    assert (first["raw_return"], first["raw_length"]) == (3.0, 3.0)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_vector_environment_reports_the_same(mode: str) -> None:
    first, second = ends(lanes_config(f"{MODULE}:vector", mode=mode), 2)
    expected = {"is_success": 0.0, "height": 0.0, "raw_return": 3.0, "raw_length": 3.0}
    assert {name: first[name] for name in expected} == expected
    assert (second["is_success"], second["height"]) == (1.0, 1.0)


def test_every_agent_of_a_game_has_its_own() -> None:
    pytest.importorskip("pettingzoo")
    config = lanes_config(f"{MODULE}:game")
    both = [ends(config, 2, team)[1] for team in range(2)]
    assert [(one["is_success"], one["height"]) for one in both] == [(1.0, 1.0), (1.0, 2.0)]
    assert all(one["seed"] >= 0 for one in both)


def test_infos_of_vector_environments_mask_lanes_without_a_value() -> None:
    facts = InfoFacts(("speed",), 3)
    info = {"speed": np.array([1, 2, 3]), "_speed": np.array([True, False, True]), "is_success": np.array([1, 0, 1])}
    found = facts.from_vector(info, np.array([True, True, False]))
    np.testing.assert_array_equal(found["speed"], [1.0, np.nan, np.nan])
    np.testing.assert_array_equal(found["is_success"], [1.0, 0.0, np.nan])
    per_lane = np.array([{"speed": 5.0}, None, None], object)
    np.testing.assert_array_equal(
        facts.from_vector({"final_info": per_lane}, np.array([True, False, False]))["speed"], [5.0, np.nan, np.nan]
    )


def test_lanes_with_their_own_statistics_refuse_names() -> None:
    with pytest.raises(ValueError, match="has no infos for --log-info"):
        lanes_config("hide-and-seek/quadrant").with_log_info(("height",))
