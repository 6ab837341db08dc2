"""The hand-written passes against autograd."""

from __future__ import annotations

import pytest
import torch

from srl.api.spaces import Box, Dict, Discrete
from srl.networks.actor_critic import EncodedActorCritic, StackedActorCritic
from srl.networks.backpropagation import AutogradPass, StackedPass, build_pass
from srl.networks.encoders.build import build_encoder
from srl.networks.parameters import FlatParameters


def make(hidden: tuple[int, ...], activation: str, num_free: int) -> tuple[EncodedActorCritic, FlatParameters]:
    encoder = build_encoder(Dict({"a": Box((3,)), "b": Discrete(2)}))
    network = EncodedActorCritic(encoder, StackedActorCritic(5, hidden, activation, 4, num_free))
    flat = FlatParameters(network, gradients=True)
    torch.nn.init.normal_(flat.values)
    return network, flat


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize(("hidden", "num_free"), [((5,), 0), ((6, 4), 2), ((4, 6), 0), ((3, 5, 4), 1)])
def test_the_stacked_pass_gives_the_gradient_of_autograd(
    activation: str, hidden: tuple[int, ...], num_free: int
) -> None:
    network, flat = make(hidden, activation, num_free)
    fast, plain = build_pass(network, flat.gradients), AutogradPass(network, flat.gradients)
    assert isinstance(fast, StackedPass)
    flat.gradients.fill_(torch.nan)  # gradients that are not written stay NaN
    for rows in (7, 7, 3, 9):  # buffers are reused, sliced and enlarged
        observation = {"a": torch.randn(rows, 3), "b": torch.randint(0, 2, (rows,))}
        outer = torch.randn(rows, 4), torch.randn(rows)
        outputs = [tensor.clone() for tensor in fast.forward(observation)]
        fast.backward(*outer)
        found = flat.gradients.clone()
        torch.testing.assert_close(outputs, list(plain.forward(observation)))
        plain.backward(*outer)
        torch.testing.assert_close(found, flat.gradients, rtol=1e-4, atol=1e-5)


def test_passes_see_new_parameters_at_once() -> None:
    network, flat = make((4,), "tanh", 0)
    fast = build_pass(network, flat.gradients)
    observation = {"a": torch.ones(2, 3), "b": torch.zeros(2, dtype=torch.int64)}
    flat.load(torch.zeros_like(flat.values))
    assert not fast.forward(observation)[1].any()
    flat.load(torch.ones_like(flat.values))
    assert fast.forward(observation)[1].all()


def test_any_other_network_goes_through_autograd() -> None:
    network = torch.nn.Linear(2, 2)
    assert isinstance(build_pass(network, torch.zeros(6)), AutogradPass)
