"""Actor-critics: from features to distribution parameters [B, n] and values [B]."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from srl.networks.initialise import orthogonal, orthogonal_layers

ACTIVATIONS = ("tanh", "relu")
POLICY_GAIN = 0.01
VALUE_GAIN = 1.0
HIDDEN_GAIN = math.sqrt(2.0)


class StackedActorCritic(nn.Module):
    """Separate actor and critic of the same hidden sizes, computed as one network of stacked matrices.

    Layer i is one batched product over weights [2, in, out]: 0 is the actor, 1 the critic. The gradient is written
    by hand (`_StackedFunction`): half the torch calls of autograd's, which is what a small network's update costs.
    """

    def __init__(
        self, num_features: int, hidden_sizes: tuple[int, ...], activation: str, num_outputs: int, num_free: int
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"no activation {activation!r}; there are {ACTIVATIONS}")
        if not hidden_sizes or min(hidden_sizes) < 1:
            raise ValueError(f"hidden_sizes must be positive, at least one; found {hidden_sizes}")
        self.activation = activation
        sizes = (num_features, *hidden_sizes)
        self.weights = nn.ParameterList([nn.Parameter(torch.zeros(2, a, b)) for a, b in pairwise(sizes)])
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(2, 1, size)) for size in hidden_sizes])
        self.policy_weight = nn.Parameter(torch.zeros(num_outputs - num_free, sizes[-1]))
        self.policy_bias = nn.Parameter(torch.zeros(num_outputs - num_free, 1))
        self.value_weight = nn.Parameter(torch.zeros(1, sizes[-1]))
        self.value_bias = nn.Parameter(torch.zeros(1, 1))
        self.free = nn.Parameter(torch.zeros(num_free, 1)) if num_free else None
        for weight in self.weights:
            orthogonal(weight.data[0], HIDDEN_GAIN)
            orthogonal(weight.data[1], HIDDEN_GAIN)
        orthogonal(self.policy_weight, POLICY_GAIN)
        orthogonal(self.value_weight, VALUE_GAIN)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        heads = (self.policy_weight, self.policy_bias, self.value_weight, self.value_bias)
        parameters, value = _StackedFunction.apply(  # type: ignore[no-untyped-call]
            self.activation, features, *self.weights, *self.biases, *heads
        )
        if self.free is not None:
            parameters = torch.cat((parameters, self.free.expand(-1, features.shape[0])))
        return parameters.t(), value[0]


class _StackedFunction(torch.autograd.Function):
    """Features [B, F] and the weights of a stack -> distribution parameters [n, B], values [1, B]."""

    @staticmethod
    def forward(ctx: Any, activation: str, features: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        depth = (len(tensors) - 4) // 2
        policy_weight, policy_bias, value_weight, value_bias = tensors[2 * depth :]
        hidden = [features.expand(2, *features.shape)]
        for weight, bias in zip(tensors[:depth], tensors[depth : 2 * depth], strict=True):
            layer = torch.baddbmm(bias, hidden[-1], weight)  # [2, B, out]
            hidden.append(layer.tanh_() if activation == "tanh" else layer.relu_())
        ctx.activation, ctx.depth = activation, depth
        ctx.save_for_backward(*hidden, *tensors[:depth], policy_weight, value_weight)
        actor, critic = hidden[-1].transpose(1, 2).unbind(0)  # [out, B] each
        return torch.addmm(policy_bias, policy_weight, actor), torch.addmm(value_bias, value_weight, critic)

    @staticmethod
    def backward(ctx: Any, parameters: Tensor, value: Tensor) -> tuple[Tensor | None, ...]:
        depth = ctx.depth
        hidden = ctx.saved_tensors[: depth + 1]
        weights = ctx.saved_tensors[depth + 1 : 2 * depth + 1]
        policy_weight, value_weight = ctx.saved_tensors[2 * depth + 1 :]
        actor, critic = hidden[-1].unbind(0)
        heads = (
            torch.mm(parameters, actor),
            parameters.sum(1, keepdim=True),
            torch.mm(value, critic),
            value.sum(1, keepdim=True),
        )
        grad = torch.empty_like(hidden[-1])
        torch.mm(parameters.t(), policy_weight, out=grad[0])
        torch.mm(value.t(), value_weight, out=grad[1])
        weight_grads: list[Tensor] = []
        bias_grads: list[Tensor] = []
        for i in reversed(range(depth)):
            if ctx.activation == "tanh":
                grad = torch.ops.aten.tanh_backward(grad, hidden[i + 1])
            else:
                grad = torch.ops.aten.threshold_backward(grad, hidden[i + 1], 0)
            weight_grads.insert(0, torch.bmm(hidden[i].transpose(1, 2), grad))
            bias_grads.insert(0, grad.sum(1, keepdim=True))
            if i > 0 or ctx.needs_input_grad[1]:
                grad = torch.bmm(grad, weights[i].transpose(1, 2))
        features = grad.sum(0) if ctx.needs_input_grad[1] else None
        return (None, features, *weight_grads, *bias_grads, *heads)


class SharedActorCritic(nn.Module):
    """Two linear heads on shared features, which the encoder has already made deep."""

    def __init__(self, num_features: int, num_outputs: int, num_free: int) -> None:
        super().__init__()
        self.policy = nn.Linear(num_features, num_outputs - num_free)
        self.value = nn.Linear(num_features, 1)
        self.free = nn.Parameter(torch.zeros(num_free)) if num_free else None
        orthogonal_layers(POLICY_GAIN, self.policy)
        orthogonal_layers(VALUE_GAIN, self.value)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        parameters = self.policy(features)
        if self.free is not None:
            parameters = torch.cat((parameters, self.free.expand(features.shape[0], -1)), dim=1)
        return parameters, self.value(features)[:, 0]
