"""What a Q network outputs about the return of an action: its mean, probabilities of returns, or quantiles.

Gradients are written in closed form, with respect to the outputs of the chosen actions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class Slope(NamedTuple):
    """Result of comparing predictions with targets."""

    gradient: Tensor  # [B, D, K]: derivative of the row's loss, which is the mean over its D branches
    error: Tensor  # [B]: absolute errors, which are the priorities


class ReturnModel(ABC):
    """Meaning of the K outputs for an action."""

    num_atoms: int

    @abstractmethod
    def expectation(self, outputs: Tensor) -> Tensor:
        """Return the expected returns [..., n] of outputs [..., n, K]."""

    @abstractmethod
    def target(self, outputs: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
        """Return targets [B, K] for the outputs [B, D, K] of the best actions of D branches in the next observation:
        reward + discount * (return after it), averaged over the branches."""

    @abstractmethod
    def compare(self, outputs: Tensor, target: Tensor) -> Slope:
        """Compare the outputs [B, D, K] of the chosen actions with targets [B, K]."""


class MeanReturn(ReturnModel):
    """One output: the expected return. The loss is half the squared error or, with `huber`, linear above 1."""

    num_atoms = 1

    def __init__(self, huber: bool) -> None:
        self._huber = huber

    def expectation(self, outputs: Tensor) -> Tensor:
        return outputs.squeeze(-1)

    def target(self, outputs: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
        value = outputs[:, 0] if outputs.shape[1] == 1 else outputs.mean(1)
        return torch.addcmul(reward[:, None], value, discount[:, None])

    def compare(self, outputs: Tensor, target: Tensor) -> Slope:
        difference = outputs - target[:, None]
        error = difference.abs().flatten(1)
        gradient = difference.clamp_(-1.0, 1.0) if self._huber else difference
        num_branches = outputs.shape[1]
        if num_branches == 1:
            return Slope(gradient, error[:, 0])
        return Slope(gradient / num_branches, error.mean(1))


class CategoricalReturn(ReturnModel):
    """Logits of `num_atoms` returns that are spread evenly from `low` to `high` (C51, Bellemare et al. 2017)."""

    def __init__(self, num_atoms: int, low: float, high: float) -> None:
        self.num_atoms = num_atoms
        self._low, self._high = low, high

    def _support(self, like: Tensor) -> Tensor:
        return torch.linspace(self._low, self._high, self.num_atoms, device=like.device)

    def expectation(self, outputs: Tensor) -> Tensor:
        return torch.softmax(outputs, -1) @ self._support(outputs)

    def target(self, outputs: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
        probabilities = torch.softmax(outputs, -1).mean(1)
        return project(probabilities, self._support(outputs), reward, discount)

    def compare(self, outputs: Tensor, target: Tensor) -> Slope:
        # Cross entropy with the target; the error is the divergence, which is 0 for equal distributions.
        log_probabilities = torch.log_softmax(outputs, -1)
        wanted = target[:, None]
        gradient = (log_probabilities.exp() - wanted) / outputs.shape[1]
        divergence = functional.kl_div(log_probabilities, wanted.expand_as(outputs), reduction="none").sum(-1)
        return Slope(gradient, divergence.mean(1).clamp_(min=0.0))


def project(probabilities: Tensor, support: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
    """Return the distribution [B, K] of reward + discount * z on the atoms of `support` [K], where z is an atom with
    these `probabilities` [B, K] (Bellemare et al. 2017, eq. 7). An atom that falls between two others is shared by both
    in proportion to their nearness; one outside of the support falls on its end."""
    moved = torch.addcmul(reward[:, None], discount[:, None], support).clamp_(float(support[0]), float(support[-1]))
    spacing = (support[-1] - support[0]) / (len(support) - 1)
    # Share of atom i that falls on atom k: 1 - |moved_i - z_k| / spacing, at least 0. Dense, but without branches.
    distance = (moved[:, :, None] - support).abs_().div_(spacing)  # [B, K, K]
    shares = distance.neg_().add_(1.0).clamp_(min=0.0)
    return torch.bmm(probabilities[:, None], shares)[:, 0]


class QuantileReturn(ReturnModel):
    """`num_atoms` quantiles of the return at the midpoints (2 i + 1) / 2K (QR-DQN, Dabney et al. 2018). With `huber`,
    the loss is quadratic for errors below 1 (eq. 9 and 10, with kappa = 1)."""

    def __init__(self, num_atoms: int, huber: bool) -> None:
        self.num_atoms = num_atoms
        self._huber = huber

    def expectation(self, outputs: Tensor) -> Tensor:
        return outputs.mean(-1)

    def target(self, outputs: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
        return torch.addcmul(reward[:, None], outputs.mean(1), discount[:, None])

    def compare(self, outputs: Tensor, target: Tensor) -> Slope:
        levels = (torch.arange(self.num_atoms, device=outputs.device) + 0.5) / self.num_atoms
        difference = target[:, None, None, :] - outputs[..., None]  # [B, D, quantile i, target j]
        weight = (levels[:, None] - (difference < 0.0).float()).abs_()
        slope = difference.clamp(-1.0, 1.0) if self._huber else difference.sign()
        gradient = (weight * slope).mean(-1).neg_() / outputs.shape[1]
        return Slope(gradient, difference.mean((-1, -2)).abs_().mean(1))
