"""Construction of Q networks for an observation space and an action space."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn

from srl.algorithms.dqn.config import DQNConfig, QLearningConfig, branch_sizes
from srl.algorithms.dqn.network import CustomBody, DenseBody, DuelingHeads, Heads, QNetwork
from srl.algorithms.dqn.noisy import NoisyLinear
from srl.algorithms.dqn.returns import CategoricalReturn, MeanReturn, QuantileReturn, ReturnModel
from srl.algorithms.offpolicy.normalization import normalized
from srl.api.spaces import Space
from srl.networks.build import build_network, distribution_for
from srl.networks.encoders.build import build_encoder
from srl.networks.encoders.entities import EntityEncoder
from srl.networks.encoders.images import Convolutions, ImageEncoder, WideLinear
from srl.networks.parameters import FlatParameters, orthogonal_layers
from srl.networks.spaces.actions import split_mask
from srl.networks.wrappers import NormalizedActorCritic, ObservationNormalizer

HIDDEN_GAIN = math.sqrt(2.0)
OUTPUT_GAIN = 0.1  # returns of untrained networks are near 0


def build_q_network(observation: Space, action: Space, config: DQNConfig, seed: int) -> QNetwork:
    """Build the default network, or the user's, and check it. The same seed gives the same weights; torch's global
    generator is not affected."""
    seen, masked = split_mask(observation, action, config.mask_key)
    nvec = branch_sizes(action)
    returns = return_model(config)
    if config.network:
        custom = build_network(seen, action, distribution_for(action, config), config, seed)
        FlatParameters(custom, gradients=False)  # ValueError if it has parameters that cannot be sent
        custom.requires_grad_(True)
        if config.normalize_observation:  # but not integers, which a custom network may treat as categories
            normalizer = ObservationNormalizer(seen, config.observation_clip, integers=False)
            custom = NormalizedActorCritic(custom, normalizer, None)
        body: nn.Module = CustomBody(custom)
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            body = _body(seen, nvec, returns.num_atoms, config)
    return QNetwork(body, returns, nvec, config.mask_key if masked else "")


def return_model(config: DQNConfig) -> ReturnModel:
    if config.distributional == "c51":
        return CategoricalReturn(config.num_atoms, config.value_min, config.value_max)
    if config.distributional == "qr":
        return QuantileReturn(config.num_atoms, config.huber)
    return MeanReturn(config.huber)


def _body(observation: Space, nvec: tuple[int, ...], num_atoms: int, config: DQNConfig) -> DenseBody:
    hidden_sizes = config.hidden_sizes
    if config.entities or config.scans:
        encoder: nn.Module = EntityEncoder(observation, config, critic=False)
    else:
        encoder = build_encoder(observation, config.body)
        if isinstance(encoder, ImageEncoder):  # its dense layer becomes the hidden one, which may be noisy or doubled
            hidden_sizes = (encoder.num_features,)
            encoder = Convolutions(encoder)
    encoder = normalized(encoder, observation, config)
    sizes = [int(encoder.num_features), *hidden_sizes]  # type: ignore[arg-type]  # encoders have this attribute
    return dense_body(encoder, sizes, nvec, num_atoms, config, config.noise if config.noisy else None)


def dense_body(
    encoder: nn.Module,
    sizes: list[int],
    nvec: tuple[int, ...],
    num_atoms: int,
    config: QLearningConfig,
    noise: float | None = None,
) -> DenseBody:
    """Build dense layers of these `sizes`, the first of which is that of the encoder's output, and heads on them."""
    num_features, num_choices = sizes[-1], sum(nvec)
    if config.dueling:
        sizes = [*sizes[:-1], 2 * num_features]  # a stream for the value and one for the advantages
    hidden, output = _layer(noise, HIDDEN_GAIN), _layer(noise, OUTPUT_GAIN)
    layers = [hidden(a, b) for a, b in pairwise(sizes)]
    if config.dueling:
        streams = output(num_features, num_atoms), output(num_features, num_choices * num_atoms)
        return DenseBody(encoder, layers, config.activation, DuelingHeads(*streams, nvec))
    heads = Heads(output(num_features, num_choices * num_atoms), num_choices)
    return DenseBody(encoder, layers, config.activation, heads)


def _layer(noise: float | None, gain: float) -> Callable[[int, int], nn.Module]:
    def noisy(num_inputs: int, num_outputs: int) -> nn.Module:
        assert noise is not None
        return NoisyLinear(num_inputs, num_outputs, noise)

    def plain(num_inputs: int, num_outputs: int) -> nn.Module:
        layer = WideLinear(num_inputs, num_outputs)
        orthogonal_layers(gain, layer)
        return layer

    return plain if noise is None else noisy
