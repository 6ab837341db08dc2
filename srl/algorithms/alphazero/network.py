"""Networks of AlphaZero: a tower of dense layers or convolutions, and heads for the policy and the value."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from srl.algorithms.alphazero.board import BOARD
from srl.algorithms.alphazero.config import STATE, TO_PLAY, AlphaZeroConfig
from srl.api.simulator import SimulatorSpec
from srl.api.spaces import Box, Dict, Space
from srl.networks.activations import tanh_
from srl.networks.distributions.categorical import FORBIDDEN
from srl.networks.encoders.build import build_encoder
from srl.networks.encoders.images import WideLinear
from srl.networks.network import Network
from srl.networks.parameters import orthogonal_layers

GAIN = math.sqrt(2.0)
PLANES, DENSE = 16, 64  # of a residual tower: planes that the heads see, and numbers that see all of these


class DenseTower(nn.Module):
    """An encoder of everything that the player sees, and dense layers."""

    def __init__(self, seen: Space, sizes: tuple[int, ...], activation: str) -> None:
        super().__init__()
        self.encoder = build_encoder(seen)
        self.layers = nn.ModuleList([WideLinear(a, b) for a, b in pairwise((self.encoder.num_features, *sizes))])
        self.num_features = sizes[-1]
        self.is_tanh = activation == "tanh"
        orthogonal_layers(GAIN, *self.layers)

    def forward(self, seen: Any) -> Tensor:
        hidden: Tensor = self.encoder(seen)
        for layer in self.layers:
            hidden = tanh_(layer(hidden)) if self.is_tanh else layer(hidden).relu_()
        return hidden


class ResidualTower(nn.Module):
    """Convolutions on a board with a plane for the player to move, and residual blocks (He et al. 2016) without
    normalization. The last convolution of each block begins at 0, so that deep towers begin as shallow ones."""

    def __init__(self, board: Box, channels: int, num_blocks: int) -> None:
        super().__init__()
        planes, rows, columns = board.shape
        self.first = nn.Conv2d(planes + 1, channels, 3, padding=1)
        self.blocks = nn.ModuleList([nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2 * num_blocks)])
        self.last = nn.Conv2d(channels, PLANES, 1)
        cells = PLANES * rows * columns
        self.dense = WideLinear(cells, DENSE)
        self.num_features = cells + DENSE
        orthogonal_layers(GAIN, self.first, *self.blocks[::2], self.last, self.dense)
        orthogonal_layers(0.0, *self.blocks[1::2])

    def forward(self, seen: dict[str, Tensor]) -> Tensor:
        board = seen[BOARD].float()
        if not torch.is_grad_enabled():  # faster forward, but not backward
            board = board.contiguous(memory_format=torch.channels_last)
        mover = seen[TO_PLAY].float() if TO_PLAY in seen else board.new_zeros(len(board))
        plane = mover[:, None, None, None].expand(-1, 1, *board.shape[2:])
        hidden = self.first(torch.cat((board, plane), 1)).relu_()
        for one, two in zip(self.blocks[::2], self.blocks[1::2], strict=True):
            hidden = two(one(hidden).relu_()).add_(hidden).relu_()
        cells = self.last(hidden).relu_().flatten(1)
        return torch.cat((cells, self.dense(cells).relu_()), 1)  # values depend on the whole board


class AlphaZeroNetwork(Network):
    """Maps observations to logits of the policy [B, A], without those that the mask forbids, and the value [B] for the
    player to move. The value is a share of the range of returns: tanh, scaled to [lowest, highest]."""

    def __init__(self, tower: DenseTower | ResidualTower, spec: SimulatorSpec, mask_key: str) -> None:
        super().__init__()
        self.tower = tower
        self.num_actions = spec.num_actions
        self.heads = WideLinear(tower.num_features, spec.num_actions + 1)
        orthogonal_layers(0.01, self.heads)
        self._middle, self._radius = (spec.highest + spec.lowest) / 2.0, (spec.highest - spec.lowest) / 2.0
        self.mask_key = mask_key

    def outputs(self, seen: Any, in_bfloat16: bool = False) -> tuple[Tensor, Tensor]:
        """Return logits [B, A] of all actions, and the value [B] as a share from -1 to 1. The tower may compute in
        bfloat16."""
        with torch.autocast(self.heads.weight.device.type, torch.bfloat16, enabled=in_bfloat16):
            features = self.tower(seen)
        outputs = self.heads(features.float())
        return outputs[:, : self.num_actions], outputs[:, self.num_actions].tanh()

    def forward(self, observation: Any) -> tuple[Tensor, Tensor]:
        logits, share = self.outputs(self.seen(observation))
        return self.masked(logits, observation), self.value_of(share)

    def seen(self, observation: Any) -> dict[str, Any]:
        """Return what the tower reads."""
        return {name: part for name, part in observation.items() if name not in (self.mask_key, STATE)}

    def masked(self, logits: Tensor, observation: Any) -> Tensor:
        return logits.masked_fill(observation[self.mask_key] == 0, FORBIDDEN)

    def value_of(self, share: Tensor) -> Tensor:
        return self._middle + self._radius * share

    def share_of(self, value: Tensor) -> Tensor:
        return (value - self._middle) / self._radius


def losses(logits: Tensor, share: Tensor, policy: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the losses of AlphaZero (Silver et al. 2018, eq. 1), each [B]: the cross-entropy of the search's policy,
    and the squared error of the value, as shares of the range of returns."""
    cross_entropy = -(policy * functional.log_softmax(logits, 1)).sum(1)
    return cross_entropy, (share - target).square()


def build_alphazero_network(
    observation: Space, action: Space, spec: SimulatorSpec, config: AlphaZeroConfig, seed: int
) -> AlphaZeroNetwork:
    """Build the network. The same seed gives the same weights; torch's global generator is not affected."""
    assert isinstance(observation, Dict)
    seen = {name: item for name, item in observation.items.items() if name not in (config.mask_key, STATE)}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if config.tower == "residual":
            board = seen[BOARD]
            assert isinstance(board, Box)
            tower: DenseTower | ResidualTower = ResidualTower(board, config.channels, config.blocks)
        else:
            tower = DenseTower(Dict(seen), config.hidden_sizes, config.activation)
        return AlphaZeroNetwork(tower, spec, config.mask_key)
