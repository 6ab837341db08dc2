"""Building networks: seeds, the user's own, and the messages when that one is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from srl.algorithms.ppo import PPOConfig
from srl.api.spaces import Box, Dict, Discrete, Space
from srl.networks.build import build_network
from srl.networks.flat import FlatParameters
from srl.networks.heads import distribution_for
from srl.networks.options import NetworkOptions

OWN = """
import torch

class Own(torch.nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.policy, self.value = torch.nn.Linear(4, outputs), torch.nn.Linear(4, 1)

    def forward(self, observation):
        return self.policy(observation), self.value(observation)[:, 0]

class Wide(Own):
    def forward(self, observation):
        return self.policy(observation), self.value(observation)

class Single(Own):
    def forward(self, observation):
        return self.policy(observation)

def good(observation, action): return Own(action.n)
def wrong_size(observation, action): return Own(action.n + 1)
def wide_value(observation, action): return Wide(action.n)
def single(observation, action): return Single(action.n)
def no_module(observation, action): return 3
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return str(path)


def test_the_same_seed_gives_the_same_weights_and_leaves_the_global_generator_alone() -> None:
    def build(seed: int) -> Tensor:
        network = build_network(Box((4,)), Discrete(2), distribution_for(Discrete(2)), NetworkOptions(), seed)
        return FlatParameters(network, gradients=False).values

    torch.manual_seed(5)
    before = torch.get_rng_state()
    assert torch.equal(build(1), build(1))
    assert not torch.equal(build(1), build(2))
    assert torch.equal(torch.get_rng_state(), before)


def test_images_beside_vectors_share_one_body() -> None:
    observation = Dict({"camera": Box((3, 40, 40), "uint8"), "speed": Box((2,))})
    action = Box((2,))
    distribution = distribution_for(action)
    network = build_network(observation, action, distribution, NetworkOptions(), 0)
    tree = {"camera": torch.zeros(3, 3, 40, 40, dtype=torch.uint8), "speed": torch.zeros(3, 2)}
    parameters, value = network(tree)
    assert parameters.shape == (3, 4)
    assert value.shape == (3,)


def test_an_own_network_is_found_by_its_file(own: str) -> None:
    config = PPOConfig(network=f"{own}:good")
    config.check(Box((4,)), Discrete(3))
    trainer, again = (config.build_trainer(Box((4,)), Discrete(3), seed=4) for _ in range(2))
    assert trainer.parameters().shape == (4 * 3 + 3 + 4 + 1,)
    assert trainer.parameters().tobytes() == again.parameters().tobytes()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("wrong_size", r"parameters \[B, 3\].*it returned float32 \[2, 4\]"),
        ("wide_value", r"value \[B\].*float32 \[2, 1\]"),
        ("single", r"must return \(distribution parameters, value\), found float32 \[2, 3\]"),
        ("no_module", r"returned int, wanted a torch.nn.Module"),
        ("missing", r"has no 'missing'"),
    ],
)
def test_a_wrong_own_network_is_refused_before_anything_runs(own: str, function: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PPOConfig(network=f"{own}:{function}").check(Box((4,)), Discrete(3))


@pytest.mark.parametrize(
    "network", [nn.BatchNorm1d(3), nn.Linear(2, 2).double(), nn.Identity()], ids=["buffers", "float64", "empty"]
)
def test_a_network_whose_weights_would_not_travel_is_refused(network: nn.Module) -> None:
    with pytest.raises(ValueError, match="float32 parameters and no persistent buffers"):
        FlatParameters(network, gradients=True)


@pytest.mark.parametrize("action", [Dict({"a": Box((2,), "uint8")}), Box((2,), "uint8")], ids=str)
def test_check_names_an_unsupported_action_space(action: Space) -> None:
    with pytest.raises(ValueError, match="no distribution for the action space"):
        PPOConfig().check(Box((4,)), action)
