"""The network of MuZero: representation, dynamics and prediction of dense layers, on an encoder of observations.

Its parameters begin with those of :class:`srl.search.MLPModel`, in the same order, so that a search runs in compiled
code on the vector that policies load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from srl.algorithms.dqn.build import plain_layer
from srl.algorithms.muzero.config import MuZeroConfig, has_two_players
from srl.algorithms.muzero.samples import bounded_policy, output_for
from srl.algorithms.offpolicy.normalization import normalized
from srl.algorithms.r2d2.returns import unscale
from srl.api.spaces import Space
from srl.base.tree import Array, leaves
from srl.networks.encoders.build import build_encoder
from srl.networks.encoders.entities import EntityEncoder
from srl.networks.encoders.images import WideLinear
from srl.networks.network import Network
from srl.networks.spaces.actions import split_mask
from srl.search import MLPModel, MLPModelConfig

FORBIDDEN = -1e9


class DenseLayers(nn.Module):
    """Dense layers, rectified but for the last one. `is_zero`: the output starts at 0."""

    def __init__(self, sizes: Sequence[int], is_zero: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList([plain_layer(a, b) for a, b in pairwise(sizes)])
        if is_zero:
            for parameter in self.layers[-1].parameters():
                nn.init.zeros_(parameter)

    def forward(self, rows: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            rows = layer(rows).relu_()
        return self.layers[-1](rows)  # type: ignore[no-any-return]


class MuZeroNetwork(Network):
    """Maps observations to logits of the policy [B, A] and values [B]. Choices that the mask forbids have logits of
    -1e9. `temperature` is a parameter without a gradient, so that it reaches policies with the others."""

    bins: Tensor

    def __init__(self, model: MLPModelConfig, encoder: nn.Module, mask_key: str, initial_std: float = 1.0) -> None:
        super().__init__()
        self.model = model
        self._initial_output = output_for(initial_std)  # of a standard deviation of real-valued actions
        self._build_parts(model)
        self.encoder = encoder
        self.mask_key = mask_key
        self.takes_turns = math.copysign(1.0, model.discount) < 0.0  # two players move by turns, also if gamma is 0
        self.temperature = nn.Parameter(torch.ones(1), requires_grad=False)
        bins = (torch.arange(model.num_bins) - model.num_bins // 2) * float(model.bin_width)
        self.register_buffer("bins", bins, persistent=False)

    def _build_parts(self, model: MLPModelConfig) -> None:
        sizes = model.sizes()
        self.representation: Any = DenseLayers(sizes["representation"])
        self.dynamics: Any = DenseLayers(sizes["dynamics"])
        self.prediction: Any = DenseLayers(sizes["prediction"], is_zero=True)
        if model.samples and not model.samples.choices:
            last: Any = self.prediction.layers[-1]
            nn.init.constant_(last.bias.data[model.samples.size : 2 * model.samples.size], self._initial_output)

    @property
    def num_compiled(self) -> int:
        """Number of parameters that `compiled` needs, the first ones."""
        return self.model.num_parameters

    def compiled(self, parameters: Array) -> Any:
        """Return the network as the model of a search, with `parameters`, which may change."""
        return MLPModel(self.model, parameters)

    def forward(self, observation: Any) -> tuple[Tensor, Tensor]:
        rest, allowed = self.split(observation)
        logits, value, _ = self.predict(self.represent(rest))
        return logits if allowed is None else logits.masked_fill(~allowed, FORBIDDEN), self.mean(value)

    def split(self, observation: Any) -> tuple[Any, Tensor | None]:
        """Split off the mask. Return the observation of the encoder and the allowed actions, [B, A] bool."""
        if not self.mask_key:
            return observation, None
        rest = {name: part for name, part in observation.items() if name != self.mask_key}
        parts = [
            leaf.reshape(len(leaf), math.prod(leaf.shape[1:])) != 0 for _, leaf in leaves(observation[self.mask_key])
        ]
        return rest, parts[0]

    def represent(self, observation: Any) -> Tensor:
        """Map observations without masks to latent states [B, H]."""
        return self.representation(self.encoder(observation)).tanh()  # type: ignore[no-any-return]

    def imagine(self, latent: Tensor, action: Tensor) -> Tensor:
        """Return the latent states [B, H] that actions [B] lead to, or with samples real numbers or choices [B, size].
        A choice's part of the first layer is a row of its weights."""
        first, *rest = self.dynamics.layers
        assert isinstance(first, WideLinear)
        num_latent = self.model.latent_size
        rows = torch.addmm(first.bias, latent, first.weight[:num_latent])
        if action.is_floating_point():
            rows = torch.addmm(rows, action, first.weight[num_latent:])
        elif self.model.samples:
            starts = torch.tensor((0, *accumulate(self.model.samples.choices[:-1])), device=action.device)
            rows = rows + functional.embedding_bag(action + starts, first.weight[num_latent:], mode="sum")
        else:
            rows = rows + functional.embedding(action, first.weight[num_latent:])
        for layer in rest:
            rows = layer(rows.relu_())
        return (rows + latent if self.model.residual else rows).tanh()

    def predict(self, latent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the logits of the policy [B, A], and those of the bins of the value and of the reward that led to the
        state, [B, bins]."""
        outputs = self.prediction(latent)
        model = self.model
        policy, value, reward = outputs.split((model.num_policy, model.num_bins, model.num_bins), 1)
        if model.samples and not model.samples.choices:
            policy = bounded_policy(policy)
        return policy, value, reward

    def reward_logits(self, latents: Tensor, predicted: Tensor) -> Tensor:
        """Return the logits of the bins of rewards [K, N, bins] that led to states [K, N, H], given those that
        `predict` returned."""
        return predicted

    def reward_targets(self, reward: Tensor) -> Tensor:
        """Return what `reward_logits` learn, for rewards [K, N]."""
        return reward

    def mean(self, logits: Tensor) -> Tensor:
        """Return the number that logits of bins [..., bins] stand for."""
        return unscale(logits.softmax(-1) @ self.bins)


class Consistency(nn.Module):
    """Projection of latent states and prediction from it (SimSiam, Chen & He 2021), for the loss of consistency."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.projection = DenseLayers((size, size, size))
        self.predictor = DenseLayers((size, size, size))


def build_muzero_network(observation: Space, action: Space, config: MuZeroConfig, seed: int) -> MuZeroNetwork:
    """Build the network. The same seed gives the same weights; torch's global generator is not affected."""
    seen, has_mask = split_mask(observation, action, config.mask_key)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if config.entities or config.scans:
            encoder: Any = EntityEncoder(seen, config, critic=False)
        else:
            encoder = build_encoder(seen, config.body)
        encoder = normalized(encoder, seen, config)
        model = MLPModelConfig(
            int(encoder.num_features),
            config.num_actions(action),
            config.latent_size,
            *(config.hidden_sizes,) * 3,
            config.num_bins,
            config.bin_width,
            "tanh",
            -config.gamma if has_two_players(observation) else config.gamma,
            residual=config.residual,
            samples=config.samples(action),
        )
        mask_key = config.mask_key if has_mask else ""
        if config.tower == "residual":
            from srl.algorithms.muzero.boards import build_board_network

            return build_board_network(seen, model, config, mask_key)
        if config.value_prefix:
            from srl.algorithms.muzero.prefix import PrefixNetwork

            return PrefixNetwork(model, encoder, mask_key)
        return MuZeroNetwork(model, encoder, mask_key, config.initial_std)


def build_consistency(config: MuZeroConfig, seed: int) -> Consistency:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Consistency(config.latent_size)
