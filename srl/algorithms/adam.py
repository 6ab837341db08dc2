"""Adam on one flat vector."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.adam import adam


class FlatAdam:
    """Kingma & Ba 2015, by torch's fused kernel. The functional form: the optimiser class around it costs 30 us a step,
    as much as a layer of a small network, and its state is not a plain array."""

    def __init__(self, values: Tensor, eps: float) -> None:
        self.values = values  # [P], updated in place
        self.exp_avg = torch.zeros_like(values)
        self.exp_avg_sq = torch.zeros_like(values)
        self.num_steps = torch.zeros(())
        self.eps = eps

    def step(self, gradients: Tensor, learning_rate: float) -> None:
        adam(
            [self.values],
            [gradients],
            [self.exp_avg],
            [self.exp_avg_sq],
            [],
            [self.num_steps],
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=learning_rate,
            weight_decay=0.0,
            eps=self.eps,
            maximize=False,
        )

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All that changes, the parameters among it."""
        return self.values, self.exp_avg, self.exp_avg_sq, self.num_steps
