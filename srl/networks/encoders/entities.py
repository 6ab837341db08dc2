"""Encoder for entity observations: any number of objects of several kinds, some of them masked.

As in appendix B of Baker et al. 2019, every entity is embedded together with the agent's own observation, the unmasked
entities attend to each other, and their mean is concatenated with the agent's own embedding. The order of entities does
not matter, and masked entities have no effect.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from srl.api.spaces import Space
from srl.networks.activations import tanh_
from srl.networks.encoders.attention import ResidualAttention, pool
from srl.networks.encoders.build import DictEncoder
from srl.networks.options import NetworkOptions
from srl.networks.spaces.entities import parts_of

SCAN_FILTERS, SCAN_WIDTH = 9, 3


class ScanEncoder(nn.Module):
    """Circular convolution over measurements in directions around the agent, [B, directions, numbers]."""

    def __init__(self, num_directions: int, num_numbers: int) -> None:
        super().__init__()
        self.shape = (num_directions, num_numbers)
        self.num_features = num_directions * SCAN_FILTERS
        self.convolution = nn.Linear(SCAN_WIDTH * num_numbers, SCAN_FILTERS)
        nn.init.xavier_uniform_(self.convolution.weight)
        nn.init.zeros_(self.convolution.bias)

    def forward(self, scan: Tensor) -> Tensor:
        scan = scan.reshape(-1, *self.shape)
        around = torch.cat((scan[:, -1:], scan, scan[:, :1]), dim=1)
        windows = torch.cat([around[:, i : i + self.shape[0]] for i in range(SCAN_WIDTH)], dim=2)
        filtered: Tensor = self.convolution(windows).relu_().flatten(1)
        return filtered


class EntityEncoder(nn.Module):
    """Encoder for entities, scans and the agent itself. Actor and critic use different entity masks."""

    def __init__(self, space: Space, options: NetworkOptions, *, critic: bool) -> None:
        super().__init__()
        parts = parts_of(space, options, critic)
        size = options.entity_size
        self.own = None if parts.own is None else DictEncoder(parts.own, options.body)
        self.scan_names = list(parts.scans)
        self.scans = nn.ModuleList([ScanEncoder(*shape) for shape in parts.scans.values()])
        known = sum(part.num_features for part in (self.own, *self.scans) if part is not None)
        self.names = [kind.key for kind in parts.kinds]
        self.masks = [(kind.critic_mask if critic else kind.actor_mask, kind.num) for kind in parts.kinds]
        # An entity's layer is one matrix over [own, entity]. The product with `own` is the same for all entities of a
        # kind, so it is computed once per row, together with the agent's own layer.
        self.embed_own = nn.Linear(known, size * (1 + len(parts.kinds)))
        self.embed = nn.ParameterList([nn.Parameter(torch.zeros(size, kind.width)) for kind in parts.kinds])
        self._initialize(known, size)
        self.attention = ResidualAttention(size, options.attention_heads)
        sizes = (2 * size, *options.hidden_sizes)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for width in sizes])
        layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
        self.layers = nn.ModuleList(layers)
        self.is_tanh = options.activation == "tanh"
        self.num_features: int = sizes[-1]
        for layer in layers:
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def _initialize(self, known: int, size: int) -> None:
        """Apply Xavier initialization as if each kind's two parts were one matrix."""
        nn.init.zeros_(self.embed_own.bias)
        with torch.no_grad():
            widths = [0, *(weight.shape[1] for weight in self.embed)]
            for own, width in zip(self.embed_own.weight.chunk(len(widths)), widths, strict=True):
                own.uniform_(-(bound := math.sqrt(6.0 / (known + width + size))), bound)
            for weight in self.embed:
                weight.uniform_(-(bound := math.sqrt(6.0 / (known + weight.shape[1] + size))), bound)

    def forward(self, observation: dict[str, Tensor]) -> Tensor:
        known = [scan(observation[name]) for name, scan in zip(self.scan_names, self.scans, strict=True)]
        if self.own is not None:
            known.append(self.own(observation))
        projected = self.embed_own(known[0] if len(known) == 1 else torch.cat(known, dim=1))
        own, *shared = projected.chunk(1 + len(self.names), dim=1)
        embedded = [own[:, None]]
        for name, weight, part in zip(self.names, self.embed, shared, strict=True):
            embedded.append(functional.linear(observation[name].float(), weight).add_(part[:, None]))
        entities = torch.cat(embedded, dim=1).relu_()  # [B, E, D]
        mask = self._mask(observation, entities)
        pooled = pool(self.attention(entities, mask), mask)
        hidden: Tensor = self.norms[0](torch.cat((pooled, entities[:, 0]), dim=1))
        for layer, norm in zip(self.layers, list(self.norms)[1:], strict=True):
            hidden = layer(hidden)
            hidden = norm(tanh_(hidden) if self.is_tanh else hidden.relu_())
        return hidden

    def _mask(self, observation: dict[str, Tensor], like: Tensor) -> Tensor:
        """Return a mask [B, E] that is 1 for visible entities and 0 for others. The agent itself comes first."""
        parts = [like.new_ones(like.shape[0], 1)]
        for name, num in self.masks:
            ones = like.new_ones(like.shape[0], num)
            parts.append((observation[name].reshape(-1, num) != 0).to(like.dtype) if name else ones)
        return torch.cat(parts, dim=1)
