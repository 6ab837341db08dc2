"""MuZero's losses beside a reference in plain Python, its target network, its temperature, and its search's options."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from algorithms.test_muzero import ARMS, KINDS, SMALL, drawn, fresh, observations, policy_of, shaken, trainer_of
from torch import Tensor
from torch.nn import functional

from srl.algorithms.muzero.trainer import CONSISTENCY, NETWORK, MuZeroTrainer, Window
from srl.api.dataflow import SequenceBatch
from srl.search import GumbelSearch, PUCTSearch

STEPS = SMALL.unroll


def cut_batch(kind: str = "plain") -> SequenceBatch:
    """Return a batch of 6 lanes: one is truncated after its first step and one terminates there, one is truncated and
    one terminates at its second step, one begins with a last observation, and one goes on."""
    batch = drawn(kind)
    batch.acting[...], batch.valid[...] = True, True
    batch.terminated[...] = batch.truncated[...] = batch.first[...] = False
    for lane, (flags, row) in enumerate(
        [(batch.truncated, 0), (batch.terminated, 0), (batch.truncated, 1), (batch.terminated, 1)]
    ):
        flags[0, row, lane], batch.acting[0, row + 1, lane], batch.first[0, row + 2, lane] = True, False, True
    batch.acting[0, 0, 4], batch.first[0, 1, 4] = False, True
    return batch


def window_of(trainer: MuZeroTrainer, batch: SequenceBatch) -> Window:
    window: Window = trainer.minibatch(batch, 0, trainer.learner.device)
    return window


def bins_of(value: float, num_bins: int, width: float) -> Tensor:
    """Return the distribution over bins that stands for a value."""
    number = np.sign(value) * (np.sqrt(abs(value) + 1) - 1) + 0.001 * value
    place = np.clip(number / width + num_bins // 2, 0, num_bins - 1)
    found = torch.zeros(num_bins)
    lower = min(int(place), num_bins - 2)
    found[lower], found[lower + 1] = 1 - (place - lower), place - lower
    return found


def cross_entropy(target: Tensor, logits: Tensor) -> float:
    return float(-(target * torch.log_softmax(logits, -1)).sum())


@torch.no_grad()
def reference(trainer: MuZeroTrainer, window: Window) -> dict[str, float]:
    """Compute the losses one window and one step at a time (Schrittwieser et al. 2020, eq. 1 and appendix G)."""
    network, config = trainer._network, trainer.config
    values, count = trainer.value_targets(window), len(window.weight)
    found = dict.fromkeys(("policy_loss", "value_loss", "reward_loss", "consistency_loss"), 0.0)
    for lane in range(count):
        latent = network.represent(window.observation[lane][None])
        for k in range(STEPS + 1):
            scale = (1.0 if k == 0 else 1.0 / STEPS) * float(window.weight[lane]) / count
            if k:
                latent = network.imagine(latent, window.action[k - 1, lane][None])
            policy, value, reward = (part[0] for part in network.predict(latent))
            bins = network.model.num_bins, network.model.bin_width
            if window.has_policy[k, lane]:
                found["policy_loss"] += scale * cross_entropy(window.policy[k, lane], policy)
            if window.has_value[k, lane]:
                found["value_loss"] += scale * cross_entropy(bins_of(float(values[k, lane]), *bins), value)
            if k and window.has_reward[k - 1, lane]:
                target = bins_of(float(window.reward[k - 1, lane]), *bins)
                found["reward_loss"] += scale * cross_entropy(target, reward)
            head = trainer._consistency
            if k and head is not None and window.has_policy[k, lane]:
                goal = head.projection(network.represent(window.observation[k * count + lane][None]))
                guess = head.predictor(head.projection(latent))
                found["consistency_loss"] -= scale * float(functional.cosine_similarity(guess, goal))
    weights = {"value_loss": config.value_weight, "consistency_loss": config.consistency_weight}
    return found | {"loss": sum(weights.get(name, 1.0) * loss for name, loss in found.items())}


def test_losses_are_those_of_a_reference_with_masks_weights_and_scales() -> None:
    trainer = shaken(trainer_of(consistency_weight=2.0, value_weight=0.25))
    window = window_of(trainer, cut_batch())
    assert window.has_value[:, 0].tolist() == [1, 0, 0, 0], "nothing is known after a truncation"
    assert window.has_value[:, 1].tolist() == [1, 1, 1, 1], "places after a termination are absorbing"
    assert window.has_policy[:, 1].tolist() == [1, 0, 0, 0]
    assert not window.has_value[:, 4].any()
    expected = reference(trainer, window)
    metrics, _ = trainer.gradient_step(window, 0.0)
    for name, loss in expected.items():
        assert float(metrics[name].detach()) == pytest.approx(loss, rel=1e-4), name


def test_the_goal_of_consistency_gets_no_gradient_and_places_beyond_an_end_have_none() -> None:
    trainer = shaken(trainer_of(consistency_weight=2.0))
    window, head = window_of(trainer, cut_batch()), trainer._consistency
    assert head is not None
    lanes, seen = len(window.weight), window.observation.clone().requires_grad_()
    window = window._replace(observation=seen)
    loss = trainer._inconsistency(head, trainer._unroll(window)[1:], window, torch.ones(STEPS, lanes))
    (gradient,) = torch.autograd.grad(loss, seen)
    by_place = gradient.view(STEPS + 1, lanes, -1).abs().sum(-1)
    assert (by_place[1:] == 0).all()
    known = window.has_policy[1:].bool().any(0)
    assert known.tolist() == [False, False, True, True, False, True]
    assert torch.equal(by_place[0] > 0, known)


def test_the_head_of_consistency_learns() -> None:
    trainer = trainer_of(consistency_weight=2.0)
    before = trainer.learner.flat[CONSISTENCY].trainable.clone()
    trainer.step(cut_batch(), 0.0)
    assert not torch.equal(before, trainer.learner.flat[CONSISTENCY].trainable)


def test_the_target_network_is_a_copy_from_every_nth_gradient_step() -> None:
    trainer = trainer_of(target_update=4)  # a batch has two steps
    own, target = trainer.learner.flat[NETWORK].trainable, trainer.learner.flat_targets[NETWORK].values
    first = target.clone()
    trainer.step(drawn(), 0.0)
    assert torch.equal(target, first)
    trainer.step(drawn(), 0.0)
    assert torch.equal(target[: len(own)], own)
    assert not torch.equal(target, first)


def test_the_temperature_falls_in_three_steps_and_reaches_policies() -> None:
    config = replace(KINDS["puct"][0], temperature=1.0, temperature_final=0.25)
    assert [config.temperature_at(progress) for progress in (0.0, 0.49, 0.5, 0.74, 0.75, 1.0)] == [
        *(1.0, 1.0, 0.5, 0.5, 0.25, 0.25)
    ]
    trainer = trainer_of("puct")
    for progress in (0.1, 0.6, 0.9):
        trainer.step(drawn("puct"), progress)
        policy = policy_of(trainer, "puct")
        assert policy._temperature == pytest.approx(config.temperature_at(progress))


@pytest.mark.parametrize("temperature", [1.0, 0.02])
def test_visits_and_temperature_choose_actions_in_training(temperature: float) -> None:
    trainer = shaken(trainer_of("puct", temperature=temperature, temperature_final=temperature))
    trainer.step(drawn("puct"), 0.9)
    policy, rows = policy_of(trainer, "puct", simulations=12, dirichlet_fraction=0.0), observations(300)
    best = policy.search(rows, noise=False).visits
    decided = policy.act(rows, None, fresh(300))["action"]
    most = best[np.arange(300), decided] == best.max(1)
    if temperature < 1.0:
        assert most.all()
    else:
        expected = np.where(best == best.max(1, keepdims=True), best / best.sum(1, keepdims=True), 0.0).sum(1).mean()
        assert abs(most.mean() - expected) < 0.1
        assert most.mean() < 0.9


def test_searches_are_built_with_the_options() -> None:
    puct = replace(SMALL, search="puct", gamma=0.9, dirichlet_alpha=0.7, dirichlet_fraction=0.4, search_memory_mb=77)
    built: Any = puct.build_search(ARMS)
    assert isinstance(built, PUCTSearch)
    assert (built.dirichlet_alpha, built.dirichlet_fraction, built.discount) == (0.7, 0.4, 0.9)
    assert (built.num_simulations, built.num_actions, built.max_memory_mb) == (6, 3, 77)
    gumbel: Any = replace(SMALL, gamma=0.8, considered_actions=2).build_search(ARMS)
    assert isinstance(gumbel, GumbelSearch)
    assert (gumbel.max_considered, gumbel.discount) == (2, 0.8)


@pytest.mark.parametrize("kind", ["plain", "puct"])
def test_a_search_discounts_the_values_of_its_model(kind: str) -> None:
    """All values are 8, and all rewards 0: each action is worth gamma times 8 after one visit, less after more."""
    trainer = trainer_of(kind, gamma=0.5)
    network: Any = trainer._network
    for part in (network.representation, network.dynamics, network.prediction):
        for layer in part.layers:
            layer.weight.data.zero_()
            layer.bias.data.zero_()
    bins, actions = network.model.num_bins, network.model.num_actions
    target = bins_of(8.0, bins, network.model.bin_width)
    network.prediction.layers[-1].bias.data[actions : actions + bins] = (target + 1e-9).log()
    network.prediction.layers[-1].bias.data[actions + bins :] = (bins_of(0.0, bins, 2.0) + 1e-9).log()
    policy = policy_of(trainer, kind, gamma=0.5, simulations=3)
    found = policy.search(observations(2), noise=False)
    np.testing.assert_allclose(found.q[found.visits == 1], 4.0, rtol=1e-3)
    assert (found.visits == 1).any()


@pytest.mark.parametrize(("bootstrap", "rows"), [("target", 4), ("search", 6)])
def test_reanalysis_covers_the_rows_that_targets_are_read_from(bootstrap: Any, rows: int) -> None:
    """Policies of 3 + 1 places; root values also in the rows that are 2 steps later."""
    flow = replace(SMALL, bootstrap=bootstrap, max_target_age=4).dataflow()
    assert flow.reanalysis is not None
    assert (flow.reanalysis.max_age, flow.reanalysis.rows) == (4, rows)


def test_halves_of_a_batch_have_the_gradient_of_the_batch_on_average() -> None:
    """Two trainers (`--trainers 2`) add gradients in this way."""

    def gradient(lanes: slice) -> Tensor:
        batch, trainer = drawn(), shaken(trainer_of(consistency_weight=2.0))
        batch.terminated[...] = False  # absorbing actions are random
        batch.observation = np.asarray(batch.observation)[:, :, lanes]
        for name in ("reward", "terminated", "truncated", "acting", "first", "valid", "weight"):
            setattr(batch, name, getattr(batch, name)[..., lanes])
        decision: Any = batch.decision
        batch.decision = {name: array[:, :, lanes] for name, array in decision.items()}
        found: list[Tensor] = []
        trainer.learner.descend = lambda name, *_: found.append(trainer.learner.flat[name].gradients.clone())  # type: ignore[method-assign]
        trainer.gradient_step(window_of(trainer, batch), 0.0)
        return torch.cat(found)

    whole, halves = gradient(slice(0, 6)), [gradient(slice(0, 3)), gradient(slice(3, 6))]
    assert whole.abs().max() > 1e-3
    torch.testing.assert_close(whole, (halves[0] + halves[1]) / 2, rtol=1e-4, atol=1e-6)
