"""GRU and LSTM: torch's own in numbers and gradients, with resets in the middle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from srl.networks.memory.gru_lstm import Gru, Lstm, PairedMemory
from srl.networks.memory.recurrent import Memory, RecurrentActorCritic, Sequence, reset_state, unroll
from srl.networks.network import Network

T, B, F, H = 7, 5, 3, 4


def as_torch_orders(memory: Gru | Lstm, weight: Tensor) -> Tensor:
    """Our LSTM has its content last, torch's its output."""
    return torch.cat([weight.chunk(4)[i] for i in (0, 1, 3, 2)]) if isinstance(memory, Lstm) else weight


def grad(tensor: Tensor) -> Tensor:
    assert tensor.grad is not None
    return tensor.grad


@pytest.mark.parametrize("kind", [Gru, Lstm])
def test_outputs_and_gradients_equal_those_of_torch(kind: type[Gru] | type[Lstm]) -> None:
    torch.manual_seed(0)
    ours = kind(F, H)
    theirs: Any = (nn.GRU if kind is Gru else nn.LSTM)(F, H)
    ours.bias.data.normal_()
    ours.input_bias.data.normal_()
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(as_torch_orders(ours, ours.input_weight))
        theirs.weight_hh_l0.copy_(as_torch_orders(ours, ours.weight))
        theirs.bias_hh_l0.copy_(as_torch_orders(ours, ours.bias))
        theirs.bias_ih_l0.copy_(as_torch_orders(ours, ours.input_bias))
    features, factor = torch.randn(T, B, F, requires_grad=True), torch.randn(T, B, H)
    state = torch.randn(B, ours.state_size, requires_grad=True)
    outputs = ours.unroll(features, state, torch.zeros(T, B, dtype=torch.bool))
    (outputs * factor).sum().backward()
    found = [features.grad, state.grad, *(as_torch_orders(ours, grad(w)) for w in (ours.weight, ours.input_weight))]
    features.grad = state.grad = None
    hidden = [part.contiguous()[None] for part in state.split(H, 1)]
    wanted, _ = theirs(features, hidden[0] if kind is Gru else tuple(hidden))
    (wanted * factor).sum().backward()
    torch.testing.assert_close(outputs, wanted)
    grads = [features.grad, state.grad, theirs.weight_hh_l0.grad, theirs.weight_ih_l0.grad]
    for one, other in zip(found, grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(as_torch_orders(ours, grad(ours.bias)), theirs.bias_hh_l0.grad, rtol=1e-4, atol=1e-5)


def build(kind: str) -> RecurrentActorCritic:
    torch.manual_seed(1)
    memories: dict[str, Callable[[], Memory]] = {
        "gru": lambda: Gru(F, H),
        "lstm": lambda: Lstm(F, H),
        "pair": lambda: PairedMemory(Gru(F - 2, H), Gru(F - 2, H)),
    }
    width = 2 if kind == "pair" else F
    memory = memories[kind]()

    class Heads(Network):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(memory.num_features, 3)

        def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
            outputs = self.linear(features)
            return outputs[:, :2], outputs[:, 2]

    return RecurrentActorCritic(nn.Linear(2, width), memory, Heads())


class RowByRow(nn.Module):
    """Hides what a network can do by itself."""

    def __init__(self, network: RecurrentActorCritic) -> None:
        super().__init__()
        self.network = network

    def forward(self, observation: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        parameters, value, state = self.network(observation, state)
        return parameters, value, state


@pytest.mark.parametrize("rows", [1, T])
@pytest.mark.parametrize("kind", ["gru", "lstm", "pair"])
def test_a_sequence_with_resets_is_the_same_as_its_rows_one_by_one(kind: str, rows: int) -> None:
    network = build(kind)
    observation, first = torch.randn(rows * B, 2), torch.rand(rows, B) < 0.3
    state = torch.randn(B, network.state_size)
    asked = torch.arange(0, rows * B, 2)
    sequence = Sequence(observation, first, state, asked)
    grads = []
    outputs = []
    for one in (network, RowByRow(network)):
        network.zero_grad()
        parameters, value = unroll(one, sequence)
        (parameters.square().sum() + value.sum()).backward()
        outputs.append((parameters, value))
        grads.append([grad(tensor).clone() for tensor in network.parameters()])
    for found, wanted in zip(outputs[0] + tuple(grads[0]), outputs[1] + tuple(grads[1]), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_the_memory_is_empty_where_an_episode_starts() -> None:
    state = reset_state(torch.tensor([[1.0, float("nan")], [2.0, 3.0]]), torch.tensor([True, False]))
    assert state.tolist() == [[0.0, 0.0], [2.0, 3.0]]
