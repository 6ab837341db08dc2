"""Adam on one flat vector."""

from __future__ import annotations

import torch
from torch import Tensor


class FlatAdam:
    """Kingma & Ba 2015, by torch's fused kernel, called directly: `torch.optim.Adam` around it costs 30 us a step, as
    much as a layer of a small network, and keeps its state in a dictionary."""

    def __init__(self, values: Tensor, eps: float, weight_decay: float = 0.0) -> None:
        self.values = values  # [P], updated in place
        self.exp_avg = torch.zeros_like(values)
        self.exp_avg_sq = torch.zeros_like(values)
        self.num_steps = torch.zeros((), device=values.device)
        self.eps, self.weight_decay = eps, weight_decay

    def step(self, gradients: Tensor, learning_rate: float) -> None:
        self.num_steps += 1.0
        torch._fused_adam_(
            [self.values],
            [gradients],
            [self.exp_avg],
            [self.exp_avg_sq],
            [],
            [self.num_steps],
            lr=learning_rate,
            beta1=0.9,
            beta2=0.999,
            weight_decay=self.weight_decay,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
        )

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All that changes, the parameters among it."""
        return self.values, self.exp_avg, self.exp_avg_sq, self.num_steps
