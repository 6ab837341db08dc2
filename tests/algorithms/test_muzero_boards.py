"""MuZero's residual networks for boards: what they predict, what they refuse, and runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import srl
from srl.algorithms.muzero.boards import BoardDynamics
from srl.algorithms.muzero.config import MuZeroConfig
from srl.api.spaces import Box, Discrete, Space
from srl.environments.games.boards import RowGameConfig
from srl.environments.games.config import GameConfig
from srl.testing import check_algorithm
from srl.testing.findings import has_errors

SMALL = MuZeroConfig(
    tower="residual", channels=4, blocks=1, num_bins=5, simulations=4, unroll=2, n_step=2, batch_size=16
)
GAMES = {
    "cells": RowGameConfig(3, 3, 3),
    "columns": RowGameConfig(4, 5, 3, gravity=True),
}


def spaces(game: RowGameConfig) -> tuple[Space, Space]:
    team = GameConfig(game).with_joint_seats().build(1).spec.teams[0]
    return team.observation, team.action


def shaken(network: Any) -> Any:
    with torch.no_grad():
        for number, parameter in enumerate(network.parameters()):
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
    return network


@pytest.mark.parametrize("game", GAMES.values(), ids=GAMES)
def test_the_contract_of_algorithms_holds(game: RowGameConfig) -> None:
    findings = check_algorithm(SMALL, *spaces(game))
    assert not has_errors(findings), findings


@pytest.mark.parametrize(("side", "num_actions"), [((2, 3), 6), ((2, 3), 3), ((2, 3), 5)])
def test_actions_mark_their_cell_or_column_or_are_numbers(side: tuple[int, int], num_actions: int) -> None:
    dynamics = BoardDynamics(16, 1, side, num_actions)
    planes = dynamics.planes[:, 0]
    if num_actions == 6:
        assert torch.equal(planes.flatten(1), torch.eye(6))
    elif num_actions == 3:
        assert torch.equal(planes, torch.eye(3)[:, None].expand(3, 2, 3))
    else:
        assert not planes.any()
    latent = torch.zeros(num_actions, 96)
    after = dynamics(latent, torch.arange(num_actions))
    assert len(torch.unique(after.round(decimals=5), dim=0)) == num_actions


def test_the_model_of_searches_predicts_as_the_network_does() -> None:
    observation, action = spaces(GAMES["columns"])
    network = shaken(SMALL.build_network(observation, action, 0)[0])
    lanes = GameConfig(GAMES["columns"]).with_joint_seats().build(3)
    (now,) = lanes.reset(0)
    (now,) = lanes.step((np.array([0, 1, 2]),))
    observed: Any = now.observation
    seen: Any = {name: torch.from_numpy(part) for name, part in observed.items()}
    model, (rest, _) = network.compiled(np.zeros(0, np.float32)), network.split(seen)
    root = model.root(network.encoder(rest).numpy())
    step = model(root.state, torch.tensor([1, 2, 3]))
    with torch.no_grad():
        latent = network.represent(rest)
        policy, value, _ = network.predict(latent)
        later = network.imagine(latent, torch.tensor([1, 2, 3]))
        next_policy, next_value, reward = network.predict(later)
    for found, expected in (
        *((root.state, latent), (root.logits, policy), (root.value, network.mean(value)), (step.state, later)),
        *((step.logits, next_policy), (step.value, network.mean(next_value)), (step.reward, network.mean(reward))),
    ):
        np.testing.assert_allclose(np.asarray(found), expected.numpy(), rtol=1e-4, atol=1e-5)
    assert step.discount == -SMALL.gamma
    assert np.abs(step.reward).max() > 1e-4


def test_what_is_no_board_is_refused() -> None:
    with pytest.raises(ValueError, match="tower 'residual' needs a board"):
        SMALL.check(Box((4,)), Discrete(2))
    observation, action = spaces(GAMES["cells"])
    with pytest.raises(ValueError, match="states of 3600 bytes, need"):
        replace(SMALL, channels=100, search_memory_mb=1, simulations=32).check(observation, action)


def test_a_run_trains_and_evaluates(tmp_path: Path) -> None:
    options = {"tower": "residual", "channels": 4, "blocks": 1, "simulations": 2, "batch_size": 8, "unroll": 2}
    options |= {"n_step": 3, "learning_starts": 64}
    run = srl.train(
        "game:tic-tac-toe", algo="muzero", steps=160, scheduler="inline", root=tmp_path, lanes=8, muzero=options
    )
    assert len(srl.evaluate(run.path, episodes=4).returns) == 4
