"""Sampled actions: their distribution, the corrected prior, and searches whose nodes have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from search.models import same
from search.test_mlp import bounded, model_of, slow

from srl.search import ActionSamples, GumbelSearch, MLPModelConfig, PUCTSearch, Search, sampled_actions
from srl.search.samples import draw

KINDS = {"real": ActionSamples(6, 2), "choices": ActionSamples(6, 2, (3, 4), temperature=2.0)}
POLICY: Any = np.array([[0.3, -1.0, -0.5, 0.4]], np.float32)  # outputs for two means and two standard deviations
MEAN = 3 * np.tanh(POLICY[0, :2] / 3)
STD = np.exp(-5 + 5.5 * (np.tanh(POLICY[0, 2:]) + 1) / 2)
CHOICES: Any = np.array([[0.2, 1.2, -0.4, 0.0, 0.7]], np.float32)  # of 3, and of 2


def config_of(kind: str) -> MLPModelConfig:
    return MLPModelConfig(4, 6, 16, (24,), (20,), (12,), num_bins=11, samples=KINDS[kind])


def drawn(samples: ActionSamples, policy: Any, seeds: Any) -> tuple[Any, Any]:
    """Return actions [L, count, size] and logits [L, count] of nodes with these seeds and one policy."""
    kept = np.zeros((len(seeds), samples.kept), np.float32)
    kept[:, 0] = seeds
    logits = np.zeros((len(seeds), samples.count), np.float32)
    draw(samples.build(), np.repeat(policy, len(seeds), 0), kept, logits)
    return sampled_actions(samples, kept), logits


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_takes_the_action_that_the_tree_names(kind: str) -> None:
    config, samples = config_of(kind), KINDS[kind]
    model, rows, edges = model_of(config), np.arange(5), np.array([0, 5, 2, 3, 3])
    root = model.root(np.random.default_rng(1).normal(size=(5, 4)), rows)
    step = model(root.state, edges)
    taken = sampled_actions(samples, root.state)[rows, edges]
    eyes = [np.eye(number)[taken[:, j].astype(int)] for j, number in enumerate(samples.choices)]
    inputs = np.concatenate(eyes, 1) if eyes else np.tanh(taken)
    latent = bounded(config, slow(model, "dynamics", np.concatenate((root.state[:, :16], inputs), 1)))
    assert step.state[:, :16] == pytest.approx(latent, abs=1e-4)
    assert np.all(step.state[:, 16] != root.state[:, 16]), "another seed in each node"


@pytest.mark.parametrize("lanes", [1, 9])
@pytest.mark.parametrize("search", [GumbelSearch(20, 6), PUCTSearch(20, 6)], ids=["gumbel", "puct"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_compiled_search_equals_one_that_calls_the_network(kind: str, search: Search, lanes: int) -> None:
    model, seen = model_of(config_of(kind)), np.random.default_rng(2).normal(size=(9, 4))[:lanes]
    seeds = np.arange(lanes)
    compiled = search.run(model.root(seen, seeds), model, seeds.copy())
    called = search.run(model.root(seen, seeds), lambda state, action: model(state, action), seeds.copy())
    assert same(compiled, called)
    assert np.all(compiled.visits.sum(1) == 20)
    alone = search.run(model.root(seen[-1:], seeds[-1:]), model, seeds[-1:].copy())
    assert same(alone, type(compiled)(*(part[-1:] for part in compiled))), "a tree depends on the other lanes"


def test_real_numbers_have_the_distribution_of_the_policy() -> None:
    found, logits = drawn(ActionSamples(20, 2, temperature=4.0), POLICY, np.arange(1, 2001))
    flat = found.reshape(-1, 2)
    assert flat.mean(0) == pytest.approx(MEAN, abs=0.05)
    assert flat.std(0) == pytest.approx(2.0 * STD, rel=0.02)  # N(mean, std) ** (1 / 4) is N(mean, 2 std)
    scaled = (flat - MEAN) / STD
    corrected = (-0.5 * scaled**2 + 0.5 * (scaled / 2.0) ** 2).sum(1)  # log of policy / sampling distribution
    assert logits.ravel() - logits[0, 0] == pytest.approx(corrected - corrected[0], abs=1e-3)
    assert np.all(drawn(ActionSamples(20, 2), POLICY, np.arange(1, 9))[1] == 0.0), "a uniform prior"


def test_means_and_standard_deviations_are_limited() -> None:
    narrow = drawn(ActionSamples(50, 1), np.array([[0.0, -40.0]], np.float32), [3])[0]
    wide = drawn(ActionSamples(50, 1), np.array([[0.0, 40.0]], np.float32), [3])[0]
    assert np.abs(narrow).max() < 6 * np.exp(-5.0)
    assert np.abs(wide).max() < 6 * np.exp(0.5)
    assert drawn(ActionSamples(1, 1), np.array([[50.0, -40.0]], np.float32), [0])[0] == pytest.approx(3.0)


def test_choices_have_the_distribution_of_the_policy_and_a_corrected_prior() -> None:
    """The prior is how often an action was drawn, times its probability, divided by the one with which it is drawn."""
    samples = ActionSamples(20, 2, (3, 2), temperature=2.0)
    found, logits = drawn(samples, CHOICES, np.arange(1, 3001))
    parts = CHOICES[0, :3].astype(np.float64), CHOICES[0, 3:].astype(np.float64)
    policy = [np.exp(part) / np.exp(part).sum() for part in parts]
    wide = [np.exp(part / 2) / np.exp(part / 2).sum() for part in parts]
    for j, shares in enumerate(wide):
        counts = np.bincount(found[..., j].astype(int).ravel(), minlength=len(shares))
        assert counts / counts.sum() == pytest.approx(shares, abs=0.01)
    one, seen = found[0].astype(int), np.isfinite(logits[0])
    distinct = [tuple(action) for action in one[seen]]
    assert len(set(distinct)) == len(distinct) == len({tuple(action) for action in one})
    expected = [
        (one == action).all(1).sum()
        * policy[0][action[0]]
        * policy[1][action[1]]
        / wide[0][action[0]]
        / wide[1][action[1]]
        for action in distinct
    ]
    prior = np.exp(logits[0][seen])
    assert prior / prior.sum() == pytest.approx(np.array(expected) / np.sum(expected), rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_without_noise_samples_are_always_the_same_and_begin_with_the_most_likely_action(kind: str) -> None:
    model, seen = model_of(config_of(kind)), np.random.default_rng(2).normal(size=(3, 4))
    root = model.root(seen)
    assert np.array_equal(root.state, model.root(seen).state)
    assert not np.array_equal(root.state, model.root(seen, np.arange(3)).state)
    outputs = slow(model, "prediction", root.state[:, :16])
    first = sampled_actions(KINDS[kind], root.state)[:, 0]
    best = (
        3 * np.tanh(outputs[:, :2] / 3)
        if kind == "real"
        else np.stack((outputs[:, :3].argmax(1), outputs[:, 3:7].argmax(1)), 1)
    )
    assert first == pytest.approx(best, abs=1e-4)
    assert not np.allclose(first, sampled_actions(KINDS[kind], root.state)[:, 1])


def test_forbidden_choices_are_not_drawn() -> None:
    model = model_of(config_of("choices"))
    allowed = np.array([[1, 0, 1, 0, 0, 1, 0]], bool).repeat(40, 0)
    root = model.root(np.random.default_rng(2).normal(size=(40, 4)), np.arange(40), allowed)
    found = sampled_actions(KINDS["choices"], root.state).astype(int)
    assert set(found[..., 0].ravel()) == {0, 2}
    assert set(found[..., 1].ravel()) == {2}


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="num_actions must be the number of samples, 6; found 5"):
        MLPModelConfig(4, 5, samples=KINDS["real"])
    with pytest.raises(ValueError, match="one number of choices per element"):
        ActionSamples(4, 2, (3,))
    with pytest.raises(ValueError, match="temperature must be positive"):
        ActionSamples(4, 2, temperature=0.0)
