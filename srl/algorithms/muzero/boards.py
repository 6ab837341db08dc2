"""The network of MuZero for boards: residual convolutions, whose latent states have the shape of the board."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from srl.algorithms.alphazero.board import BOARD, board_of
from srl.algorithms.alphazero.config import TO_PLAY
from srl.algorithms.muzero.config import MuZeroConfig
from srl.algorithms.muzero.network import MuZeroNetwork
from srl.algorithms.training.devices import fetch
from srl.api.spaces import Box, Space
from srl.base.tree import Array
from srl.networks.encoders.images import WideLinear
from srl.networks.parameters import orthogonal_layers
from srl.search import Evaluation, MLPModelConfig, Step

GAIN = math.sqrt(2.0)


class BoardPlanes(nn.Module):
    """Maps observations to planes [B, P + 1, rows, columns] with one for the player to move."""

    def forward(self, seen: Any) -> Tensor:
        parts = seen if isinstance(seen, dict) else {BOARD: seen}
        board = parts[BOARD].float()
        mover = parts[TO_PLAY].float() if TO_PLAY in parts else board.new_zeros(len(board))
        return torch.cat((board, mover[:, None, None, None].expand(-1, 1, *board.shape[2:])), 1)


class ResidualBoard(nn.Module):
    """A convolution and residual blocks without normalization, from planes [B, P, rows, columns] to [B, C, ...]. The
    last convolution of each block begins at 0."""

    def __init__(self, planes: int, channels: int, num_blocks: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(planes, channels, 3, padding=1)
        self.blocks = nn.ModuleList([nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2 * num_blocks)])
        orthogonal_layers(GAIN, self.first, *self.blocks[::2])
        orthogonal_layers(0.0, *self.blocks[1::2])

    def forward(self, planes: Tensor, more: Tensor | None = None) -> Tensor:
        """Add `more` [B, C, ...] after the first convolution."""
        hidden: Tensor = self.first(planes)
        hidden = (hidden if more is None else hidden + more).relu()
        for one, two in zip(self.blocks[::2], self.blocks[1::2], strict=True):
            hidden = (hidden + two(one(hidden).relu())).relu()
        return hidden


class BoardRepresentation(nn.Module):
    """Maps planes to latent states [B, C * rows * columns], before they are bounded."""

    def __init__(self, planes: int, channels: int, num_blocks: int) -> None:
        super().__init__()
        self.body = ResidualBoard(planes, channels, num_blocks)
        self.last = nn.Conv2d(channels, channels, 1)
        orthogonal_layers(1.0, self.last)

    def forward(self, planes: Tensor) -> Tensor:
        found: Tensor = self.last(self.body(planes)).flatten(1)
        return found


class BoardDynamics(nn.Module):
    """Maps latent states and actions to the next latent states, before they are bounded: the state, and a change. An
    action is a plane that marks its cell or column, if there is one for each; else it adds a number to each channel."""

    def __init__(self, channels: int, num_blocks: int, side: tuple[int, int], num_actions: int) -> None:
        super().__init__()
        self.side, self.channels = side, channels
        rows, columns = side
        planes = torch.zeros(num_actions, 1, rows, columns)
        if num_actions == rows * columns:
            planes = torch.eye(num_actions).view(num_actions, 1, rows, columns)
        elif num_actions == columns:
            planes = torch.eye(columns)[:, None, None].expand(-1, 1, rows, -1).contiguous()
        self.register_buffer("planes", planes, persistent=False)
        self.numbers = nn.Parameter(torch.zeros(num_actions, channels))
        nn.init.normal_(self.numbers, std=0.5)
        self.body = ResidualBoard(channels + 1, channels, num_blocks)
        self.last = nn.Conv2d(channels, channels, 1)
        orthogonal_layers(1.0, self.last)

    planes: Tensor

    def forward(self, latent: Tensor, action: Tensor) -> Tensor:
        board = latent.view(-1, self.channels, *self.side)
        inputs = torch.cat((board, self.planes.index_select(0, action)), 1)
        change = self.last(self.body(inputs, self.numbers.index_select(0, action)[:, :, None, None]))
        return latent + change.flatten(1)  # type: ignore[no-any-return]


class BoardPrediction(nn.Module):
    """Maps latent states to logits of the policy, of the bins of values and of those of rewards, side by side."""

    def __init__(self, channels: int, side: tuple[int, int], num_outputs: int) -> None:
        super().__init__()
        self.side, self.channels = side, channels
        self.first = nn.Conv2d(channels, 8, 1)
        self.hidden = WideLinear(8 * math.prod(side), 64)
        self.heads = WideLinear(64, num_outputs)
        orthogonal_layers(GAIN, self.first, self.hidden)
        orthogonal_layers(0.0, self.heads)

    def forward(self, latent: Tensor) -> Tensor:
        board = latent.view(-1, self.channels, *self.side)
        found: Tensor = self.heads(self.hidden(self.first(board).relu().flatten(1)).relu())
        return found


class BoardMuZeroNetwork(MuZeroNetwork):
    """MuZero's network for a board."""

    def __init__(self, model: MLPModelConfig, board: Box, num_blocks: int, mask_key: str) -> None:
        self._planes, self._side, self._num_blocks = board.shape[0], (board.shape[1], board.shape[2]), num_blocks
        super().__init__(model, BoardPlanes(), mask_key)

    def _build_parts(self, model: MLPModelConfig) -> None:
        side, blocks = self._side, self._num_blocks
        channels = model.latent_size // math.prod(side)
        self.representation = BoardRepresentation(self._planes + 1, channels, blocks)
        self.dynamics = BoardDynamics(channels, blocks, side, model.num_actions)
        self.prediction = BoardPrediction(channels, side, model.num_actions + 2 * model.num_bins)

    @property
    def num_compiled(self) -> int:
        return 0

    def compiled(self, parameters: Array) -> BoardModel:
        return BoardModel(self)

    def imagine(self, latent: Tensor, action: Tensor) -> Tensor:
        return self.dynamics(latent, action).tanh()  # type: ignore[no-any-return]


def build_board_network(
    observation: Space, model: MLPModelConfig, config: MuZeroConfig, mask_key: str
) -> BoardMuZeroNetwork:
    """Build the network for observations without masks; `model` has what does not depend on the board."""
    board = board_of(observation)
    assert isinstance(board, Box)
    size = config.channels * math.prod(board.shape[1:])
    return BoardMuZeroNetwork(replace(model, latent_size=size), board, config.blocks, mask_key)


class BoardModel:
    """The network as the model of a search: one call for the lanes of a simulation."""

    def __init__(self, network: BoardMuZeroNetwork) -> None:
        self._network = network

    def root(self, planes: Array) -> Evaluation:
        network = self._network
        with torch.inference_mode():
            latent = network.representation(torch.from_numpy(planes).to(network.bins.device)).tanh()
            policy, value, _ = network.predict(latent)
            return Evaluation(latent, fetch(network.mean(value)).numpy(), fetch(policy).numpy())

    def __call__(self, state: Tensor, action: Tensor) -> Step:
        network = self._network
        with torch.inference_mode():
            latent = network.imagine(state, action.long())
            policy, *bins = network.predict(latent)
            value, reward = fetch(network.mean(torch.stack(bins))).numpy()
        return Step(latent, reward, network.model.discount, value, fetch(policy).numpy())
