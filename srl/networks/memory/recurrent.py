"""Actor-critics with a memory: one row at a time to decide, whole sequences to learn."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from srl.base.tree import map_tree


class Sequence(NamedTuple):
    """T rows of B lanes, time-major, with the memory that each lane had before the first of them."""

    observation: Any  # tree of [T*B, ...]
    first: Tensor  # [T, B] bool: the memory begins anew
    state: Tensor  # [B, S]
    rows: Tensor  # [N]: which of the T*B rows are asked for


class Memory(Protocol):
    num_features: int
    state_size: int

    def step(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]: ...

    def unroll(self, features: Tensor, state: Tensor, first: Tensor) -> Tensor: ...


class RecurrentActorCritic(nn.Module):
    """An encoder, a memory, and heads on what the memory puts out. Encoder and heads see all rows of a sequence at
    once; only the memory goes through them one by one."""

    def __init__(self, encoder: nn.Module, memory: nn.Module, heads: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.memory: Any = memory  # a Memory
        self.heads = heads
        self.state_size = state_size_of(memory)

    def forward(self, observation: Any, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        output, state = self.memory.step(self.encoder(observation), state)
        parameters, value = self.heads(output)
        return parameters, value, state

    def unroll(self, sequence: Sequence) -> tuple[Tensor, Tensor]:
        features = self.encoder(sequence.observation)
        features = features.view(*sequence.first.shape, -1)  # [T, B, F]
        outputs = self.memory.unroll(features, sequence.state, sequence.first)
        result: tuple[Tensor, Tensor] = self.heads(outputs.flatten(0, 1).index_select(0, sequence.rows))
        return result


def state_size_of(network: nn.Module) -> int:
    """Numbers that a network keeps for each lane; 0 for one without memory."""
    return int(getattr(network, "state_size", 0))


def forget(state: Tensor, first: Tensor) -> Tensor:
    """The memory [B, S] before a row, empty where `first` [B] says that an episode begins."""
    return state.masked_fill(first[:, None], 0.0)


def unroll(network: nn.Module, sequence: Sequence) -> tuple[Tensor, Tensor]:
    """Parameters [N, n] and values [N] of the rows that are asked for. A network that cannot do it by itself is called
    row by row."""
    if isinstance(network, RecurrentActorCritic):
        return network.unroll(sequence)
    num_rows, num_lanes = sequence.first.shape
    state = sequence.state
    outputs: list[tuple[Tensor, Tensor]] = []
    for t in range(num_rows):
        lanes = slice(t * num_lanes, (t + 1) * num_lanes)
        observation = map_tree(lambda tensor, lanes=lanes: tensor[lanes], sequence.observation)
        parameters, value, state = network(observation, forget(state, sequence.first[t]))
        outputs.append((parameters, value))
    parameters, value = (torch.cat(column).index_select(0, sequence.rows) for column in zip(*outputs, strict=True))
    return parameters, value
