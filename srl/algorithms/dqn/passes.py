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
from srl.algorithms.dqn.noisy import noisy_layers
from srl.algorithms.offpolicy.threads import RowThreads
from srl.base.tree import from_leaves, leaves
from srl.networks.encoders.images import ImageEncoder, WideLinear
from srl.networks.parameters import copy_with_gradients


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


def build_body_pass(body: nn.Module, precision: str = "float32", threads: RowThreads | None = None) -> BodyPass:
    """Return the fastest pass for a body. `threads` divide the rows of images on the CPU."""
    if threads is not None and threads.number > 1 and _has_images(body):
        return ThreadedPass(body, precision, threads)
    if isinstance(body, DenseBody) and precision == "float32" and _is_plain(body):
        from srl.algorithms.dqn.dense_pass import DensePass

        return DensePass(body)
    return AutogradPass(body, precision)


def _is_plain(body: DenseBody) -> bool:
    """Return whether only dense layers without noise have parameters."""
    encoded = any(True for _ in body.encoder.parameters())
    return not encoded and all(isinstance(layer, WideLinear) for layer in (*body.layers, *body.heads.layers()))


def _has_images(body: nn.Module) -> bool:
    """Return whether convolutions take most of the time. Networks of users may not be safe to call in threads."""
    on_cpu = next(body.parameters()).device.type == "cpu"
    return on_cpu and isinstance(body, DenseBody) and any(isinstance(part, ImageEncoder) for part in body.modules())


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


class ThreadedPass(BodyPass):
    """Autograd in several threads, which share the parameters but not their gradients. It runs only within
    `threads.running()`."""

    rows_at_once = 128

    def __init__(self, body: nn.Module, precision: str, threads: RowThreads) -> None:
        copies = [copy_with_gradients(body) for _ in range(threads.number - 1)]
        for one in copies:
            for layer, own in zip(noisy_layers(body), noisy_layers(one), strict=True):
                own.share_noise(layer)
        self._threads = threads
        self._parts = [AutogradPass(one, precision) for one in (body, *copies)]
        gradients = [[part.grad for part in one.parameters() if part.grad is not None] for one in (body, *copies)]
        self._gradients, *self._others = gradients

    def evaluate(self, inputs: Any) -> Tensor:
        parts = _divided(inputs, self._threads.number)
        return torch.cat(self._threads.each(lambda i: self._parts[i].evaluate(parts[i])))

    def forward(self, inputs: Any, next_inputs: Any | None) -> tuple[Tensor, Tensor | None]:
        number = self._threads.number
        rows = _divided(inputs, number)
        after = [None] * number if next_inputs is None else _divided(next_inputs, number)
        found = self._threads.each(lambda i: self._parts[i].forward(rows[i], after[i]))
        seen = [one for _, one in found if one is not None]
        return torch.cat([outputs for outputs, _ in found]), torch.cat(seen) if seen else None

    def backward(self, gradient: Tensor) -> None:
        parts = torch.tensor_split(gradient, self._threads.number)
        self._threads.each(lambda i: self._parts[i].backward(parts[i]))
        for other in self._others:
            for total, own in zip(self._gradients, other, strict=True):
                total.add_(own)
                own.zero_()


def _divided(tree: Any, number: int) -> list[Any]:
    """Divide the rows of a tree of tensors into parts."""
    if isinstance(tree, Tensor):
        return list(torch.tensor_split(tree, number))
    pieces = {path: torch.tensor_split(leaf, number) for path, leaf in leaves(tree)}
    return [from_leaves({path: parts[i] for path, parts in pieces.items()}) for i in range(number)]
