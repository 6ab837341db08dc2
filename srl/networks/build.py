"""Construction of networks and action distributions for an observation space and an action space."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import cast

import torch
from torch import Tensor, nn

from srl.api.spaces import Dict, Discrete, MultiDiscrete, Space, array_spec
from srl.base.object_names import load_object
from srl.base.tree import map_tree
from srl.networks.actor_critic import (
    EncodedActorCritic,
    NormedHeads,
    SharedHeads,
    SplitHeads,
    StackedActorCritic,
    start_from,
)
from srl.networks.distributions.action_scaling import finite_scaling, scaling_of
from srl.networks.distributions.categorical import Categorical, MultiCategorical
from srl.networks.distributions.composite import Composite
from srl.networks.distributions.distribution import Distribution
from srl.networks.distributions.gaussian import DiagonalGaussian
from srl.networks.distributions.squashed_gaussian import SquashedGaussian
from srl.networks.encoders.asymmetric import AsymmetricEncoder, PairedEncoder, without
from srl.networks.encoders.build import Encoder, Trunk, build_encoder
from srl.networks.encoders.entities import EntityEncoder
from srl.networks.memory.gru_lstm import PairedMemory, build_memory
from srl.networks.memory.recurrent import RecurrentActorCritic
from srl.networks.network import Network, as_network
from srl.networks.options import NetworkOptions
from srl.networks.spaces.actions import check_action_space
from srl.networks.spaces.boxes import has_image, is_lone_image, space_leaves


def distribution_for(action: Space, options: NetworkOptions | None = None) -> Distribution:
    """Return the distribution for an action space. Raises ValueError if none supports it."""
    options = options or NetworkOptions()
    check_action_space(action, options)
    if isinstance(action, Dict):
        return Composite(tuple((path, distribution_for(item, options)) for path, item in space_leaves(action)))
    if isinstance(action, Discrete):
        return Categorical(action.n)
    if isinstance(action, MultiDiscrete):
        return MultiCategorical(tuple(action.nvec))
    shape, free_std = tuple(action.shape), options.std == "free"
    if options.box == "squashed":
        return SquashedGaussian(shape, free_std, options.initial_std, scaling=finite_scaling(action))
    return DiagonalGaussian(shape, free_std, options.initial_std, scaling_of(action))


def default_network(observation: Space, distribution: Distribution, options: NetworkOptions) -> Network:
    """Build a separate actor and critic with hand-written gradients if there are no images, entities or memory.
    Otherwise build an encoder, dense layers and an optional memory, either shared by actor and critic or separate."""
    outputs, free = distribution.num_parameters, distribution.num_free
    sizes, kind = options.hidden_sizes, options.memory
    deep = has_image(observation) or kind != "none"
    entities = bool(options.entities or options.scans)
    separate = options.separate or (options.towers == "auto" and not deep)
    if separate and not deep and not entities:
        encoder = AsymmetricEncoder(observation, options) if options.global_keys else build_encoder(observation)
        stacked = StackedActorCritic(encoder.num_features, sizes, options.activation, outputs, free)
        return EncodedActorCritic(encoder, stacked)

    def tower(critic: bool) -> Encoder | EntityEncoder:
        if entities:
            return EntityEncoder(observation, options, critic=critic)
        seen = observation if critic else without(observation, options.global_keys)
        encoder = build_encoder(seen, options.body)
        # The encoder for a single image is already deep.
        return encoder if is_lone_image(observation) else Trunk(encoder, sizes, options.activation)

    towers = [tower(critic=False), tower(critic=True)] if separate else [tower(critic=False)]
    trunk = PairedEncoder(*towers) if separate else towers[0]
    if kind == "none":
        return EncodedActorCritic(trunk, _heads(trunk.num_features, outputs, free, separate))
    memories = [build_memory(kind, part.num_features, options.memory_size) for part in towers]
    memory = PairedMemory(*memories) if separate else memories[0]
    heads = _heads(memory.num_features, outputs, free, separate)
    if entities:
        heads = NormedHeads(heads, memory.num_features, 2 if separate else 1)
    return RecurrentActorCritic(trunk, memory, heads)


def _heads(num_features: int, num_outputs: int, num_free: int, separate: bool) -> Network:
    return (SplitHeads if separate else SharedHeads)(num_features, num_outputs, num_free)


def build_network(
    observation: Space, action: Space, distribution: Distribution, options: NetworkOptions, seed: int
) -> Network:
    """Build the default network, or build the user's network and check it on a batch of zeros. `observation` excludes
    the action mask. The same seed gives the same weights; torch's global generator is not affected."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if options.network:
            function = load_object(options.network)
            _check_signature(options.network, function)
            return check_network(function(observation, action), observation, distribution, options)
        network = default_network(observation, distribution, options)
        start_from(network, distribution.start)
    return network


def _check_signature(name: str, function: object) -> None:
    try:
        inspect.signature(cast(Callable[..., object], function)).bind(None, None)
    except TypeError as error:
        raise ValueError(f"network {name!r} is called with the observation and the action space: {error}") from None
    except ValueError:  # a built-in function has no signature
        pass


def check_network(module: object, observation: Space, distribution: Distribution, options: NetworkOptions) -> Network:
    """Run the user's network on zeros and return it. Raises ValueError if its outputs are wrong."""
    name = options.network
    if not isinstance(module, nn.Module):
        raise ValueError(f"network {name!r} must return a torch.nn.Module, found {type(module).__name__}")
    network = as_network(module)
    rows, size = 2, network.state_size
    zeros = map_tree(lambda spec: torch.from_numpy(spec.empty(rows)), array_spec(observation))
    try:
        with torch.no_grad():
            output = network(zeros, torch.zeros(rows, size)) if size else network(zeros)
    except Exception as error:
        given = f"a state [{rows}, {size}] and observations" if size else "observations"
        shapes = map_tree(_describe, zeros)
        hint = "" if size else " (a network with a memory must inherit from srl.networks.network.Network)"
        raise ValueError(f"network {name!r} failed on {given} of zeros, {shapes}: {error}{hint}") from error
    names = "(distribution parameters, value, state)" if size else "(distribution parameters, value)"
    expected = [(rows, distribution.num_parameters), (rows,), *([(rows, size)] if size else [])]
    if not (isinstance(output, tuple) and len(output) == len(expected) and all(isinstance(o, Tensor) for o in output)):
        raise ValueError(f"network {name!r} must return {names}, found {_describe(output)}")
    if [part.shape for part in output] != expected or {part.dtype for part in output} != {torch.float32}:
        state = f" and state [B, {size}], because its state_size is {size}" if size else ""
        kind = type(distribution).__name__
        raise ValueError(
            f"network {name!r} must return parameters [B, {distribution.num_parameters}] of {kind}, value [B]"
            f"{state}, in float32; for B = {rows} it returned {', '.join(map(_describe, output))}"
        )
    return network


def _describe(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, (tuple, list, Mapping)):
        return f"a {type(value).__name__} of {len(value)}"
    return type(value).__name__
