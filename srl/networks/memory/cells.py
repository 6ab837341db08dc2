"""Memories: what a recurrent network keeps from one row to the next, as one vector [B, S] for each lane."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from srl.networks.initialize import orthogonal
from srl.networks.memory.passes import gru_pass, lstm_pass

MEMORIES = ("gru", "lstm")


class Gru(nn.Module):
    def __init__(self, num_inputs: int, size: int) -> None:
        super().__init__()
        self.num_features = self.state_size = size
        self.input_weight = _weight(3, num_inputs, size)
        self.weight = _weight(3, size, size)
        self.input_bias = nn.Parameter(torch.zeros(3 * size))
        self.bias = nn.Parameter(torch.zeros(3 * size))

    def step(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One row: features [B, F], state [B, S] -> output [B, H], state [B, S]."""
        gates, content = self._split(functional.linear(features, self.input_weight, self.input_bias))
        more, candidate = self._split(functional.linear(state, self.weight, self.bias))
        reset, update = torch.sigmoid(gates + more).chunk(2, dim=1)
        content = torch.tanh(content + reset * candidate)
        output = content + update * (state - content)
        return output, output

    def _split(self, projected: Tensor) -> tuple[Tensor, ...]:
        return torch.split(projected, [2 * self.num_features, self.num_features], dim=1)

    def unroll(self, features: Tensor, state: Tensor, first: Tensor) -> Tensor:
        """Many rows: features [T, B, F], state [B, S], first [T, B] -> outputs [T, B, H]."""
        inputs = functional.linear(features, self.input_weight, self.input_bias)
        outputs: Tensor = gru_pass(inputs, state, _keep(first), self.weight, self.bias)
        return outputs


class Lstm(nn.Module):
    """Its state is the output and the cell, side by side."""

    def __init__(self, num_inputs: int, size: int) -> None:
        super().__init__()
        self.num_features, self.state_size = size, 2 * size
        self.input_weight = _weight(4, num_inputs, size)
        self.weight = _weight(4, size, size)
        bias = torch.zeros(4, size)
        bias[1] = 1.0  # remember, until something says otherwise
        self.input_bias = nn.Parameter(bias.flatten())
        self.bias = nn.Parameter(torch.zeros(4 * size))

    def step(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        hidden, cell = state.chunk(2, dim=1)
        gates = functional.linear(features, self.input_weight, self.input_bias)
        gates = gates.add_(functional.linear(hidden, self.weight, self.bias))
        entry, forget, output, content = gates.chunk(4, dim=1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(entry) * torch.tanh(content)
        hidden = torch.sigmoid(output) * torch.tanh(cell)
        return hidden, torch.cat((hidden, cell), dim=1)

    def unroll(self, features: Tensor, state: Tensor, first: Tensor) -> Tensor:
        inputs = functional.linear(features, self.input_weight, self.input_bias + self.bias)
        outputs: Tensor = lstm_pass(inputs, state, _keep(first), self.weight)
        return outputs


class PairedMemory(nn.Module):
    """Two memories side by side: each sees its half of the features."""

    def __init__(self, actor: Gru | Lstm, critic: Gru | Lstm) -> None:
        super().__init__()
        self.actor, self.critic = actor, critic
        self.num_features = actor.num_features + critic.num_features
        self.state_size = actor.state_size + critic.state_size

    def step(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        outputs, states = zip(
            *(
                part.step(*pair)
                for part, pair in zip((self.actor, self.critic), self._halves(features, state), strict=True)
            ),
            strict=True,
        )
        return torch.cat(outputs, dim=1), torch.cat(states, dim=1)

    def unroll(self, features: Tensor, state: Tensor, first: Tensor) -> Tensor:
        pairs = zip((self.actor, self.critic), self._halves(features, state), strict=True)
        return torch.cat([part.unroll(*pair, first) for part, pair in pairs], dim=2)

    def _halves(self, features: Tensor, state: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
        return tuple(zip(features.chunk(2, dim=-1), state.chunk(2, dim=1), strict=True))


def build_memory(kind: str, num_inputs: int, size: int) -> Gru | Lstm:
    return Gru(num_inputs, size) if kind == "gru" else Lstm(num_inputs, size)


def _weight(num_gates: int, num_inputs: int, size: int) -> nn.Parameter:
    weight = torch.empty(num_gates, size, num_inputs)
    for gate in weight:
        orthogonal(gate, 1.0)
    return nn.Parameter(weight.flatten(0, 1))


def _keep(first: Tensor) -> Tensor:
    """first [T, B] -> 1 where the memory is kept, 0 where it begins anew, [T, B, 1]."""
    return first.logical_not().float()[..., None]
