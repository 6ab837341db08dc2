"""Forward and backward passes: autograd for any network, hand-written for the stacked actor-critic.

A backward pass writes to the `grad` tensors of the parameters, which `FlatParameters` creates for trainers; policies
have none and run forward passes only.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from srl.networks.activations import tanh_
from srl.networks.actor_critic import EncodedActorCritic, StackedActorCritic, stacked_features
from srl.networks.memory.recurrent import Sequence, unroll
from srl.networks.wrappers import MaskedActorCritic, NormalizedActorCritic


class Pass(Protocol):
    def forward(self, observation: Any) -> tuple[Tensor, Tensor]:
        """Map an observation tree [B, ...] to distribution parameters [B, n] and values [B], both detached. A network
        with memory takes a `Sequence` instead and returns the outputs for the rows it selects."""

    def backward(self, parameters: Tensor, value: Tensor) -> None:
        """Backpropagate the gradients of the last outputs, which have the outputs' shapes, to the weights."""


def build_pass(network: nn.Module, gradients: Tensor) -> Pass:
    """Return the fastest pass for a network whose `grad` tensors are views of the flat vector `gradients`."""
    if isinstance(network, NormalizedActorCritic):
        return NormalizedPass(network, build_pass(network.network, gradients))
    if isinstance(network, MaskedActorCritic):
        return MaskedPass(network, build_pass(network.network, gradients))
    if isinstance(network, EncodedActorCritic) and isinstance(network.network, StackedActorCritic):
        return StackedPass(network.encoder, network.network)
    return AutogradPass(network, gradients)


class AutogradPass:
    def __init__(self, network: nn.Module, gradients: Tensor) -> None:
        self._network = network
        self._gradients = gradients
        self._outputs: tuple[Tensor, ...] = ()

    def forward(self, observation: Any) -> tuple[Tensor, Tensor]:
        if isinstance(observation, Sequence):
            parameters, value = self._outputs = unroll(self._network, observation)
        else:
            parameters, value = self._outputs = self._network(observation)
        return parameters.detach(), value.detach()

    def backward(self, parameters: Tensor, value: Tensor) -> None:
        self._gradients.zero_()
        # Differentiate a scalar with these derivatives: given explicit gradients, torch would first import sympy,
        # which takes half a second.
        number, other = map(torch.dot, _flat(self._outputs), _flat((parameters, value)))
        torch.autograd.backward(number + other)
        self._outputs = ()


def _flat(tensors: tuple[Tensor, ...]) -> list[Tensor]:
    return [tensor.reshape(-1) for tensor in tensors]


class NormalizedPass:
    """A pass that normalizes observations and values around an inner pass. Its values and their gradients are on the
    scale of the rewards; those of the inner pass are on the scale of the network."""

    def __init__(self, network: NormalizedActorCritic, inner: Pass) -> None:
        self._observation = network.observation_normalizer
        self._value = network.value_normalizer
        self._inner = inner

    def forward(self, observation: Any) -> tuple[Tensor, Tensor]:
        if self._observation is not None and isinstance(observation, Sequence):
            observation = observation._replace(observation=self._observation(observation.observation))
        elif self._observation is not None:
            observation = self._observation(observation)
        parameters, value = self._inner.forward(observation)
        return parameters, value if self._value is None else self._value(value)

    def backward(self, parameters: Tensor, value: Tensor) -> None:
        self._inner.backward(parameters, value if self._value is None else value * self._value.scale)


class MaskedPass:
    """A pass that masks actions. Masked choices have no gradient, so the backward pass is unchanged."""

    def __init__(self, network: MaskedActorCritic, inner: Pass) -> None:
        self._network = network
        self._inner = inner

    def forward(self, observation: Any) -> tuple[Tensor, Tensor]:
        if isinstance(observation, Sequence):
            rest, allowed = self._network.split(observation.observation)
            allowed = allowed.index_select(0, observation.rows)
            parameters, value = self._inner.forward(observation._replace(observation=rest))
        else:
            rest, allowed = self._network.split(observation)
            parameters, value = self._inner.forward(rest)
        return self._network.distribution.mask(parameters, allowed), value

    def backward(self, parameters: Tensor, value: Tensor) -> None:
        self._inner.backward(parameters, value)


