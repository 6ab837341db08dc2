"""The contract of action distributions: sampling, log-probabilities, and their gradients in closed form.

A network outputs the parameters [B, n] of one distribution per row of a batch. The arithmetic uses the transpose
[n, B], because a reduction over few parameters is fast only if the batch is the contiguous axis; networks can return a
transposed view. Gradients are written by hand: the number of torch calls limits the update speed of a small network,
and autograd turns each call into four.
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
        """Number n of network outputs per row."""

    @property
    def num_free(self) -> int:
        """Number of trailing parameters that may be the same for every observation (a free log-std)."""

    @property
    def num_choices(self) -> int:
        """Length of the action mask; 0 if there are no choices to forbid."""

    @property
    def action_size(self) -> int:
        """Number of elements in an action."""

    @property
    def start(self) -> tuple[float, ...]:
        """Parameters [n] that an untrained network outputs, used as initial biases."""

    def mask(self, parameters: Tensor, allowed: Tensor) -> Tensor:
        """Return parameters that give probability 0 to choices that are not `allowed` [B, num_choices]."""

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Any:
        """Sample actions [B, ...] from distribution parameters [B, n]. `generator` must be on the same device."""

    def mode(self, parameters: Tensor) -> Any:
        """Return the most likely actions [B, ...] for distribution parameters [B, n]."""

    def log_prob(self, parameters: Tensor, action: Any) -> Tensor:
        """Return the log-probabilities [B] of actions [B, ...] under parameters [B, n]."""

    def evaluate(self, parameters: Tensor, action: Any) -> Evaluation: ...

    def gradient(self, evaluation: Evaluation, log_prob: Tensor, entropy: float) -> Tensor:
        """Return the gradient [B, n] with respect to the parameters, given the gradients with respect to each row's
        log-probability [B] and to its entropy (one number for all rows)."""


def empty_like(tensor: Tensor) -> Tensor:
    """Return an uninitialized contiguous tensor, which random numbers fill in the same order for any strides."""
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)
