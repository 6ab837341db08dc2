"""All parameters of a network, and all gradients, as views of one flat buffer each."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class FlatParameters:
    """Publishing is one copy, the optimiser one call, the gradient's norm one reduction.

    `values` and `gradients` are float32 [P]; the network's own tensors are views of them from now on.
    """

    def __init__(self, network: nn.Module, *, gradients: bool) -> None:
        named = dict(network.named_parameters())
        strangers = [name for name, tensor in named.items() if tensor.dtype != torch.float32]
        strangers += sorted(set(network.state_dict()) - set(dict(network.named_parameters(remove_duplicate=False))))
        if strangers or not named:
            raise ValueError(
                f"a network must hold float32 parameters and no persistent buffers; found {strangers or 'none'}. Only "
                "parameters travel to policies: make constants non-persistent, and use LayerNorm, not BatchNorm"
            )
        self.values = torch.cat([tensor.detach().reshape(-1) for tensor in named.values()])
        self.gradients = torch.zeros_like(self.values) if gradients else self.values.new_zeros(0)
        offset = 0
        for tensor in named.values():
            end = offset + tensor.numel()
            tensor.data = self.values[offset:end].view_as(tensor)
            if gradients:
                tensor.grad = self.gradients[offset:end].view_as(tensor)
            else:
                tensor.requires_grad_(False)
            offset = end

    def load(self, values: Tensor) -> None:
        if values.shape != self.values.shape:
            raise ValueError(f"wanted {list(self.values.shape)} parameters, found {list(values.shape)}")
        self.values.copy_(values)
