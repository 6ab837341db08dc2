"""Network parameters: initialization, and storage as views of one flat vector."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn


def orthogonal_layers(gain: float, *layers: Any) -> None:
    """Initialize layers with orthogonal weights scaled by `gain` and zero biases."""
    for layer in layers:
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)


class FlatParameters:
    """A network's parameters and gradients as views of one flat buffer each: publishing is one copy, an optimizer step
    one call, and the gradient norm one reduction.

    `values` is float32 [P]; the network's own tensors become views of it. Parameters without a gradient (normalizer
    statistics) come last; `trainable` holds the ones before them, which `gradients` corresponds to.
    """

    def __init__(self, network: nn.Module, *, gradients: bool) -> None:
        named = dict(network.named_parameters())
        unsupported = [name for name, tensor in named.items() if tensor.dtype != torch.float32]
        unsupported += sorted(set(network.state_dict()) - set(dict(network.named_parameters(remove_duplicate=False))))
        if unsupported or not named:
            raise ValueError(
                f"a network must have float32 parameters and no persistent buffers; found {unsupported or 'none'}. "
                "Only parameters are sent to policies: make constants non-persistent, and use LayerNorm, not BatchNorm"
            )
        tensors = sorted(named.values(), key=lambda tensor: not tensor.requires_grad)
        self.values = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
        self.trainable = self.values[: sum(tensor.numel() for tensor in tensors if tensor.requires_grad)]
        self.gradients = torch.zeros_like(self.trainable) if gradients else self.values.new_zeros(0)
        offset = 0
        for tensor in tensors:
            end = offset + tensor.numel()
            tensor.data = self.values[offset:end].view_as(tensor)
            if gradients and tensor.requires_grad:
                tensor.grad = self.gradients[offset:end].view_as(tensor)
            elif not gradients:
                tensor.requires_grad_(False)
            offset = end

    def load(self, values: Tensor) -> None:
        if values.shape != self.values.shape:
            raise ValueError(f"expected {list(self.values.shape)} parameters, found {list(values.shape)}")
        self.values.copy_(values)


def copy_with_gradients(network: nn.Module) -> nn.Module:
    """Return a copy that shares its parameters with a network, and has gradients of its own, which are 0."""
    shared: dict[int, Any] = {}
    for tensor in network.parameters():
        shared[id(tensor)] = one = nn.Parameter(tensor.data, requires_grad=tensor.requires_grad)
        one.grad = torch.zeros_like(tensor.data) if tensor.requires_grad else None
    return copy.deepcopy(network, shared)
