"""Trees equal those of mctx on random models; make_mctx_fixtures.py has made the numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from search.make_mctx_fixtures import CASES, OUTCOMES

from srl.search import Evaluation, GumbelSearch, PUCTSearch, Step, noise

FIXTURES = Path(__file__).parent / "fixtures" / "mctx.npz"


def parts(name: str, part: str) -> dict[str, np.ndarray]:
    with np.load(FIXTURES) as file:
        prefix = f"{name}/{part}/"
        return {key.removeprefix(prefix): file[key] for key in file.files if key.startswith(prefix)}


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("chance")])
def test_visits_equal_those_of_mctx(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, num_actions, num_simulations, _, _ = CASES[name]
    model, expected = parts(name, "model"), parts(name, "result")

    def step(state: np.ndarray, action: np.ndarray) -> Step:
        after = model["next"][state, action]
        return Step(
            after,
            model["reward"][state, action],
            model["discount"][state, action],
            model["value"][after],
            model["logits"][after],
            model["legal"][after],
        )

    search: PUCTSearch | GumbelSearch
    if kind == "puct":
        search = PUCTSearch(num_simulations, num_actions, normalization="node")
    else:
        search = GumbelSearch(num_simulations, num_actions)
    if "gumbel" in expected:
        monkeypatch.setattr(noise, "fill_gumbel", lambda *arguments: np.copyto(arguments[-1], expected["gumbel"]))
    states = model["root"]
    root = Evaluation(states, model["value"][states], model["logits"][states])
    seeds = np.arange(len(states))
    result = search.run(root, step, seeds, legal=model["legal"][states], noise="gumbel" in expected)
    assert np.array_equal(result.visits, expected["visits"])
    assert result.value == pytest.approx(expected["root_value"], abs=1e-5)
    assert np.allclose(np.where(result.visits > 0, result.q, 0), expected["q"], atol=1e-5)
    assert np.allclose(result.policy, expected["policy"], atol=1e-4)
    assert np.array_equal(result.actions, expected["actions"])


def test_visits_equal_those_of_mctx_with_chance_nodes() -> None:
    _, num_actions, num_simulations, (discount,), _ = CASES["chance"]
    model, expected = parts("chance", "model"), parts("chance", "result")

    def step(state: np.ndarray, action: np.ndarray) -> Step:
        """A state is (number, action that was taken in it, or -1): a chance node if there is one."""
        is_outcome = state[:, 1] >= 0
        before = np.where(is_outcome, state[:, 1], action)
        outcome = np.where(is_outcome, action, 0)
        after = model["outcome_next"][state[:, 0], before, outcome]
        logits = np.where(is_outcome[:, None], model["logits"][after], 0)
        logits[~is_outcome, :OUTCOMES] = model["outcome_logits"][state[:, 0], before][~is_outcome]
        return Step(
            np.where(
                is_outcome[:, None], np.stack((after, np.full_like(after, -1)), 1), np.stack((state[:, 0], before), 1)
            ),
            np.where(is_outcome, model["outcome_reward"][state[:, 0], before, outcome], 0),
            np.where(is_outcome, discount, 1),
            np.where(is_outcome, model["value"][after], model["after_value"][state[:, 0], before]),
            logits,
            chance=~is_outcome,
        )

    states = model["root"]
    root = Evaluation(np.stack((states, np.full_like(states, -1)), 1), model["value"][states], model["logits"][states])
    search = PUCTSearch(num_simulations, num_actions, num_outcomes=OUTCOMES, normalization="node")
    result = search.run(root, step, noise=False)
    assert np.array_equal(result.visits, expected["visits"])
    assert result.value == pytest.approx(expected["root_value"], abs=1e-5)
