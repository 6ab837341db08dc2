"""Which spaces the networks serve. Without torch, so that a controller can ask."""

from __future__ import annotations

import math

from srl.api.spaces import Box, Discrete, MultiDiscrete, Space


def check_action_space(action: Space) -> None:
    """Raise ValueError for a space that no distribution covers."""
    discrete = isinstance(action, Discrete) and action.n >= 1
    several = isinstance(action, MultiDiscrete) and bool(action.nvec) and min(action.nvec) >= 1
    real = isinstance(action, Box) and action.dtype in ("float32", "float64") and math.prod(action.shape) >= 1
    if not (discrete or several or real):
        raise ValueError(
            f"no distribution for the action space {action}; supported are Discrete, MultiDiscrete and Box of float32 "
            "or float64, none of them empty (turn a Dict of actions into a MultiDiscrete or a Box in a wrapper)"
        )
