"""Q networks: an encoder, dense layers, and values or distributions of returns for each choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from srl.algorithms.dqn.returns import ReturnModel
from srl.base.tree import leaves
from srl.networks.activations import tanh_
from srl.networks.network import Network


class Heads(nn.Module):
    """Output layer: `num_choices` x `num_atoms` numbers."""

    def __init__(self, layer: nn.Module, num_choices: int) -> None:
        super().__init__()
        self.layer = layer
        self.num_choices = num_choices

    def forward(self, features: Tensor) -> Tensor:
        outputs: Tensor = self.layer(features)
        return outputs.view(outputs.shape[0], self.num_choices, -1)

    def layers(self) -> list[nn.Module]:
        return [self.layer]


class DuelingHeads(nn.Module):
    """Output layers of a dueling network (Wang et al. 2016, eq. 9): the first half of the features gives the value of
    the state, the second half the advantages. The mean advantage of each branch is subtracted.

    Q = V + A - mean(A)
    """

    centering: Tensor

    def __init__(self, value: nn.Module, advantage: nn.Module, nvec: Sequence[int]) -> None:
        super().__init__()
        self.value, self.advantage = value, advantage
        self.num_choices = sum(nvec)
        branch = torch.repeat_interleave(torch.arange(len(nvec)), torch.tensor(nvec))
        means = (branch[:, None] == branch) / torch.tensor(nvec)[branch]
        self.register_buffer("centering", torch.eye(self.num_choices) - means, persistent=False)  # [n, n], symmetric

    def forward(self, features: Tensor) -> Tensor:
        state, action = features.chunk(2, dim=1)
        advantage: Tensor = self.advantage(action).view(features.shape[0], self.num_choices, -1)
        value: Tensor = self.value(state)
        return torch.matmul(self.centering, advantage) + value[:, None]

    def layers(self) -> list[nn.Module]:
        return [self.value, self.advantage]


class QNetwork(Network):
    """Maps observations to Q values [B, n] and the value of the best action [B]; the n choices of all branches are
    concatenated. Choices that the mask forbids get the value `FORBIDDEN`.

    `epsilon`, the probability of a random action, is a parameter without a gradient, so that it reaches policies with
    the others. Only the trainer changes it.
    """

    def __init__(self, body: nn.Module, returns: ReturnModel, nvec: tuple[int, ...], mask_key: str = "") -> None:
        super().__init__()
        self.body = body
        self.returns = returns
        self.nvec = nvec
        self.mask_key = mask_key
        self.epsilon = nn.Parameter(torch.ones(1), requires_grad=False)

    def forward(self, observation: Any) -> tuple[Tensor, Tensor]:
        rest, allowed = self.split(observation)
        values = masked(self.returns.expectation(self.body(rest)), allowed)
        return values, self.best(values)

    def best(self, values: Tensor) -> Tensor:
        """Return the value of the best choice [B], the mean over the branches, for values [B, n]."""
        best = [part.amax(1) for part in torch.split(values, list(self.nvec), dim=1)]
        return best[0] if len(best) == 1 else torch.stack(best).mean(0)

    def split(self, observation: Any) -> tuple[Any, Tensor | None]:
        """Split off the mask. Return the observation of the body and the allowed choices, [B, n] bool."""
        if not self.mask_key:
            return observation, None
        rest = {name: part for name, part in observation.items() if name != self.mask_key}
        parts = [leaf.reshape(leaf.shape[0], -1) != 0 for _, leaf in leaves(observation[self.mask_key])]
        return rest, parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


FORBIDDEN = -1e9
"""Value of a masked choice: below all others, and finite, even if all choices are forbidden."""


def masked(values: Tensor, allowed: Tensor | None) -> Tensor:
    """Return values [..., n] with `FORBIDDEN` for the choices that are not `allowed`."""
    return values if allowed is None else values.masked_fill(~allowed, FORBIDDEN)


class DenseBody(nn.Module):
    """An encoder, dense layers with an activation, and heads: observation tree [B, ...] -> outputs [B, n, atoms]."""

    def __init__(
        self, encoder: nn.Module, layers: Sequence[nn.Module], activation: str, heads: Heads | DuelingHeads
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.layers = nn.ModuleList(layers)
        self.is_tanh = activation == "tanh"
        self.heads = heads

    def forward(self, observation: Any) -> Tensor:
        hidden: Tensor = self.encoder(observation)
        for layer in self.layers:
            hidden = tanh_(layer(hidden)) if self.is_tanh else layer(hidden).relu_()
        outputs: Tensor = self.heads(hidden)
        return outputs


class CustomBody(nn.Module):
    """A user's network, whose distribution parameters [B, n] are Q values; its value is not used."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, observation: Any) -> Tensor:
        values: Tensor = self.network(observation)[0]
        return values[:, :, None]


def best_choices(values: Tensor, nvec: Sequence[int]) -> Tensor:
    """Return the best choice of each branch, [B, branches], as indices into the n values of a row [B, n]."""
    if len(nvec) == 1:
        return values.max(1, keepdim=True).indices
    offsets = [sum(nvec[:i]) for i in range(len(nvec))]
    parts = torch.split(values, list(nvec), dim=1)
    return torch.stack([part.max(1).indices + offset for part, offset in zip(parts, offsets, strict=True)], dim=1)
