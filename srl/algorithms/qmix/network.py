"""The network that all agents share: observations and memory to Q values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from srl.algorithms.dqn.config import branch_sizes
from srl.algorithms.dqn.network import FORBIDDEN
from srl.algorithms.qmix.config import VDNConfig
from srl.api.spaces import Space
from srl.base.tree import leaves
from srl.networks.build import build_network, distribution_for
from srl.networks.encoders.asymmetric import without
from srl.networks.memory.recurrent import Sequence, unroll
from srl.networks.network import Network
from srl.networks.parameters import FlatParameters
from srl.networks.spaces.actions import split_mask


class AgentNetwork(Network):
    """Maps observations [B, ...] and memory [B, S] to Q values [B, n], the value of the best action [B] and the new
    memory; the n choices of all branches are concatenated. Choices that the mask forbids get the value `FORBIDDEN`.

    `network` is an actor-critic whose distribution parameters are Q values and whose value is not used; it does not see
    the mask, nor the `hidden` keys. `epsilon`, the probability of a random action, is a parameter without a gradient,
    so that it reaches policies with the others. Only the trainer changes it.
    """

    def __init__(self, network: Network, nvec: tuple[int, ...], mask_key: str, hidden: tuple[str, ...]) -> None:
        super().__init__()
        self.network, self.state_size = network, network.state_size
        self.nvec, self.mask_key, self.hidden = nvec, mask_key, hidden
        self.epsilon = nn.Parameter(torch.ones(1), requires_grad=False)

    def forward(self, observation: Any, *memory: Tensor) -> tuple[Tensor, ...]:
        seen, allowed = self.split(observation)
        values, _, *state = self.network(seen, *memory)
        if allowed is not None:
            values = values.masked_fill(~allowed, FORBIDDEN)
        best = [part.amax(1) for part in torch.split(values, list(self.nvec), dim=1)]
        return values, best[0] if len(best) == 1 else torch.stack(best).mean(0), *state

    def unroll(self, observation: Any, state: Tensor | None, first: Tensor) -> Tensor:
        """Return the Q values [T, N, n] of sequences: observations [T*N, ...], without masks, the memory before the
        first row [N, S], and `first` [T, N]."""
        values: Tensor
        if state is None:
            values = self.network(observation)[0]
        else:
            rows = torch.arange(first.numel(), device=first.device)
            values = unroll(self.network, Sequence(observation, first, state, rows))[0]
        return values.view(*first.shape, -1)

    def split(self, observation: Any) -> tuple[Any, Tensor | None]:
        """Split off the mask and what agents do not see. Return their observation and the allowed choices [B, n]."""
        if not isinstance(observation, Mapping):
            return observation, None
        seen = {name: part for name, part in observation.items() if name not in (self.mask_key, *self.hidden)}
        if not self.mask_key:
            return seen, None
        parts = [leaf.reshape(leaf.shape[0], -1) != 0 for _, leaf in leaves(observation[self.mask_key])]
        return seen, parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def build_agent_network(observation: Space, action: Space, config: VDNConfig, seed: int) -> AgentNetwork:
    """Build the default network, or the user's, and check it. The same seed gives the same weights; torch's global
    generator is not affected."""
    seen, masked = split_mask(observation, action, config.mask_key)
    options = config.agent_options()
    inner = build_network(without(seen, config.global_keys), action, distribution_for(action, options), options, seed)
    if config.network:
        FlatParameters(inner, gradients=False)  # ValueError if it has parameters that cannot be sent
        inner.requires_grad_(True)
    return AgentNetwork(inner, branch_sizes(action), config.mask_key if masked else "", config.global_keys)
