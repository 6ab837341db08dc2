"""The contract of action distributions: sampling, log-probabilities, and their gradients in closed form.

A network outputs the parameters of one distribution for each row of a batch, [B, n]. The arithmetic runs on the
transpose [n, B], because a reduction over few parameters is fast only if the batch is the contiguous axis; networks can
return a transposed view. Gradients are written by hand: the number of torch calls bounds the speed of updates of a
small network, and autograd makes four calls out of each.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor


class Evaluation(NamedTuple):
    """Log-probabilities and entropies of a batch of actions."""

    log_prob: Tensor  # [B]
    entropy: Tensor  # [B]
    saved: tuple[Any, ...]  # intermediate results for `gradient`


class Distribution(Protocol):
    @property
    def num_parameters(self) -> int:
        """Number n of outputs of a network for each row."""

    @property
    def num_free(self) -> int:
        """Number of parameters, the last ones, that may be the same for every observation (a free log-std)."""

    @property
    def num_choices(self) -> int:
        """Length of a mask; 0 if there are no choices to forbid."""

    @property
    def action_size(self) -> int:
        """Number of elements of an action."""

    @property
    def start(self) -> tuple[float, ...]:
        """Parameters [n] of an untrained network, used as biases."""

    def mask(self, parameters: Tensor, allowed: Tensor) -> Tensor:
        """The parameters, with probability 0 for choices that are not `allowed` [B, num_choices]."""

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Any:
        """[B, n] -> actions [B, ...] as the space stores them. The generator is on the device of the parameters."""

    def mode(self, parameters: Tensor) -> Any:
        """[B, n] -> the most likely actions [B, ...]."""

    def log_prob(self, parameters: Tensor, action: Any) -> Tensor:
        """Log-probability of each action: parameters [B, n], actions [B, ...] -> [B]."""

    def evaluate(self, parameters: Tensor, action: Any) -> Evaluation: ...

    def gradient(self, evaluation: Evaluation, log_prob: Tensor, entropy: float) -> Tensor:
        """Gradient [B, n] of the parameters, given the gradient of each row's log-probability [B] and the gradient of
        each row's entropy (the same for all rows)."""


def empty_like(tensor: Tensor) -> Tensor:
    """An uninitialized tensor that random numbers fill in the same order whatever the strides of `tensor`."""
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)
