"""Self-attention among a few entities, batched over many small problems, with hand-written gradients.

torch's own attention and softmax take several times as long for 7 to 17 entities, because they vectorize along an axis
that is shorter than a vector register. Here heads are slices, and the softmax is made of elementwise calls over the
whole tensor. Results are concatenated afterwards, because writing products into slices takes twice as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

FORBIDDEN = -1e10


class ResidualAttention(nn.Module):
    """The block from Baker et al. 2019: layer norm, attention of all entities to the unmasked ones, a dense layer, a
    residual connection, layer norm."""

    def __init__(self, size: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.before = nn.LayerNorm(size)
        self.project = nn.Linear(size, 3 * size)
        self.dense = nn.Linear(size, size)
        self.after = nn.LayerNorm(size)
        for layer in (self.project, self.dense):
            nn.init.normal_(layer.weight, std=math.sqrt(0.125 / size))
            nn.init.zeros_(layer.bias)

    def forward(self, entities: Tensor, mask: Tensor) -> Tensor:
        """Update entities [B, E, D] by attending to those whose `mask` [B, E] is 1. Each row needs at least one."""
        projected = self.project(self.before(entities))
        bias = (mask - 1.0).mul_(-FORBIDDEN)[:, None]  # [B, 1, E]
        if torch.is_grad_enabled():
            attended: Tensor = attention_pass(projected, bias, self.num_heads)
        else:
            attended = attend(projected, bias, self.num_heads)[0]
        return self.after(self.dense(attended).add_(entities))  # type: ignore[no-any-return]


def attend(projected: Tensor, bias: Tensor, num_heads: int) -> tuple[Tensor, Tensor]:
    """Return the outputs [B, E, D] and weights [H, B, E, E] of attention, where `projected` [B, E, 3D] holds queries,
    keys and values, and `bias` [B, 1, E] is added to the logits of each key."""
    heads = _heads(projected, num_heads)
    bias = bias.expand(-1, projected.shape[1], -1)
    scale = heads[0][0].shape[2] ** -0.5
    weights = torch.stack([torch.baddbmm(bias, q, k.transpose(1, 2), alpha=scale) for q, k, _ in heads])
    weights.sub_(weights.amax(-1, keepdim=True)).exp_()
    weights.div_(weights.sum(-1, keepdim=True))
    return torch.cat([torch.bmm(p, v) for p, (_, _, v) in zip(weights, heads, strict=True)], dim=2), weights


def _heads(projected: Tensor, num_heads: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return each head's slices of queries, keys and values, [B, E, D / H] each."""
    queries, keys, values = (part.chunk(num_heads, dim=2) for part in projected.chunk(3, dim=2))
    return list(zip(queries, keys, values, strict=True))


class AttentionPass(torch.autograd.Function):
    """Differentiable multi-head attention: softmax(q k^T / sqrt(d) + bias) v for each head."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, bias: Tensor, num_heads: int) -> Tensor:
        output, weights = attend(projected, bias, num_heads)
        ctx.save_for_backward(projected, weights)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        projected, weights = ctx.saved_tensors
        num_heads = len(weights)
        heads, outputs = _heads(projected, num_heads), gradient.chunk(num_heads, dim=2)
        logits = torch.stack([torch.bmm(o, v.transpose(1, 2)) for o, (_, _, v) in zip(outputs, heads, strict=True)])
        # d logit = p * (d p - sum of p * d p over the keys)
        total = torch.mul(logits, weights).sum(-1, keepdim=True)
        logits.sub_(total).mul_(weights).mul_(heads[0][0].shape[2] ** -0.5)
        queries = [torch.bmm(logit, k) for logit, (_, k, _) in zip(logits, heads, strict=True)]
        keys = [torch.bmm(logit.transpose(1, 2), q) for logit, (q, _, _) in zip(logits, heads, strict=True)]
        values = [torch.bmm(p.transpose(1, 2), o) for p, o in zip(weights, outputs, strict=True)]
        return torch.cat((*queries, *keys, *values), dim=2), None, None


attention_pass: Callable[[Tensor, Tensor, int], Tensor] = AttentionPass.apply


def pool(entities: Tensor, mask: Tensor) -> Tensor:
    """Return the mean [B, D] of the unmasked entities [B, E, D]."""
    total = torch.bmm(mask[:, None], entities)[:, 0]
    return total / mask.sum(1, keepdim=True).add_(1e-5)
