"""Which network: the options that all algorithms with an actor-critic share. Without torch, so that naming one on a
command line or in a controller costs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class NetworkOptions:
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Layers of the separate actor and critic for observations without images."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Between these layers."""
    network: str = ""
    """Your own network: `package.module:function` or `path/file.py:function`. The function gets the observation and the
    action space and returns a torch.nn.Module: observation tree [B, ...] -> (distribution parameters [B, n], value
    [B]). n: the logits of Discrete(n), of all choices of a MultiDiscrete, or means and then log-stds for a Box."""
