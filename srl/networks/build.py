"""Builds the network for a pair of spaces: the default one, or the user's own, checked on a batch of zeros."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from srl.api.spaces import Space, array_spec
from srl.base.object_names import load_object
from srl.base.tree import map_tree
from srl.networks.actor_critic import (
    EncodedActorCritic,
    NormedHeads,
    SharedActorCritic,
    SplitActorCritic,
    StackedActorCritic,
    start_from,
)
from srl.networks.distributions.discrete import Distribution
from srl.networks.encoders.encoders import Encoder, Trunk, build_encoder
from srl.networks.encoders.entities import EntityEncoder
from srl.networks.memory.cells import PairedMemory, build_memory
from srl.networks.memory.recurrent import RecurrentActorCritic, state_size_of
from srl.networks.options import NetworkOptions
from srl.networks.sides import PairedTrunk, SidedEncoder, without
from srl.networks.spaces.images import has_image, is_lone_image


def default_network(observation: Space, distribution: Distribution, options: NetworkOptions) -> nn.Module:
    """Without images, entities and memory: separate actor and critic, trained by hand. Otherwise an encoder with layers
    on top, and a memory if wanted, for both or for each of the two."""
    outputs, free = distribution.num_parameters, distribution.num_free
    sizes, kind = options.hidden_sizes, options.memory
    deep = has_image(observation) or kind != "none"
    entities = bool(options.entities or options.scans)
    separate = options.separate or (options.towers == "auto" and not deep)
    if separate and not deep and not entities:
        encoder = SidedEncoder(observation, options) if options.global_keys else build_encoder(observation)
        stacked = StackedActorCritic(encoder.num_features, sizes, options.activation, outputs, free)
        return EncodedActorCritic(encoder, stacked)

    def tower(critic: bool) -> Encoder | EntityEncoder:
        if entities:
            return EntityEncoder(observation, options, critic=critic)
        seen = observation if critic else without(observation, options.global_keys)
        encoder = build_encoder(seen, options.body)
        # A lone image's encoder is deep already.
        return encoder if is_lone_image(observation) else Trunk(encoder, sizes, options.activation)

    towers = [tower(critic=False), tower(critic=True)] if separate else [tower(critic=False)]
    trunk = PairedTrunk(*towers) if separate else towers[0]
    if kind == "none":
        return EncodedActorCritic(trunk, _heads(trunk.num_features, outputs, free, separate))
    memories = [build_memory(kind, part.num_features, options.memory_size) for part in towers]
    memory = PairedMemory(*memories) if separate else memories[0]
    heads = _heads(memory.num_features, outputs, free, separate)
    if entities:
        heads = NormedHeads(heads, memory.num_features, 2 if separate else 1)
    return RecurrentActorCritic(trunk, memory, heads)


def _heads(num_features: int, num_outputs: int, num_free: int, separate: bool) -> nn.Module:
    return (SplitActorCritic if separate else SharedActorCritic)(num_features, num_outputs, num_free)


def build_network(
    observation: Space, action: Space, distribution: Distribution, options: NetworkOptions, seed: int
) -> nn.Module:
    """`observation` is what the network sees, without a mask. The same seed gives the same weights; torch's global
    generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if options.network:
            network: nn.Module = load_object(options.network)(observation, action)
            check_network(network, observation, distribution, options.network)
        else:
            network = default_network(observation, distribution, options)
            start_from(network, distribution.start)
    return network


def check_network(network: object, observation: Space, distribution: Distribution, name: str) -> None:
    """Run a network on zeros; ValueError says what it should have returned."""
    if not isinstance(network, nn.Module):
        raise ValueError(f"network {name!r} returned {type(network).__name__}, wanted a torch.nn.Module")
    rows, size = 2, state_size_of(network)
    zeros = map_tree(lambda spec: torch.from_numpy(spec.empty(rows)), array_spec(observation))
    try:
        with torch.no_grad():
            output = network(zeros, torch.zeros(rows, size)) if size else network(zeros)
    except Exception as error:
        given = f"a state [{rows}, {size}] and observations" if size else "observations"
        shapes = map_tree(_describe, zeros)
        raise ValueError(f"network {name!r} failed on {given} of zeros, {shapes}: {error}") from error
    names = "(distribution parameters, value, state)" if size else "(distribution parameters, value)"
    if not (
        isinstance(output, tuple)
        and len(output) == (3 if size else 2)
        and all(isinstance(part, Tensor) for part in output)
    ):
        raise ValueError(f"network {name!r} must return {names}, found {_describe(output)}")
    parameters, value, *state = output
    if state and (state[0].shape != (rows, size) or state[0].dtype != torch.float32):
        raise ValueError(
            f"network {name!r} must return a state float32 [B, {size}], as its state_size says; for B = {rows} it "
            f"returned {_describe(state[0])}"
        )
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
