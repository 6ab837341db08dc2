"""Builds the network for a pair of spaces: the default one, or the user's own, checked on a batch of zeros."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from srl.api.spaces import Space, array_spec
from srl.base.importing import load_object
from srl.base.tree import map_tree
from srl.networks.actor_critic import EncodedActorCritic, SharedActorCritic, StackedActorCritic
from srl.networks.distributions import Distribution
from srl.networks.encoders import build_encoder, has_image
from srl.networks.options import NetworkOptions


def default_network(observation: Space, distribution: Distribution, options: NetworkOptions) -> nn.Module:
    """Images: Nature convolutions shared by two linear heads. Everything else: separate actor and critic."""
    encoder = build_encoder(observation)
    outputs, free = distribution.num_parameters, distribution.num_free
    if has_image(observation):
        return EncodedActorCritic(encoder, SharedActorCritic(encoder.num_features, outputs, free))
    stacked = StackedActorCritic(encoder.num_features, options.hidden_sizes, options.activation, outputs, free)
    return EncodedActorCritic(encoder, stacked)


def build_network(
    observation: Space, action: Space, distribution: Distribution, options: NetworkOptions, seed: int
) -> nn.Module:
    """The same seed gives the same weights; torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if not options.network:
            return default_network(observation, distribution, options)
        network: nn.Module = load_object(options.network)(observation, action)
        check_network(network, observation, distribution, options.network)
    return network


def check_network(network: object, observation: Space, distribution: Distribution, name: str) -> None:
    """Run a network on zeros; ValueError says what it should have returned."""
    if not isinstance(network, nn.Module):
        raise ValueError(f"network {name!r} returned {type(network).__name__}, wanted a torch.nn.Module")
    rows = 2
    zeros = map_tree(lambda spec: torch.from_numpy(spec.empty(rows)), array_spec(observation))
    with torch.no_grad():
        output = network(zeros)
    if not (isinstance(output, tuple) and len(output) == 2 and all(isinstance(part, Tensor) for part in output)):
        raise ValueError(f"network {name!r} must return (distribution parameters, value), found {_describe(output)}")
    parameters, value = output
    wanted = f"parameters [B, {distribution.num_parameters}] of {distribution} and value [B], both float32"
    shapes_match = parameters.shape == (rows, distribution.num_parameters) and value.shape == (rows,)
    if not shapes_match or {parameters.dtype, value.dtype} != {torch.float32}:
        raise ValueError(
            f"network {name!r} must return {wanted}; for B = {rows} it returned {_describe(parameters)} and "
            f"{_describe(value)}"
        )


def _describe(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, (tuple, list, Mapping)):
        return f"a {type(value).__name__} of {len(value)}"
    return type(value).__name__
