"""The value prefix: what the network learns, and the rewards that a search gets from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from algorithms.test_muzero import ARMS, SEEN, SMALL, drawn, fresh, observations, shaken

from srl.algorithms.muzero.prefix import PrefixModel, PrefixNetwork
from srl.algorithms.muzero.targets import bin_loss
from srl.algorithms.muzero.trainer import MuZeroTrainer
from srl.api.spaces import Box, Dict, Discrete
from srl.testing import check_algorithm
from srl.testing.findings import has_errors

PREFIX = replace(SMALL, value_prefix=True, unroll=7, simulations=12)


def trainer_of() -> MuZeroTrainer:
    trainer = PREFIX.build_trainer(SEEN, ARMS, 1)
    assert isinstance(trainer, MuZeroTrainer)
    return shaken(trainer)


def test_the_contract_of_algorithms_holds() -> None:
    findings = check_algorithm(PREFIX, SEEN, ARMS)
    assert not has_errors(findings), findings


def test_sums_begin_again_after_five_steps() -> None:
    network: Any = trainer_of()._network
    reward = torch.tensor([[1.0], [2.0], [3.0], [4.0], [5.0], [6.0], [7.0]])
    assert network.reward_targets(reward).flatten().tolist() == [1.0, 3.0, 6.0, 10.0, 15.0, 6.0, 13.0]
    latents = torch.randn(7, 2, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found = network.reward_logits(latents, latents)
        assert torch.allclose(found[5:], network.reward_logits(latents[5:], latents[5:]))
        assert not torch.allclose(found[1:], network.reward_logits(latents[1:], latents[1:]))


@torch.no_grad()
def test_a_search_gets_the_differences_of_the_sums_that_training_unrolls() -> None:
    network = trainer_of()._network
    assert isinstance(network, PrefixNetwork)
    model, seen = PrefixModel(network), torch.from_numpy(observations(4))
    actions = torch.tensor([[0, 1, 2, 1]]).repeat(7, 1)
    latents, latent = [], network.represent(seen)
    for action in actions:
        latent = network.imagine(latent, action)
        latents.append(latent)
    sums = network.mean(network.reward_logits(torch.stack(latents), torch.stack(latents))).numpy()
    state, found = model.root(seen.numpy()).state, []
    for action in actions:
        step = model(state, action)
        state = step.state
        found.append(step.reward)
    expected = sums.copy()
    expected[1:5] -= sums[:4]
    expected[6:] -= sums[5:6]
    assert np.array(found) == pytest.approx(expected, abs=1e-5)


def test_the_loss_is_that_of_the_sums() -> None:
    trainer = trainer_of()
    batch = drawn()
    longer: dict[str, Any] = {name: np.concatenate((getattr(batch, name),) * 2, 1) for name in (
        "reward", "terminated", "truncated", "acting", "first", "valid", "observation")}  # fmt: skip
    batch = replace(batch, **longer)
    batch.decision = {name: np.concatenate((np.asarray(part),) * 2, 1) for name, part in batch.decision.items()}
    window = trainer.minibatch(batch, 0, trainer.learner.device)
    changed = window._replace(reward=window.reward + torch.tensor([1.0, -1.0, 0, 0, 0, 0, 0])[:, None])
    with torch.no_grad():
        latents = trainer._unroll(window)
        logits = trainer._network.reward_logits(latents[1:], latents[1:])
    assert logits.shape == (7, 6, SMALL.num_bins)
    sums = [trainer._network.reward_targets(one.reward) for one in (window, changed)]
    assert torch.allclose(sums[0][1:], sums[1][1:], atol=1e-5), "a reward a step later is almost the same sum"
    metrics, _ = trainer.gradient_step(window, 0.0)
    scale = window.weight / (7 * len(window.weight))
    expected = (bin_loss(logits, sums[0], SMALL.bin_width) * window.has_reward * scale).sum()
    assert float(metrics["reward_loss"].detach()) == pytest.approx(float(expected), rel=1e-4)


def test_searches_do_not_depend_on_the_other_lanes() -> None:
    policy = PREFIX.build_policy(SEEN, ARMS, 2)
    policy.load(trainer_of().parameters(), 0)
    rows = observations(5)
    together = policy.act(rows, None, fresh(5), greedy=True)
    alone = [np.asarray(policy.act(rows[i : i + 1], None, fresh(1), greedy=True)["policy"]) for i in range(5)]
    np.testing.assert_allclose(np.asarray(together["policy"]), np.concatenate(alone), rtol=1e-3, atol=1e-4)


def test_games_boards_and_samples_have_no_prefix() -> None:
    board = Dict({"board": Box((2, 3, 3)), "to_play": Discrete(2)})
    for observation, config in ((SEEN, replace(PREFIX, sampled_actions=4)), (board, PREFIX)):
        with pytest.raises(ValueError, match="value_prefix is for one player"):
            config.check(observation, Discrete(9))
