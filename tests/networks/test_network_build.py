"""Building networks: seeds, the user's own, and the messages when that one is wrong."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from srl.algorithms.ppo.config import PPOConfig
from srl.api.spaces import Box, Dict, Discrete, Space
from srl.networks.build import build_network, distribution_for
from srl.networks.options import NetworkOptions
from srl.networks.parameters import FlatParameters

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


@pytest.mark.parametrize("options", [{}, {"std": "state"}, {"towers": "shared"}, {"memory": "gru", "std": "state"}])
@pytest.mark.parametrize("box", ["clipped", "squashed"])
def test_deviations_start_at_initial_std(options: dict[str, Any], box: Literal["clipped", "squashed"]) -> None:
    action = Dict({"aim": Box((2,), low=-1.0, high=1.0), "key": Discrete(3), "push": Box((1,), low=-1.0, high=1.0)})
    config = PPOConfig(initial_std=0.25, box=box, **options)
    network, distribution = config.build_network(Box((4,)), action, seed=0)
    state = [torch.zeros(1, config.state_size)] if config.memory != "none" else []
    parameters, *_ = network(torch.zeros(1, 4), *state)
    # The network's own come part by part (2 + 2 of aim, 3 of key, 1 + 1 of push), the free ones last.
    log_stds = [2, 3, 8] if config.std == "state" else [6, 7, 8]
    wanted = torch.zeros(1, distribution.num_parameters)
    wanted[0, log_stds] = math.log(0.25)
    torch.testing.assert_close(parameters, wanted, atol=1e-6, rtol=0.0)


@pytest.mark.parametrize("initial_std", [0.0, -1.0, math.nan, math.inf])
def test_deviations_start_positive(initial_std: float) -> None:
    with pytest.raises(ValueError, match="initial_std must be a positive number"):
        PPOConfig(initial_std=initial_std)


def test_state_dependent_deviations_start_within_their_limits() -> None:
    with pytest.raises(ValueError, match=r"between 0.0067 and 7.4.*found 0.001"):
        PPOConfig(std="state", initial_std=0.001)


def test_images_beside_vectors_share_one_body() -> None:
    observation = Dict({"camera": Box((3, 40, 40), "uint8"), "speed": Box((2,))})
    action = Box((2,))
    distribution = distribution_for(action)
    network = build_network(observation, action, distribution, NetworkOptions(), 0)
    tree = {"camera": torch.zeros(3, 3, 40, 40, dtype=torch.uint8), "speed": torch.zeros(3, 2)}
    parameters, value = network(tree)
    assert parameters.shape == (3, 4)
    assert value.shape == (3,)


def test_a_custom_network_is_found_by_its_file(own: str) -> None:
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
        ("no_module", r"must return a torch.nn.Module, found int"),
        ("missing", r"has no 'missing'"),
        ("Single", r"is called with the observation and the action space: too many positional arguments"),
    ],
)
def test_a_wrong_custom_network_is_refused_before_anything_runs(own: str, function: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PPOConfig(network=f"{own}:{function}").check(Box((4,)), Discrete(3))


@pytest.mark.parametrize(
    "network", [nn.BatchNorm1d(3), nn.Linear(2, 2).double(), nn.Identity()], ids=["buffers", "float64", "empty"]
)
def test_a_network_whose_weights_cannot_be_published_is_refused(network: nn.Module) -> None:
    with pytest.raises(ValueError, match="float32 parameters and no persistent buffers"):
        FlatParameters(network, gradients=True)


@pytest.mark.parametrize("action", [Dict({"a": Box((2,), "uint8")}), Box((2,), "uint8")], ids=str)
def test_check_names_an_unsupported_action_space(action: Space) -> None:
    with pytest.raises(ValueError, match="no distribution for the action space"):
        PPOConfig().check(Box((4,)), action)
