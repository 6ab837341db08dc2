"""Actor-critics with memory, and the sequences of rows that train them."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from srl.base.tree import map_tree
from srl.networks.network import Network, Wrapper


class Sequence(NamedTuple):
    """T rows of B lanes, time-major, with each lane's memory before the first row."""

    observation: Any  # tree of [T*B, ...]
    first: Tensor  # [T, B] bool: the memory is empty before this row
    state: Tensor  # [B, S]
    rows: Tensor  # [N]: indices into T*B of the rows whose outputs are needed


class Memory(Protocol):
    """A recurrent layer."""

    num_features: int
    state_size: int

    def step(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output [B, H] and the new state [B, S] for one row: features [B, F] and state [B, S]."""

    def unroll(self, features: Tensor, state: Tensor, first: Tensor) -> Tensor:
        """Return outputs [T, B, H] for features [T, B, F], initial state [B, S] and episode starts `first` [T, B]."""

    def final_state(self, features: Tensor, state: Tensor, first: Tensor) -> Tensor:
        """Return the memory [B, S] after these rows. Called without gradients."""


class RecurrentActorCritic(Wrapper):
    """An encoder, a memory, and heads on the memory's output. Encoder and heads process all rows of a sequence at once;
    only the memory processes them one by one."""

    def __init__(self, encoder: nn.Module, memory: Memory, heads: Network) -> None:
        super().__init__()
        self.encoder = encoder
        self.memory = memory
        self.network = heads
        self.state_size = self.memory.state_size

    def forward(self, observation: Any, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        output, state = self.memory.step(self.encoder(observation), state)
        parameters, value = self.network(output)
        return parameters, value, state

    def unroll(self, sequence: Sequence) -> tuple[Tensor, Tensor]:
        features = self.encoder(sequence.observation)
        features = features.view(*sequence.first.shape, -1)  # [T, B, F]
        outputs = self.memory.unroll(features, sequence.state, sequence.first)
        result: tuple[Tensor, Tensor] = self.network(outputs.flatten(0, 1).index_select(0, sequence.rows))
        return result


def reset_state(state: Tensor, first: Tensor) -> Tensor:
    """Return the memory [B, S], cleared where an episode starts (`first` [B])."""
    return state.masked_fill(first[:, None], 0.0)


def unroll(network: nn.Module, sequence: Sequence) -> tuple[Tensor, Tensor]:
    """Return parameters [N, n] and values [N] for `sequence.rows`. A custom network is called row by row."""
    if isinstance(network, RecurrentActorCritic):
        return network.unroll(sequence)
    num_rows, num_lanes = sequence.first.shape
    state = sequence.state
    outputs: list[tuple[Tensor, Tensor]] = []
    for t in range(num_rows):
        row = slice(t * num_lanes, (t + 1) * num_lanes)
        observation = map_tree(lambda tensor, row=row: tensor[row], sequence.observation)
        parameters, value, state = network(observation, reset_state(state, sequence.first[t]))
        outputs.append((parameters, value))
    parameters, value = (torch.cat(column).index_select(0, sequence.rows) for column in zip(*outputs, strict=True))
    return parameters, value