class StackedPass:
    """A hand-written pass, twice as fast as autograd for a small network: activations are kept in reused buffers that
    stay in the CPU cache, and weight gradients are overwritten instead of being zeroed and accumulated."""

    def __init__(self, encoder: nn.Module, network: StackedActorCritic) -> None:
        self._encoder = encoder
        self._is_tanh = network.activation == "tanh"
        self._layers = [_Layer(weight, bias) for weight, bias in zip(network.weights, network.biases, strict=True)]
        self._actor = _Layer(network.policy_weight, network.policy_bias)
        self._critic = _Layer(network.value_weight, network.value_bias)
        self._free = None if network.free is None else _Layer(network.free, network.free)
        self._num_rows = 0

    def forward(self, observation: Any) -> tuple[Tensor, Tensor]:
        self._inputs = hidden = stacked_features(self._encoder(observation))  # [2, B, F]
        num_rows = hidden.shape[1]
        self._resize(num_rows)
        for layer in self._layers:
            torch.baddbmm(layer.bias, hidden, layer.weight, out=layer.output)
            hidden = tanh_(layer.output) if self._is_tanh else layer.output.relu_()
        parameters = torch.addmm(self._actor.bias, self._actor.weight, hidden[0].t())  # [n, B]
        value = torch.addmm(self._critic.bias, self._critic.weight, hidden[1].t())
        if self._free is not None:
            parameters = torch.cat((parameters, self._free.weight.expand(-1, num_rows)))
        return parameters.t(), value[0]

    def backward(self, parameters: Tensor, value: Tensor) -> None:
        outputs = parameters.t()  # [n, B]
        if self._free is not None:
            num_outputs = self._actor.weight.shape[0]
            torch.sum(outputs[num_outputs:], 1, keepdim=True, out=self._free.weight_gradient)
            outputs = outputs[:num_outputs]
        last, gradient = self._layers[-1].output, self._layers[-1].gradient
        for i, head, output in ((0, self._actor, outputs), (1, self._critic, value[None])):
            torch.mm(output, last[i], out=head.weight_gradient)
            torch.sum(output, 1, keepdim=True, out=head.bias_gradient)
            torch.mm(output.t(), head.weight, out=gradient[i])
        for i in reversed(range(len(self._layers))):
            layer = self._layers[i]
            if self._is_tanh:
                torch.ops.aten.tanh_backward.grad_input(layer.gradient, layer.output, grad_input=layer.gradient)
            else:
                torch.ops.aten.threshold_backward.grad_input(layer.gradient, layer.output, 0, grad_input=layer.gradient)
            inputs = self._layers[i - 1].output if i > 0 else self._inputs
            torch.bmm(inputs.transpose(1, 2), layer.gradient, out=layer.weight_gradient)
            torch.sum(layer.gradient, 1, keepdim=True, out=layer.bias_gradient)
            if i > 0:
                torch.bmm(layer.gradient, layer.weight.transpose(1, 2), out=self._layers[i - 1].gradient)

    def _resize(self, num_rows: int) -> None:
        if num_rows != self._num_rows:
            self._num_rows = num_rows
            for layer in self._layers:
                layer.resize(num_rows)


class _Layer:
    """A layer's tensors, looked up once, because a lookup in a torch module costs as much as a small kernel."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter) -> None:
        self.weight, self.bias = weight.data, bias.data
        self.weight_gradient, self.bias_gradient = weight.grad, bias.grad  # None in a policy
        self._buffers = self.weight.new_empty(2, 0)
        self.output = self.gradient = self._buffers[0]  # [2, B, size] each

    def resize(self, num_rows: int) -> None:
        """Allocate buffers for the outputs and gradients of `num_rows` rows."""
        size = num_rows * self.bias.numel()
        if self._buffers.shape[1] < size:
            self._buffers = self.weight.new_empty(2, size)
        self.output, self.gradient = self._buffers[:, :size].view(2, 2, num_rows, -1)
