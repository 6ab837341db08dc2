"""A hand-written pass for Q networks of dense layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from srl.algorithms.dqn.network import DenseBody, DuelingHeads
from srl.algorithms.dqn.passes import BodyPass
from srl.networks.activations import tanh_


class _Layer:
    """A layer's tensors, looked up once, because a lookup in a torch module costs as much as a small kernel."""

    def __init__(self, layer: nn.Module) -> None:
        weight, bias = layer.weight, layer.bias
        assert isinstance(weight, Tensor)
        assert isinstance(bias, Tensor)
        self.weight, self.bias = weight.data, bias.data  # [in, out], [out]
        self.transposed = self.weight.t()
        self.weight_gradient = weight.grad if weight.grad is not None else weight.data.new_zeros(0)
        self.bias_gradient = bias.grad if bias.grad is not None else bias.data.new_zeros(0)


class _Buffers:
    """Activations of the hidden layers for a number of rows."""

    def __init__(self, layers: list[_Layer], num_rows: int) -> None:
        self.outputs = [layer.bias.new_empty(num_rows, len(layer.bias)) for layer in layers]


class DensePass(BodyPass):
    """Activations are kept in reused buffers, weight gradients are overwritten instead of being accumulated, and the
    observations of two uses share each product: for small networks, the calls cost as much as the arithmetic."""

    rows_at_once = 1024

    def __init__(self, body: DenseBody) -> None:
        self._encoder = body.encoder
        self._is_tanh = body.is_tanh
        self._layers = [_Layer(layer) for layer in body.layers]
        self._outputs = [_Layer(layer) for layer in body.heads.layers()]
        self._num_choices = body.heads.num_choices
        self._centering = body.heads.centering if isinstance(body.heads, DuelingHeads) else None
        self._buffers: dict[int, _Buffers] = {}
        self._inputs = self._last = torch.empty(0)

    def encode(self, observation: Any) -> Tensor:
        features: Tensor = self._encoder(observation)
        return features

    def evaluate(self, inputs: Tensor) -> Tensor:
        return self._heads(self._hidden(inputs)[-1])

    def forward(self, inputs: Tensor, next_inputs: Tensor | None) -> tuple[Tensor, Tensor | None]:
        num_rows = len(inputs)
        rows = inputs if next_inputs is None else torch.cat((inputs, next_inputs))
        hidden = self._hidden(rows)
        self._kept = [inputs, *(output[:num_rows] for output in hidden)]
        outputs = self._heads(hidden[-1])
        return outputs[:num_rows], None if next_inputs is None else outputs[num_rows:]

    def _hidden(self, inputs: Tensor) -> list[Tensor]:
        buffers = self._buffers.get(len(inputs))
        if buffers is None:
            buffers = self._buffers[len(inputs)] = _Buffers(self._layers, len(inputs))
        hidden = inputs
        for layer, output in zip(self._layers, buffers.outputs, strict=True):
            torch.addmm(layer.bias, hidden, layer.weight, out=output)
            hidden = tanh_(output) if self._is_tanh else output.relu_()
        return buffers.outputs

    def _heads(self, hidden: Tensor) -> Tensor:
        if self._centering is None:
            (output,) = self._outputs
            return torch.addmm(output.bias, hidden, output.weight).view(len(hidden), self._num_choices, -1)
        value, advantage = self._outputs
        state, action = hidden.chunk(2, dim=1)
        values = torch.addmm(value.bias, state, value.weight)
        advantages = torch.addmm(advantage.bias, action, advantage.weight).view(len(hidden), self._num_choices, -1)
        return torch.matmul(self._centering, advantages).add_(values[:, None])

    def backward(self, gradient: Tensor) -> None:
        *inputs, last = self._kept
        upstream = self._backward_heads(gradient, last)
        for i in reversed(range(len(self._layers))):
            layer, output = self._layers[i], self._kept[i + 1]
            if self._is_tanh:
                torch.ops.aten.tanh_backward.grad_input(upstream, output, grad_input=upstream)
            else:
                torch.ops.aten.threshold_backward.grad_input(upstream, output, 0, grad_input=upstream)
            torch.mm(inputs[i].t(), upstream, out=layer.weight_gradient)
            torch.sum(upstream, 0, out=layer.bias_gradient)
            if i > 0:
                upstream = torch.mm(upstream, layer.transposed)

    def _backward_heads(self, gradient: Tensor, last: Tensor) -> Tensor:
        """Write the gradients of the output layers, and return that of the last hidden layer."""
        if self._centering is None:
            (output,) = self._outputs
            flat = gradient.flatten(1)
            torch.mm(last.t(), flat, out=output.weight_gradient)
            torch.sum(flat, 0, out=output.bias_gradient)
            return torch.mm(flat, output.transposed)
        states, actions = last.chunk(2, dim=1)
        summed = gradient.sum(1)
        centered = torch.matmul(self._centering, gradient).flatten(1)
        upstream = torch.empty_like(last)
        for layer, flat, hidden, part in zip(
            self._outputs, (summed, centered), (states, actions), upstream.chunk(2, dim=1), strict=True
        ):
            torch.mm(hidden.t(), flat, out=layer.weight_gradient)
            torch.sum(flat, 0, out=layer.bias_gradient)
            torch.mm(flat, layer.transposed, out=part)
        return upstream
