"""The actor and the critics of algorithms that learn from replay."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from srl.algorithms.offpolicy.config import OffPolicyConfig
from srl.algorithms.offpolicy.normalization import normalized
from srl.api.spaces import Box, Discrete, Space
from srl.networks.encoders.asymmetric import without
from srl.networks.encoders.build import build_encoder
from srl.networks.encoders.entities import EntityEncoder
from srl.networks.network import Network, Wrapper
from srl.networks.options import STATE_LOG_STD
from srl.networks.spaces.actions import split_mask
from srl.networks.wrappers import MaskedActorCritic

if TYPE_CHECKING:
    from srl.algorithms.sac.config import ReplayActorCriticConfig
    from srl.algorithms.sac.exploration import NoisyActions
    from srl.networks.distributions.distribution import Distribution


class StackedLayers(nn.Module):
    """Dense layers of E networks with the same sizes. Each layer is one batched product with weights [E, in, out]."""

    def __init__(
        self, num_members: int, sizes: tuple[int, ...], activation: str, dropout: float = 0.0, layer_norm: bool = False
    ) -> None:
        super().__init__()
        self.activation, self.dropout = activation, dropout
        shapes = [(num_members, a, b) for a, b in pairwise(sizes)]
        self.weights = nn.ParameterList([_uniform(shape, shape[1]) for shape in shapes])
        self.biases = nn.ParameterList([_uniform((num_members, 1, out), inputs) for _, inputs, out in shapes])
        hidden = sizes[1:-1] if layer_norm else ()
        self.gains = nn.ParameterList([nn.Parameter(torch.ones(num_members, 1, size)) for size in hidden])
        self.offsets = nn.ParameterList([nn.Parameter(torch.zeros(num_members, 1, size)) for size in hidden])

    def forward(
        self, inputs: Tensor, members: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """Map inputs [B, in] to outputs [E, B, out] of all networks, or of those with the indices `members`. The
        generator is for dropout."""

        def chosen(parameter: Tensor) -> Tensor:
            return parameter if members is None else parameter.index_select(0, members)

        num_members = len(self.weights[0]) if members is None else len(members)
        hidden = inputs.expand(num_members, *inputs.shape)
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = torch.baddbmm(chosen(bias), hidden, chosen(weight))
            if i == len(self.weights) - 1:
                return hidden
            if self.dropout > 0.0:  # before the normalization, as in figure 1 of Hiraoka et al. 2022
                hidden = hidden * kept_units(hidden, self.dropout, generator)
            if len(self.gains):
                normed = functional.layer_norm(hidden, hidden.shape[-1:])
                hidden = torch.addcmul(chosen(self.offsets[i]), normed, chosen(self.gains[i]))
            hidden = hidden.tanh() if self.activation == "tanh" else hidden.relu()
        raise AssertionError("there is at least one layer")


def kept_units(hidden: Tensor, dropout: float, generator: torch.Generator | None) -> Tensor:
    """Return 0 for a unit that is dropped, otherwise the factor that keeps the mean."""
    if hidden.device.type != "cpu":
        return torch.empty_like(hidden).bernoulli_(1.0 - dropout, generator=generator).div_(1.0 - dropout)
    # Four units share a random number, of which each gets 16 bits: a third of the time of torch's own dropout. The
    # probability is rounded to a multiple of 2^-16.
    numbers = torch.empty(-(-hidden.numel() // 4), dtype=torch.int64)
    bits = numbers.random_(-(1 << 63), None, generator=generator).view(torch.int16)[: hidden.numel()]
    limit = round(dropout * (1 << 16))
    return (bits >= limit - (1 << 15)).view(hidden.shape) * ((1 << 16) / ((1 << 16) - limit))


def _uniform(shape: tuple[int, ...], num_inputs: int) -> nn.Parameter:
    """Return weights drawn as in torch.nn.Linear."""
    bound = 1.0 / math.sqrt(num_inputs)
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))


class Actor(Network):
    """Maps observations to the parameters of the action distribution. Its value is 0: the critics have no part in
    acting.

    `exploration` holds what only the trainer changes: the probability of a uniformly random action, and the noise of
    a deterministic policy. It has no gradient and reaches policies with the parameters.
    """

    def __init__(self, encoder: nn.Module, layers: StackedLayers, kind: str) -> None:
        super().__init__()
        self.encoder, self.layers = encoder, layers
        self.kind = kind  # "logits", "gaussian" or "noisy"
        self.exploration = nn.Parameter(torch.zeros(2), requires_grad=False)

    def forward(self, observation: Any) -> tuple[Tensor, Tensor]:
        outputs = self.layers(self.encoder(observation))[0]
        if self.kind == "gaussian":
            mean, raw = outputs.chunk(2, dim=1)
            outputs = torch.cat((mean, bounded_log_std(raw)), dim=1)
        elif self.kind == "noisy":
            outputs = torch.cat((outputs, self.exploration[1].expand_as(outputs)), dim=1)
        return outputs, torch.zeros_like(outputs[:, 0])

    def explore(self, uniform: float, noise: float) -> None:
        self.exploration.data[0] = uniform
        self.exploration.data[1] = noise

    @property
    def uniform(self) -> float:
        """Probability of a uniformly random action."""
        return float(self.exploration[0])


def bounded_log_std(raw: Tensor) -> Tensor:
    """Map any number smoothly into `STATE_LOG_STD`: a hard limit would have no gradient beyond it."""
    low, high = STATE_LOG_STD
    return raw.tanh().mul(0.5 * (high - low)).add(0.5 * (high + low))


def raw_log_std(log_std: float) -> float:
    """Return the number that `bounded_log_std` maps to `log_std`."""
    low, high = STATE_LOG_STD
    return math.atanh((log_std - 0.5 * (high + low)) / (0.5 * (high - low)))


class Critics(nn.Module):
    """Maps observations and unit actions to values [E, B]; with Discrete actions, observations to the values of all
    choices [E, B, n]."""

    def __init__(self, encoder: nn.Module, layers: StackedLayers) -> None:
        super().__init__()
        self.encoder, self.layers = encoder, layers

    def forward(
        self,
        observation: Any,
        action: Tensor | None,
        members: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        features = self.encoder(observation)
        if action is None:
            values: Tensor = self.layers(features, members, generator)
            return values
        joined = torch.cat((features, action), dim=1)
        single: Tensor = self.layers(joined, members, generator)[:, :, 0]
        return single


class Temperature(nn.Module):
    """The weight of the entropy, learned as its logarithm."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log_value = nn.Parameter(torch.tensor([math.log(initial)]))


