"""Q networks with a memory."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from srl.algorithms.dqn.build import dense_body
from srl.algorithms.dqn.config import branch_sizes
from srl.algorithms.dqn.network import DenseBody, QNetwork, masked
from srl.algorithms.dqn.returns import MeanReturn
from srl.algorithms.offpolicy.normalization import normalized
from srl.algorithms.r2d2.config import R2D2Config
from srl.algorithms.r2d2.returns import unscale
from srl.api.spaces import Space
from srl.networks.encoders.build import Trunk, build_encoder
from srl.networks.encoders.entities import EntityEncoder
from srl.networks.memory.gru_lstm import build_memory
from srl.networks.memory.recurrent import Memory
from srl.networks.spaces.actions import split_mask
from srl.networks.spaces.boxes import is_lone_image


class RecurrentQNetwork(QNetwork):
    """An encoder, a memory, and a body on the memory's output. With `rescaled`, its Q values are compressed by h, but
    not the value of the best action that it returns beside them."""

    def __init__(
        self,
        encoder: nn.Module,
        memory: nn.Module,
        body: DenseBody,
        rescaled: bool,
        nvec: tuple[int, ...],
        mask_key: str,
    ) -> None:
        super().__init__(body, MeanReturn(huber=True), nvec, mask_key)
        self.encoder = encoder
        self.memory = memory
        self.rescaled = rescaled
        self.state_size = self._memory.state_size

    @property
    def _memory(self) -> Memory:
        return cast(Memory, self.memory)

    def forward(  # type: ignore[override]  # a network with a memory has one more input and output
        self, observation: Any, state: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        rest, allowed = self.split(observation)
        output, state = self._memory.step(self.encoder(rest), state)
        values = masked(self._values(output), allowed)
        return values, self.true_value(self.best(values)), state

    def unroll(self, observation: Any, first: Tensor, state: Tensor, burn_in: int) -> Tensor:
        """Return Q values [T - burn_in, B, n] of T rows: observations [T*B, ...] without masks, `first` [T, B] and the
        memory [B, S] before the first row. The first `burn_in` rows only refresh the memory, without gradients."""
        num_rows, num_lanes = first.shape
        split = burn_in * num_lanes
        if burn_in:
            with torch.no_grad():
                features = self.encoder(_rows(observation, slice(0, split))).view(burn_in, num_lanes, -1)
                state = self._memory.final_state(features, state, first[:burn_in])
        features = self.encoder(_rows(observation, slice(split, None))).view(num_rows - burn_in, num_lanes, -1)
        outputs = self._memory.unroll(features, state, first[burn_in:])
        return self._values(outputs.flatten(0, 1)).view(num_rows - burn_in, num_lanes, -1)

    def true_value(self, values: Tensor) -> Tensor:
        """Return values in the units of rewards."""
        return unscale(values) if self.rescaled else values

    def _values(self, outputs: Tensor) -> Tensor:
        return self.returns.expectation(self.body(outputs))


def _rows(tree: Any, rows: slice) -> Any:
    return {name: _rows(part, rows) for name, part in tree.items()} if isinstance(tree, dict) else tree[rows]


def build_recurrent_network(observation: Space, action: Space, config: R2D2Config, seed: int) -> RecurrentQNetwork:
    """Build the network. The same seed gives the same weights; torch's global generator is not affected."""
    seen, has_mask = split_mask(observation, action, config.mask_key)
    nvec = branch_sizes(action)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if config.entities or config.scans:
            encoder: Any = normalized(EntityEncoder(seen, config, critic=False), seen, config)
        else:
            encoder = normalized(build_encoder(seen, config.body), seen, config)
            if not is_lone_image(seen):  # the encoder for a single image is already deep
                encoder = Trunk(encoder, config.hidden_sizes, config.activation)
        memory = build_memory(config.memory, encoder.num_features, config.memory_size)
        sizes = [memory.num_features, memory.num_features]
        body = dense_body(nn.Identity(), sizes, nvec, 1, config)
    return RecurrentQNetwork(encoder, memory, body, config.rescale, nvec, config.mask_key if has_mask else "")
