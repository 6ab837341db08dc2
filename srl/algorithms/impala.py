"""IMPALA (Espeholt et al. 2018): one pass over each batch, corrected for old data by V-trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from srl.algorithms.ppo.config import PPOConfig


@dataclass(frozen=True)
class ImpalaConfig(PPOConfig):
    """One pass over each batch with the plain policy gradient and V-trace, which corrects for actions chosen by an
    older policy. Meant for a larger `--max-lag`. V-trace targets are computed once per batch, before the first gradient
    step; a `gae_lambda` below 1 makes them rely more on the critic."""

    epochs: int = 1
    num_minibatches: int = 4
    gae_lambda: float = 1.0
    surrogate: Literal["clip", "plain"] = "plain"
    correction: Literal["none", "clip", "vtrace"] = "vtrace"
    normalize_advantage: Literal["batch", "minibatch", "none"] = "none"
