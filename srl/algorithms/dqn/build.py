"""Construction of Q networks for an observation space and an action space."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
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
from srl.networks.parameters import FlatParameters
from srl.networks.spaces.actions import split_mask
from srl.networks.wrappers import NormalizedActorCritic, ObservationNormalizer


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
    layer: Callable[[int, int], nn.Module] = plain_layer if noise is None else partial(NoisyLinear, scale=noise)
    layers = [layer(a, b) for a, b in pairwise(sizes)]
    if config.dueling:
        streams = layer(num_features, num_atoms), layer(num_features, num_choices * num_atoms)
        return DenseBody(encoder, layers, config.activation, DuelingHeads(*streams, nvec))
    heads = Heads(layer(num_features, num_choices * num_atoms), num_choices)
    return DenseBody(encoder, layers, config.activation, heads)


def plain_layer(num_inputs: int, num_outputs: int) -> WideLinear:
    """Build a layer with weights and biases drawn as in torch.nn.Linear. Biases of 0 would put the kinks of all units
    at the origin, where the observations of small systems are: they learn worse."""
    layer, bound = WideLinear(num_inputs, num_outputs), 1.0 / math.sqrt(num_inputs)
    for parameter in (layer.weight, layer.bias):
        nn.init.uniform_(parameter, -bound, bound)
    return layer