def build_actor(
    observation: Space,
    action: Space,
    distribution: Distribution | NoisyActions,
    config: OffPolicyConfig,
    seed: int,
) -> Network:
    """Build the actor. The same seed gives the same weights; torch's global generator is not affected."""
    from srl.algorithms.sac.exploration import NoisyActions

    seen, masked = split_mask(observation, action, config.mask_key)
    discrete, noisy = not isinstance(action, Box), isinstance(distribution, NoisyActions)
    kind = "logits" if discrete else "noisy" if noisy else "gaussian"
    outputs = distribution.action_size if noisy else distribution.num_parameters
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = build_tower(without(seen, config.global_keys), config, critic=False)
        layers = StackedLayers(1, (encoder.num_features, *config.hidden_sizes, outputs), config.activation)
    if kind == "gaussian":
        layers.biases[-1].data[..., outputs // 2 :] = raw_log_std(math.log(config.initial_std))
    actor = Actor(encoder, layers, kind)
    if masked:
        assert not isinstance(distribution, NoisyActions)
        return MaskedActorCritic(actor, config.mask_key, distribution)
    return actor


def build_critics(observation: Space, action: Space, config: ReplayActorCriticConfig, seed: int) -> Critics:
    seen = split_mask(observation, action, config.mask_key)[0]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = build_tower(seen, config, critic=True)
        choices, size = (action.n, 0) if isinstance(action, Discrete) else (1, math.prod(getattr(action, "shape", ())))
        sizes = (encoder.num_features + size, *config.hidden_sizes, choices)
        dropout, norm = config.critic_dropout, config.critic_layer_norm
        return Critics(encoder, StackedLayers(config.num_critics, sizes, config.activation, dropout, norm))


def build_value(observation: Space, action: Space, config: ReplayActorCriticConfig, seed: int) -> Critics:
    """Build a network with the layers of one critic that maps observations to values [1, B, 1]."""
    seen = split_mask(observation, action, config.mask_key)[0]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = build_tower(seen, config, critic=True)
        return Critics(encoder, StackedLayers(1, (encoder.num_features, *config.hidden_sizes, 1), config.activation))


def build_tower(seen: Space, config: OffPolicyConfig, critic: bool) -> Any:
    """Build the encoder of the actor or of the critics. It ignores parts of an observation that are not in `seen`."""
    is_structured = config.entities or config.scans
    encoder = EntityEncoder(seen, config, critic=critic) if is_structured else build_encoder(seen, config.body)
    return normalized(encoder, seen, config)


def inner_actor(network: nn.Module) -> Actor:
    """Return the actor inside of a network that may have an action mask or normalize observations."""
    while isinstance(network, Wrapper):
        network = network.network
    assert isinstance(network, Actor)
    return network
