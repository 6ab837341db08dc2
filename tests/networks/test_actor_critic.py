"""The stacked actor-critic against two plain networks, and how weights start."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from srl.networks.actor_critic import SharedHeads, StackedActorCritic
from srl.networks.options import NetworkOptions


def plain_forward(network: StackedActorCritic, features: Tensor) -> tuple[Tensor, Tensor]:
    outputs = []
    for i in range(2):
        hidden = features
        for weight, bias in zip(network.weights, network.biases, strict=True):
            hidden = hidden @ weight[i] + bias[i]
            hidden = hidden.tanh() if network.activation == "tanh" else hidden.relu()
        outputs.append(hidden)
    parameters = outputs[0] @ network.policy_weight.t() + network.policy_bias[:, 0]
    if network.free is not None:
        parameters = torch.cat((parameters, network.free[:, 0].expand(len(features), -1)), dim=1)
    return parameters, (outputs[1] @ network.value_weight.t() + network.value_bias)[:, 0]


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize(("hidden", "num_free"), [((5,), 0), ((6, 4), 2), ((3, 5, 4), 1)])
def test_output_and_gradient_equal_those_of_plain_networks(
    activation: str, hidden: tuple[int, ...], num_free: int
) -> None:
    network = StackedActorCritic(3, hidden, activation, 4, num_free).double()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter)
    features = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(7, 4, dtype=torch.float64), torch.randn(7, dtype=torch.float64)
    inputs = [features, *network.parameters()]
    wanted = plain_forward(network, features)
    found = network(features)
    torch.testing.assert_close(found, wanted)
    for mine, theirs in zip(
        torch.autograd.grad(found, inputs, weights), torch.autograd.grad(wanted, inputs, weights), strict=True
    ):
        torch.testing.assert_close(mine, theirs)


def test_gradcheck_of_the_stack() -> None:
    network = StackedActorCritic(3, (4, 3), "tanh", 4, 2).double()
    features = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(network, (features,))


def test_weights_start_orthogonal_with_their_gains_and_the_log_std_at_zero() -> None:
    network = StackedActorCritic(8, (16, 16), "tanh", 6, 3)
    for weight in network.weights:
        for i in range(2):
            smaller = min(weight[i].shape)
            product = weight[i] @ weight[i].t() if weight[i].shape[0] == smaller else weight[i].t() @ weight[i]
            torch.testing.assert_close(product, 2.0 * torch.eye(smaller), rtol=1e-4, atol=1e-5)
    assert not torch.equal(network.weights[1][0], network.weights[1][1])
    torch.testing.assert_close(network.policy_weight.norm(dim=1), torch.full((3,), 0.01))
    assert network.value_weight.norm().item() == pytest.approx(1.0, rel=1e-5)
    for parameter in (*network.biases, network.policy_bias, network.value_bias, network.free):
        assert parameter is not None
        assert not parameter.any()
    shared = SharedHeads(16, 4, 0)
    assert shared.policy.weight.norm().item() == pytest.approx(0.01 * math.sqrt(4.0), rel=1e-4)


@pytest.mark.parametrize(("hidden", "activation"), [((), "tanh"), ((0,), "tanh"), ((4,), "sine")])
def test_impossible_sizes_and_activations_are_refused(hidden: tuple[int, ...], activation: str) -> None:
    with pytest.raises(ValueError, match=r"hidden_sizes|activation"):
        NetworkOptions(hidden_sizes=hidden, activation=activation)  # type: ignore[arg-type]
