"""All parameters of a network, and all gradients, as views of one flat buffer each."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class FlatParameters:
    """Publishing is one copy, the optimizer one call, the gradient's norm one reduction.

    `values` are float32 [P]; the network's own tensors are views of them from now on. Parameters that no gradient moves
    (a normalizer's statistics) come last: `trainable` are those before them, and `gradients` belong to these.
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
            raise ValueError(f"wanted {list(self.values.shape)} parameters, found {list(values.shape)}")
        self.values.copy_(values)
