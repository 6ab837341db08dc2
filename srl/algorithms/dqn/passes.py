"""Forward and backward passes of Q networks: autograd for any body, hand-written for dense layers.

A backward pass adds to the `grad` tensors of the parameters, which `FlatParameters` creates for trainers and which the
learner clears after each step.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from srl.algorithms.dqn.network import DenseBody
from srl.networks.encoders.images import WideLinear


class BodyPass(ABC):
    """Runs the body of a Q network: observation tree [B, ...] -> outputs [B, n, K], detached."""

    rows_at_once: int
    """Most rows that `evaluate` should get at once, so that their activations stay in the cache."""

    def encode(self, observation: Any) -> Any:
        """Return what the other methods take instead of an observation, computed once for all its uses. It does not
        depend on parameters."""
        return observation

    @abstractmethod
    def evaluate(self, inputs: Any) -> Tensor:
        """Return the outputs of rows from which nothing is learned; valid until the next call."""

    @abstractmethod
    def forward(self, inputs: Any, next_inputs: Any | None) -> tuple[Tensor, Tensor | None]:
        """Return the outputs of rows to learn from, and those of the next observations if they are given."""

    @abstractmethod
    def backward(self, gradient: Tensor) -> None:
        """Backpropagate the gradient [B, n, K] of the outputs of the last `forward` to the weights."""


def build_body_pass(body: nn.Module, precision: str = "float32") -> BodyPass:
    """Return the fastest pass for a body."""
    if isinstance(body, DenseBody) and precision == "float32" and _is_plain(body):
        from srl.algorithms.dqn.dense_pass import DensePass

        return DensePass(body)
    return AutogradPass(body, precision)


def _is_plain(body: DenseBody) -> bool:
    """Return whether only dense layers without noise have parameters."""
    encoded = any(True for _ in body.encoder.parameters())
    return not encoded and all(isinstance(layer, WideLinear) for layer in (*body.layers, *body.heads.layers()))


class AutogradPass(BodyPass):
    rows_at_once = 128

    def __init__(self, body: nn.Module, precision: str) -> None:
        self._body = body
        self._is_half = precision == "bfloat16"
        self._outputs: Tensor | None = None

    def _run(self, inputs: Any) -> Tensor:
        device = next(self._body.parameters()).device.type
        with torch.autocast(device, torch.bfloat16) if self._is_half else contextlib.nullcontext():
            outputs: Tensor = self._body(inputs)
        return outputs.float()

    def evaluate(self, inputs: Any) -> Tensor:
        with torch.no_grad():
            return self._run(inputs)

    def forward(self, inputs: Any, next_inputs: Any | None) -> tuple[Tensor, Tensor | None]:
        # Not in one pass: the next observations need no gradient, which is most of the work.
        after = None if next_inputs is None else self.evaluate(next_inputs)
        self._outputs = self._run(inputs)
        return self._outputs.detach(), after

    def backward(self, gradient: Tensor) -> None:
        assert self._outputs is not None
        # Differentiate a scalar with this derivative: given an explicit gradient, torch would first import sympy,
        # which takes half a second.
        torch.autograd.backward(torch.dot(self._outputs.reshape(-1), gradient.reshape(-1)))
        self._outputs = None
